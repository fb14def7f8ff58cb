package httpapi

// Routes are the patterns of the API, with the parameters of each.
func Routes() (patterns []string) {
	for _, r := range api {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}

// What openapi.yaml says in numbers and words.
const (
	ClaimDefault     = claimDefault
	CursorMax        = cursorMax
	EventsMax        = eventsMax
	EventsDefault    = eventsDefault
	AttemptsMax      = attemptsMax
	ConcurrencyMax   = concurrencyMax
	DelaysMax        = delaysMax
	LeaseMax         = leaseMax
	LeaseMin         = leaseMin
	LettersDefault   = lettersDefault
	LettersMax       = lettersMax
	PauseMax         = pauseMax
	PrioritiesMax    = prioritiesMax
	RateMax          = rateMax
	WindowMost       = windowMost
	OnceKeyMax       = onceKeyMax
	ReadDefault      = readDefault
	SessionDefault   = sessionDefault
	SessionMax       = sessionMax
	SessionMin       = sessionMin
	StreamDefault    = streamDefault
	StreamPartitions = streamPartitions
	TimestampMax     = timestampMax
	WaitMax          = waitMax
	PageGrace        = pageGrace
	PageRate         = pageRate
)
