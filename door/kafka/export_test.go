package kafka

// What the tests hold the server to.
const (
	SmallFrameMax   = smallFrameMax
	FetchMax        = fetchMax
	SilentMax       = silentMax
	DecompressedMax = decompressedMax
	MentionDepth    = mentionDepth
	ArrayCopies     = arrayCopies
)
