package claims

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/weir-log/weir/eventlog"
)

// Time is a moment by the store's clock, in milliseconds since the Unix epoch.
type Time int64

// Fate is the state of a message.
type Fate byte

// The fates.
const (
	Done    Fate = 'd' // acknowledged, or given up: it never comes back
	Claimed Fate = 'c' // a worker has it until its lease ends
	Waiting Fate = 'w' // it is not claimed now, and perhaps never was; it may be claimed from Run.Until on
)

// Run is a range of neighbouring messages that share a fate.
type Run struct {
	From    eventlog.Offset // the first
	N       int64           // how many
	Fate    Fate
	Attempt int32  // claimed: which attempt this is, from 1. waiting: how many attempts there were
	Until   Time   // claimed: when the lease ends. waiting: when it may be claimed
	Nonce   uint32 // claimed: the nonce in the receipts
	Worker  string // claimed: by whom
	Reason  string // why the last attempt failed; "" if its lease ended without an answer
}

// End returns the offset after the last message.
func (r Run) End() eventlog.Offset { return r.From + eventlog.Offset(r.N) }

// like reports whether two runs differ in From and N at most, so that they can become one.
func (r Run) like(o Run) bool {
	r.From, r.N = o.From, o.N
	return r == o
}

// since returns the part of a run from an offset on. The offset is before the run's end.
func (r Run) since(o eventlog.Offset) Run {
	if r.From < o {
		r.From, r.N = o, int64(r.End()-o)
	}
	return r
}

// join appends a run that begins where the last one ends. Two runs that are alike become one.
func join(runs []Run, r Run) []Run {
	if last := len(runs) - 1; last >= 0 && runs[last].like(r) {
		runs[last].N += r.N
		return runs
	}
	return append(runs, r)
}

// joinAt is join for a run that may begin after a gap.
func joinAt(runs []Run, r Run) []Run {
	if last := len(runs) - 1; last >= 0 && runs[last].End() != r.From {
		return append(runs, r)
	}
	return join(runs, r)
}

// Part is the state of the messages of one partition. A copy of it is a part of its own: runs are
// never changed, only replaced.
//
//	floor ≤ next, and the runs cover [floor, next) without a hole; the first run is not done
type Part struct {
	Partition   eventlog.Partition
	Floor, Next eventlog.Offset
	Runs        []Run
}

// Grant is one message that was claimed.
type Grant struct {
	Partition eventlog.Partition
	Offset    eventlog.Offset
	Attempt   int32
	Nonce     uint32
	Until     Time
	// first: no worker had the message before. Only a claim itself knows that; a receipt does not
	// tell it.
	first bool
}

// Again reports whether a worker may have had the message before.
func (g Grant) Again() bool { return !g.first }

// unresolved counts the messages between floor and next that are not done.
func (p *Part) unresolved() (n int64) {
	for _, r := range p.Runs {
		if r.Fate != Done {
			n += r.N
		}
	}
	return n
}

// GivenBack is Run.Until of a message that may be claimed immediately, because its last claim did
// not count, and that a worker may have had before.
const GivenBack Time = 1

// untouched reports whether no worker ever had the messages: they were only skipped. Attempt == 0
// does not tell that: it is also 0 after an attempt that does not count (Nack.Uncounted, GiveBack),
// but then Until is set.
func (r Run) untouched() bool { return r.Fate == Waiting && r.Attempt == 0 && r.Until == 0 }

// started reports whether the messages are claimed, or wait after at least one attempt that
// counted. The other unfinished messages below next have no attempt that counted: either they were
// given back, or they were skipped because an older message with the same key was not done.
func (r Run) started() bool { return r.Fate == Claimed || r.Fate == Waiting && r.Attempt > 0 }

// started counts the messages that are started.
func (p *Part) started() (n int64) {
	for _, r := range p.Runs {
		if r.started() {
			n += r.N
		}
	}
	return n
}

// search returns the index of the run that holds an offset: 0 below floor, len(p.Runs) from next
// on.
func (p *Part) search(o eventlog.Offset) int {
	return sort.Search(len(p.Runs), func(i int) bool { return o < p.Runs[i].End() })
}

// At finds the run that holds an offset; false below floor and from next on.
func (p *Part) At(o eventlog.Offset) (Run, bool) {
	if o < p.Floor || o >= p.Next {
		return Run{}, false
	}
	return p.Runs[p.search(o)], true
}

