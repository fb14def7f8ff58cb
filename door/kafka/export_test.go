package kafka

import "github.com/weir-log/weir/internal/budget"

// What the tests hold the server to.
const (
	SmallFrameMax   = smallFrameMax
	FetchMax        = fetchMax
	SilentMax       = budget.SilentMax
	DecompressedMax = decompressedMax
	MentionDepth    = mentionDepth
	ArrayCopies     = arrayCopies
)
