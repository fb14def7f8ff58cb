// Package ledger keeps what a system promised and what it delivered, and says where they differ.
package ledger

import (
	"fmt"
	"strings"
	"sync"

	"github.com/weir-log/weir/bench/load"
)

// Ledger is about one run. Its methods may be called concurrently. It holds a few bits for each
// event and group.
type Ledger struct {
	run         uint32
	ordered     bool // the system promises order within a key, which is a writer's
	atLeastOnce bool // something happens to the system: what was not acknowledged may come again

	mu      sync.Mutex // guards all below
	writers map[uint32]*book
	groups  map[string]map[uint32]*read
	verdict Verdict
}

// book has what became of a writer's events: acknowledged, or of unknown outcome.
type book struct{ acked, unknown bits }

// read has what a group got of a writer's events.
type read struct {
	got  bits
	done bits   // those that the group acknowledged
	next uint64 // one above the highest that was delivered
}

// Verdict says how often a promise was broken. The zero value is a clean run.
type Verdict struct {
	Acked     int64 `json:"acked"`
	Unknown   int64 `json:"unknown"`   // sent, and the outcome is not known: it may be there or not
	Failed    int64 `json:"failed"`    // certainly not done, as the system said
	Delivered int64 `json:"delivered"` // to all groups together
	Repeated  int64 `json:"repeated"`  // of these, again after a fault, before they were acknowledged: which no promise forbids

	Lost       int64  `json:"lost"`         // acknowledged, and not delivered to a group
	Again      int64  `json:"again"`        // delivered more than once
	OutOfOrder int64  `json:"out_of_order"` // delivered after a later one of its key
	Invented   int64  `json:"invented"`     // delivered, and never sent in this run
	Corrupt    int64  `json:"corrupt"`
	Gaps       int64  `json:"gaps"`            // versions of a stream that are missing or wrong
	Unanswered int64  `json:"unanswered"`      // calls that were not answered when everything had an end
	First      string `json:"first,omitempty"` // the first violation, in words
}

// Clean reports whether no promise was broken.
func (v Verdict) Clean() bool { return v.String() == "" }

// String lists the violations: "3 lost, 1 again". It is empty for a clean run.
func (v Verdict) String() string {
	var all []string
	for _, x := range []struct {
		n    int64
		what string
	}{{v.Lost, "lost"}, {v.Again, "again"}, {v.OutOfOrder, "out of order"}, {v.Invented, "invented"}, {v.Corrupt, "corrupt"}, {v.Gaps, "gaps in versions"}, {v.Unanswered, "unanswered"}} {
		if x.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	return strings.Join(all, ", ")
}

// OnlyLost reports whether nothing else is wrong.
func (v Verdict) OnlyLost() bool { return v.Lost > 0 && v.Found().Clean() }

// Found is the verdict when what did not come is known to be there.
func (v Verdict) Found() Verdict {
	v.Lost, v.First = 0, ""
	return v
}

// New makes a ledger for one run. A system that promises no order is not judged by it.
func New(run uint32, ordered bool) *Ledger {
	return &Ledger{run: run, ordered: ordered, writers: map[uint32]*book{}, groups: map[string]map[uint32]*read{}}
}

// AtLeastOnce says that something happens to the system: an event that its group has not
// acknowledged may come again, and those after it.
func (l *Ledger) AtLeastOnce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.atLeastOnce = true
}

// Done notes that a group's acknowledgement of an event is durable: the event must not come again.
func (l *Ledger) Done(group string, s load.Stamp) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read(group, s.Writer).done.set(s.Seq)
}

// Group announces a group that is to get every event.
func (l *Ledger) Group(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.groups[name] == nil {
		l.groups[name] = map[uint32]*read{}
	}
}

func (l *Ledger) book(writer uint32) *book {
	b := l.writers[writer]
	if b == nil {
		b = &book{}
		l.writers[writer] = b
	}
	return b
}

