package eventlog

import "time"

// Observer is told what the log did, for metrics. Calls may come from many goroutines and must be short.
type Observer interface {
	// Flushed follows every commit, also a failed one.
	Flushed(Flush)
	// Fetched follows every partition served with records.
	Fetched(bytes int, fromTail bool)
	// StoreFailed names the Store method, in lower case, that returned err.
	StoreFailed(op string, err error)
	// Retried: a flush that the store did not take goes out again.
	Retried()
}

// Flush describes one commit.
type Flush struct {
	Entries, Batches int
	Records, Bytes   int64
	Took             time.Duration
	Err              error
}

type nobody struct{}

func (nobody) Flushed(Flush)             {}
func (nobody) Fetched(int, bool)         {}
func (nobody) StoreFailed(string, error) {}
func (nobody) Retried()                  {}
