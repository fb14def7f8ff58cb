package eventlog

import "time"

// Observer receives what the log did, for metrics. Calls come from many goroutines and must be
// short.
type Observer interface {
	// Flushed is called after every commit, also a failed one.
	Flushed(Flush)
	// Fetched is called for every partition of an answer that has records.
	Fetched(bytes int, fromTail bool)
	// Delivered is called for every partition of an answer that has records, if the reader waited
	// for it. age is how old the newest of them is, by its timestamp and the process's clock; a
	// timestamp in the future counts as now.
	Delivered(age time.Duration)
	// StoreFailed is called when a Store method returned err, or a damaged batch. op is the method
	// in lower case; for Changes it is "moved".
	StoreFailed(op string, err error)
	// Retried is called before a flush is tried again, because the store was unavailable or may
	// have been rewound.
	Retried()
}

// Flush describes one commit.
type Flush struct {
	Entries, Batches int
	Records, Bytes   int64
	Took             time.Duration
	Err              error
}

// nobody is the Observer if none is configured.
type nobody struct{}

func (nobody) Flushed(Flush)             {}
func (nobody) Fetched(int, bool)         {}
func (nobody) Delivered(time.Duration)   {}
func (nobody) StoreFailed(string, error) {}
func (nobody) Retried()                  {}
