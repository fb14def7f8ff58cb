package kafka

// What the tests hold the server to.
const (
	InFlightMax     = inFlightMax
	SmallFrameMax   = smallFrameMax
	FetchMax        = fetchMax
	PatienceLeast   = patienceLeast
	DecompressedMax = decompressedMax
)