// Set changes the fates of messages at or above floor. The changes are in order and do not overlap;
// those past next begin at next, without gaps. However many changes there are, Set passes over the
// runs once.
func (p *Part) Set(changes ...Run) {
	if len(changes) == 0 {
		return
	}
	first := p.search(changes[0].From)
	old := p.Runs[first:]
	p.Runs = append(make([]Run, 0, len(p.Runs)+2*len(changes)), p.Runs[:first]...)
	changed := p.Floor // old counts from here on
	for _, c := range changes {
		for len(old) > 0 && old[0].End() <= c.From {
			p.Runs, old = join(p.Runs, old[0].since(changed)), old[1:]
		}
		if len(old) > 0 && old[0].since(changed).From < c.From {
			left := old[0].since(changed)
			left.N = int64(c.From - left.From)
			p.Runs = join(p.Runs, left)
		}
		covered := p.Floor
		if last := len(p.Runs) - 1; last >= 0 {
			covered = p.Runs[last].End()
		}
		if covered != c.From {
			panic(fmt.Sprintf("claims: a change of %d messages at offset %d overlaps another or leaves a hole; floor %d, next %d", c.N, c.From, p.Floor, p.Next))
		}
		p.Runs, changed = join(p.Runs, c), c.End()
		for len(old) > 0 && old[0].End() <= changed {
			old = old[1:]
		}
	}
	for _, r := range old {
		p.Runs = join(p.Runs, r.since(changed))
	}
	p.Next = max(p.Next, changes[len(changes)-1].End())
	p.raiseFloor()
}

// raiseFloor drops the runs at the front that are done.
func (p *Part) raiseFloor() {
	n := 0
	for n < len(p.Runs) && p.Runs[n].Fate == Done {
		n++
	}
	if p.Runs = p.Runs[n:]; len(p.Runs) > 0 {
		p.Floor = p.Runs[0].From
	} else {
		p.Floor = p.Next
	}
}

// Reach extends the runs up to end, with messages that nobody has claimed.
func (p *Part) Reach(end eventlog.Offset) {
	if p.Next < end {
		p.Set(Run{From: p.Next, N: int64(end - p.Next), Fate: Waiting})
	}
}

// Trimmed raises the floor to first, the log's start: messages below it were deleted, whatever
// their fate was.
func (p *Part) Trimmed(first eventlog.Offset) {
	if first <= p.Floor {
		return
	}
	if first >= p.Next {
		p.Floor, p.Next, p.Runs = first, first, nil
		return
	}
	p.Runs = slices.Clone(p.Runs[p.search(first):])
	p.Runs[0] = p.Runs[0].since(first)
	p.raiseFloor()
}

// Edit collects changes of single messages, so that all of them cost one pass over the runs.
type Edit struct {
	Part    *Part
	All     *State // what ClaimsBeside counts; may be nil if that is not called
	changes map[eventlog.Offset]Run
}

// ClaimsBeside counts the claims whose leases have not ended, in all partitions, without the claim
// of the message at o.
func (e *Edit) ClaimsBeside(o eventlog.Offset, now Time) (n int) {
	live := func(r Run) bool { return r.Fate == Claimed && r.Until > now }
	for i := range e.All.Parts {
		for _, r := range e.All.Parts[i].Runs {
			if live(r) {
				n += int(r.N)
			}
		}
	}
	for changed, r := range e.changes {
		if was, there := e.Part.At(changed); there && live(was) {
			n--
		}
		if live(r) {
			n++
		}
	}
	if r, there := e.At(o); there && live(r) {
		n--
	}
	return n
}

// At is Part.At with the changes so far.
func (e *Edit) At(o eventlog.Offset) (Run, bool) {
	if r, changed := e.changes[o]; changed {
		return r, true
	}
	return e.Part.At(o)
}

// Put changes the fate of a message within [floor, next).
func (e *Edit) Put(o eventlog.Offset, r Run) {
	if e.changes == nil {
		e.changes = make(map[eventlog.Offset]Run)
	}
	r.From, r.N = o, 1
	e.changes[o] = r
}

// Len counts the messages that change.
func (e *Edit) Len() int { return len(e.changes) }

// Apply makes the changes, and reports whether there were any.
func (e *Edit) Apply() bool {
	e.Part.Set(slices.SortedFunc(maps.Values(e.changes), func(a, b Run) int { return cmp.Compare(a.From, b.From) })...)
	return len(e.changes) > 0
}

