package load

import (
	"sync"

	"github.com/weir-log/weir/internal/ledger"
)

// Reader notes what a protocol reads. It may be called concurrently; the order in which events of
// one writer are passed to it counts.
type Reader struct {
	history  *History
	run      uint32
	protocol string
	name     string
	// came is told that calls succeed; nil: nobody asks.
	came func()

	mu      sync.Mutex // guards what follows
	pending []Entry
	open    map[uint32]int // the last entry of each writer among those pending
}

// pendingMost bounds the entries that are gathered before they are written.
const pendingMost = 1000

// Got notes an event.
func (r *Reader) Got(event []byte) error { return r.got(event, nil) }

// GotAt notes an event and its version.
func (r *Reader) GotAt(event []byte, version int64) error { return r.got(event, &version) }

func (r *Reader) got(event []byte, version *int64) error {
	s, err := ledger.Read(event)
	if err != nil {
		return r.note(Entry{Is: isDamaged, N: uint64(len(event))}, nil)
	}
	e := Entry{Is: isGot, Writer: s.Writer, First: s.Seq, N: 1, Version: version}
	if s.Run != r.run {
		e.Other = s.Run
	}
	return r.note(e, func(last *Entry) bool {
		follows := last.Is == e.Is && last.Other == e.Other && last.First+last.N == e.First && (version == nil) == (last.Version == nil)
		return follows && (version == nil || *last.Version+int64(last.N) == *version)
	})
}

// Acked notes that the acknowledgement of events is durable: they must not come again. It returns
// when that is on the disk.
func (r *Reader) Acked(events ...[]byte) error {
	for _, event := range events {
		s, err := ledger.Read(event)
		if err != nil || s.Run != r.run {
			continue // it was noted when it came
		}
		e := Entry{Is: isAcked, Writer: s.Writer, First: s.Seq, N: 1}
		if err := r.note(e, func(last *Entry) bool { return last.Is == e.Is && last.First+last.N == e.First }); err != nil {
			return err
		}
	}
	return r.write(r.history.Keep)
}

// Flush writes down what was noted. Protocols call it after each answer.
func (r *Reader) Flush() error {
	if r.came != nil {
		r.came()
	}
	return r.write(r.history.Note)
}

// note adds an entry, or adds its events to the last entry of its writer if they follow it.
func (r *Reader) note(e Entry, follows func(last *Entry) bool) error {
	e.Protocol, e.Reader = r.protocol, r.name
	r.mu.Lock()
	if i, has := r.open[e.Writer]; has && follows != nil && follows(&r.pending[i]) {
		r.pending[i].N += e.N
		r.mu.Unlock()
		return nil
	}
	if r.open == nil {
		r.open = map[uint32]int{}
	}
	r.open[e.Writer] = len(r.pending)
	r.pending = append(r.pending, e)
	full := len(r.pending) >= pendingMost
	r.mu.Unlock()
	if full {
		return r.write(r.history.Note)
	}
	return nil
}

// write passes pending entries on. It holds the lock meanwhile: their order counts.
func (r *Reader) write(to func(...Entry) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) == 0 {
		return nil
	}
	err := to(r.pending...)
	r.pending, r.open = r.pending[:0], nil
	return err
}