func (l *Ledger) read(group string, writer uint32) *read {
	if l.groups[group] == nil {
		l.groups[group] = map[uint32]*read{}
	}
	r := l.groups[group][writer]
	if r == nil {
		r = &read{}
		l.groups[group][writer] = r
	}
	return r
}

// Acked notes events that the system acknowledged.
func (l *Ledger) Acked(writer uint32, first uint64, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.book(writer)
	for i := range uint64(n) {
		b.acked.set(first + i)
	}
	l.verdict.Acked += int64(n)
}

// Unknown notes events whose outcome the system does not know.
func (l *Ledger) Unknown(writer uint32, first uint64, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.book(writer)
	for i := range uint64(n) {
		b.unknown.set(first + i)
	}
	l.verdict.Unknown += int64(n)
}

// Failed notes events that the system certainly did not take. They must not be delivered.
func (l *Ledger) Failed(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verdict.Failed += int64(n)
}

// Unanswered notes calls that were never answered.
func (l *Ledger) Unanswered(n int64) { l.mu.Lock(); defer l.mu.Unlock(); l.verdict.Unanswered += n }

// Gap notes a version that is missing or wrong.
func (l *Ledger) Gap(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verdict.Gaps++
	l.say(what)
}

func (l *Ledger) say(what string) {
	if l.verdict.First == "" {
		l.verdict.First = what
	}
}

// Delivered notes what a group got. It returns the payload's stamp; ok is false for what is not of
// this run.
func (l *Ledger) Delivered(group string, payload []byte) (s load.Stamp, ok bool) {
	s, err := load.Read(payload)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verdict.Delivered++
	if err != nil {
		l.verdict.Corrupt++
		l.say(fmt.Sprintf("group %s got a payload of %d bytes that is damaged", group, len(payload)))
		return s, false
	}
	if s.Run != l.run {
		l.verdict.Invented++
		l.say(fmt.Sprintf("group %s got event %d of writer %d of another run", group, s.Seq, s.Writer))
		return s, false
	}
	r := l.read(group, s.Writer)
	switch {
	case l.atLeastOnce && r.got.has(s.Seq) && !r.done.has(s.Seq):
		l.verdict.Repeated++
	case r.got.has(s.Seq):
		l.verdict.Again++
		l.say(fmt.Sprintf("group %s got event %d of writer %d again", group, s.Seq, s.Writer))
	case l.ordered && s.Seq < r.next:
		l.verdict.OutOfOrder++
		l.say(fmt.Sprintf("group %s got event %d of writer %d after event %d", group, s.Seq, s.Writer, r.next-1))
	}
	r.got.set(s.Seq)
	r.next = max(r.next, s.Seq+1)
	return s, true
}

// Sent is how many events may be there: those acknowledged, and those of unknown outcome.
func (l *Ledger) Sent() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.verdict.Acked + l.verdict.Unknown
}

// Missing is how many acknowledged events were not delivered to all groups yet.
func (l *Ledger) Missing() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, _ := l.missing()
	return n
}

func (l *Ledger) missing() (n int64, first string) {
	for name, group := range l.groups {
		for w, b := range l.writers {
			for seq := range b.acked.all() {
				if r := group[w]; r == nil || !r.got.has(seq) {
					if n++; first == "" {
						first = fmt.Sprintf("event %d of writer %d was acknowledged, and group %s did not get it", seq, w, name)
					}
				}
			}
		}
	}
	return n, first
}

// Close judges the run. What was delivered must have been sent: acknowledged, or of unknown
// outcome.
func (l *Ledger) Close() Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.verdict
	n, first := l.missing()
	if v.Lost = n; v.First == "" {
		v.First = first
	}
	for name, group := range l.groups {
		for w, r := range group {
			b := l.writers[w]
			for seq := range r.got.all() {
				if b == nil || !b.acked.has(seq) && !b.unknown.has(seq) {
					if v.Invented++; v.First == "" {
						v.First = fmt.Sprintf("group %s got event %d of writer %d, which the system had refused", name, seq, w)
					}
				}
			}
		}
	}
	return v
}