// ErrStale is what a *StaleError is: a receipt whose claim is over.
var ErrStale = errors.New("stale receipt")

// StaleError says why a receipt changes nothing.
type StaleError struct {
	Why  string
	Done bool // the message is done: a caller that repeats its ack may take this error for success
}

func (e *StaleError) Error() string { return fmt.Sprintf("%v: %s", ErrStale, e.Why) }
func (e *StaleError) Unwrap() error { return ErrStale }

// Held finds the claim that a receipt belongs to.
func (p *Part) Held(g Grant) (Run, error) {
	return (&Edit{Part: p}).Held(g)
}

// Held is Part.Held with the changes so far.
func (e *Edit) Held(g Grant) (Run, error) {
	r, there := e.At(g.Offset)
	switch {
	case !there && g.Offset >= e.Part.Next:
		return Run{}, &StaleError{Why: "the message was never claimed"}
	case !there || r.Fate == Done:
		return Run{}, &StaleError{Why: "the message is done", Done: true}
	case r.Fate == Waiting:
		return Run{}, &StaleError{Why: "the message was given back and waits for its next attempt"}
	case r.Attempt != g.Attempt || r.Nonce != g.Nonce:
		return Run{}, &StaleError{Why: "its lease ended, and the message was claimed again"}
	}
	return r, nil
}

// Resolve gives the message of a receipt another fate.
func (p *Part) Resolve(g Grant, to Run) {
	to.From, to.N = g.Offset, 1
	p.Set(to)
}

// State is the value of a key: what became of the messages of its partitions. Whoever made a State
// or a Clone of one may change it, as long as it is not shared.
type State struct {
	// Writer is the process that wrote it, and a number that is new with each write. It shows
	// whether a change whose answer was lost was committed.
	Writer string
	// After is the id of an earlier owner, or "": what the earlier owner's state has from the
	// floors on counts, too. A purge of a queue writes After; the next change drops it.
	After string
	Parts []Part // by partition
	// With Limits.Rate: tokens is how many claims the rate allowed at tokensAt. The number grows
	// by the rate, up to one second's claims, or to 1 if that is more.
	tokens   float64
	tokensAt Time
}

// Count counts the runs.
func (s *State) Count() (runs int64) {
	for i := range s.Parts {
		runs += int64(len(s.Parts[i].Runs))
	}
	return runs
}

// Reached returns the sum of all partitions' Next. It grows when the state of one reaches further.
func (s *State) Reached() (sum eventlog.Offset) {
	for i := range s.Parts {
		sum += s.Parts[i].Next
	}
	return sum
}

// Clone returns a copy. It does not copy the runs: those are never changed.
func (s *State) Clone() *State {
	c := *s
	c.Parts = slices.Clone(s.Parts)
	return &c
}

// Find finds the state of a partition. The caller must not change it.
func (s *State) Find(p eventlog.Partition) (*Part, bool) {
	i, there := slices.BinarySearchFunc(s.Parts, p, func(has Part, want eventlog.Partition) int { return cmp.Compare(has.Partition, want) })
	if !there {
		return nil, false
	}
	return &s.Parts[i], true
}

// Next returns the offset up to which messages of a partition were claimed or skipped.
func (s *State) Next(p eventlog.Partition) eventlog.Offset {
	if mine, there := s.Find(p); there {
		return mine.Next
	}
	return 0
}

// Part finds the state of a partition, or adds an empty one.
func (s *State) Part(p eventlog.Partition) *Part {
	i, there := slices.BinarySearchFunc(s.Parts, p, func(has Part, want eventlog.Partition) int { return cmp.Compare(has.Partition, want) })
	if !there {
		s.Parts = slices.Insert(s.Parts, i, Part{Partition: p})
	}
	return &s.Parts[i]
}

// Within returns a copy of the state of b's partition, without the messages below b.First.
func (s *State) Within(b eventlog.Bounds) *Part {
	mine := &Part{Partition: b.Partition}
	if known, there := s.Find(b.Partition); there {
		*mine = *known
	}
	mine.Trimmed(b.First)
	return mine
}

// Left counts the unfinished messages of a partition that ends at next.
func (p *Part) Left(next eventlog.Offset) int64 {
	return p.unresolved() + int64(max(next-p.Next, 0))
}
