package load

import (
	"context"
	"errors"
)

// Protocol is one way to write to a store and to read from it, in a topic, queue or category of its
// own. Its methods may be called concurrently.
type Protocol interface {
	// Traits says what is promised, and what can be read.
	Traits() Traits
	// Create makes what the protocol writes to.
	Create(ctx context.Context) error
	// Write sends events in one call: all of them, or none. Each writer calls it alone.
	Write(ctx context.Context, writer int, events [][]byte) (Wrote, error)
	// Read passes on what is there and what comes, until ctx ends or it fails; then it is called
	// again. It may get events again that it has not acknowledged.
	Read(ctx context.Context, to *Reader) error
	// Audit passes on everything that is there, once. It is called when the writers have ended, and
	// only if Traits.Audited.
	Audit(ctx context.Context, to *Reader) error
	// Remove deletes what Create made, and says in its error what remains.
	Remove(ctx context.Context) error
}

// Traits are what a protocol promises.
type Traits struct {
	Name    string
	Where   string // what it writes to, for people: topic weir-load-1
	Ordered bool   // events of a writer come in their order
	// Versioned: each event of a writer has a version, which its acknowledgement tells.
	Versioned bool
	// Audited: all events can be read in the end, each once.
	Audited bool
}

// Wrote says what a call was told.
type Wrote struct {
	Version int64 // of the first event, if Traits.Versioned
}

// refused marks an error after which certainly nothing was written.
type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

// Refused marks the error of a call that certainly wrote nothing; nil stays nil.
func Refused(err error) error {
	if err == nil {
		return nil
	}
	return refused{err}
}

func wasRefused(err error) bool {
	var r refused
	return errors.As(err, &r)
}
