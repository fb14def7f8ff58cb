package queue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/weir-log/weir/eventlog"
)

// Time is a moment by the store's clock, in milliseconds since the Unix epoch.
type Time int64

// fate is the state of a message.
type fate byte

const (
	done    fate = 'd' // acknowledged, or given up: it never comes back
	claimed fate = 'c' // a worker has it until its lease ends
	waiting fate = 'w' // it is not claimed now, and perhaps never was; it may be claimed from run.until on
)

// run is a range of neighbouring messages that share a fate.
type run struct {
	from    eventlog.Offset // the first
	n       int64           // how many
	fate    fate
	attempt int32  // claimed: which attempt this is, from 1. waiting: how many attempts there were
	until   Time   // claimed: when the lease ends. waiting: when it may be claimed
	nonce   uint32 // claimed: the nonce in the receipts
	worker  string // claimed: by whom
	reason  string // why the last attempt failed; "" if its lease ended without an answer
}

// end returns the offset after the last message.
func (r run) end() eventlog.Offset { return r.from + eventlog.Offset(r.n) }

// like reports whether two runs are the same except for their offsets, so that they can be one.
func (r run) like(o run) bool {
	r.from, r.n = o.from, o.n
	return r == o
}

// since returns what a run has from an offset on, which is before its end.
func (r run) since(o eventlog.Offset) run {
	if r.from < o {
		r.from, r.n = o, int64(r.end()-o)
	}
	return r
}

// join appends a run that begins where the last one ends. Two runs that are alike become one.
func join(runs []run, r run) []run {
	if last := len(runs) - 1; last >= 0 && runs[last].like(r) {
		runs[last].n += r.n
		return runs
	}
	return append(runs, r)
}

// joinAt is join for a run that may begin after a gap.
func joinAt(runs []run, r run) []run {
	if last := len(runs) - 1; last >= 0 && runs[last].end() != r.from {
		return append(runs, r)
	}
	return join(runs, r)
}

// part is the state of the messages of one partition. A copy of it is a part of its own: runs are
// never changed, only replaced.
//
//	floor ≤ next, and the runs cover [floor, next) without a hole; the first run is not done
type part struct {
	partition   eventlog.Partition
	floor, next eventlog.Offset
	runs        []run
}

// grant is one message that was claimed.
type grant struct {
	partition eventlog.Partition
	offset    eventlog.Offset
	attempt   int32
	nonce     uint32
	until     Time
	// first: no worker had the message before. Only a claim itself knows that; a receipt does not
	// tell it.
	first bool
}

// unresolved counts the messages between floor and next that are not done.
func (p *part) unresolved() (n int64) {
	for _, r := range p.runs {
		if r.fate != done {
			n += r.n
		}
	}
	return n
}

// givenBack is the end of the wait of a message that some worker had, whose attempt does not count,
// and that may be claimed immediately.
const givenBack Time = 1

// untouched reports whether no worker ever had the messages: they were only skipped. An attempt of
// 0 does not tell that: an attempt that does not count (Nack.Uncounted, GiveBack) leaves that, too,
// but with the end of a wait.
func (r run) untouched() bool { return r.fate == waiting && r.attempt == 0 && r.until == 0 }

// started reports whether the messages are claimed, or wait after at least one attempt that
// counted. The other unfinished messages below next have no attempt: they were skipped because an
// older message with the same key was not done, or given back.
func (r run) started() bool { return r.fate == claimed || r.fate == waiting && r.attempt > 0 }

// started counts the messages that are started.
func (p *part) started() (n int64) {
	for _, r := range p.runs {
		if r.started() {
			n += r.n
		}
	}
	return n
}

// search returns the index of the run that holds an offset: 0 below floor, len(p.runs) from next
// on.
func (p *part) search(o eventlog.Offset) int {
	return sort.Search(len(p.runs), func(i int) bool { return o < p.runs[i].end() })
}

// at finds the run that holds an offset; false below floor and from next on.
func (p *part) at(o eventlog.Offset) (run, bool) {
	if o < p.floor || o >= p.next {
		return run{}, false
	}
	return p.runs[p.search(o)], true
}

// set changes the fates of messages at or above floor. The changes are in order and do not overlap;
// those past next begin at next, without gaps. However many changes there are, set passes over the
// runs once.
func (p *part) set(changes ...run) {
	if len(changes) == 0 {
		return
	}
	first := p.search(changes[0].from)
	old := p.runs[first:]
	p.runs = append(make([]run, 0, len(p.runs)+2*len(changes)), p.runs[:first]...)
	changed := p.floor // old counts from here on
	for _, c := range changes {
		for len(old) > 0 && old[0].end() <= c.from {
			p.runs, old = join(p.runs, old[0].since(changed)), old[1:]
		}
		if len(old) > 0 && old[0].since(changed).from < c.from {
			left := old[0].since(changed)
			left.n = int64(c.from - left.from)
			p.runs = join(p.runs, left)
		}
		covered := p.floor
		if last := len(p.runs) - 1; last >= 0 {
			covered = p.runs[last].end()
		}
		if covered != c.from {
			panic(fmt.Sprintf("queue: a change of %d messages at offset %d overlaps another or leaves a hole; floor %d, next %d", c.n, c.from, p.floor, p.next))
		}
		p.runs, changed = join(p.runs, c), c.end()
		for len(old) > 0 && old[0].end() <= changed {
			old = old[1:]
		}
	}
	for _, r := range old {
		p.runs = join(p.runs, r.since(changed))
	}
	p.next = max(p.next, changes[len(changes)-1].end())
	p.raiseFloor()
}

// raiseFloor drops the runs at the front that are done.
func (p *part) raiseFloor() {
	n := 0
	for n < len(p.runs) && p.runs[n].fate == done {
		n++
	}
	if p.runs = p.runs[n:]; len(p.runs) > 0 {
		p.floor = p.runs[0].from
	} else {
		p.floor = p.next
	}
}

// reach extends the runs up to end, with messages that nobody has claimed.
func (p *part) reach(end eventlog.Offset) {
	if p.next < end {
		p.set(run{from: p.next, n: int64(end - p.next), fate: waiting})
	}
}

// trimmed raises the floor to first, the log's start: messages below it were deleted, whatever
// their fate was.
func (p *part) trimmed(first eventlog.Offset) {
	if first <= p.floor {
		return
	}
	if first >= p.next {
		p.floor, p.next, p.runs = first, first, nil
		return
	}
	p.runs = slices.Clone(p.runs[p.search(first):])
	p.runs[0] = p.runs[0].since(first)
	p.raiseFloor()
}

// edit collects changes of single messages, so that all of them cost one pass over the runs.
type edit struct {
	p       *part
	all     *state // nil: claimsBeside is not called
	changes map[eventlog.Offset]run
}

// claimsBeside counts the claims of all partitions, but that of a message, whose leases have not
// ended.
func (e *edit) claimsBeside(o eventlog.Offset, now Time) (n int) {
	live := func(r run) bool { return r.fate == claimed && r.until > now }
	for i := range e.all.parts {
		for _, r := range e.all.parts[i].runs {
			if live(r) {
				n += int(r.n)
			}
		}
	}
	for changed, r := range e.changes {
		if was, there := e.p.at(changed); there && live(was) {
			n--
		}
		if live(r) {
			n++
		}
	}
	if r, there := e.at(o); there && live(r) {
		n--
	}
	return n
}

// at is part.at with the changes so far.
func (e *edit) at(o eventlog.Offset) (run, bool) {
	if r, changed := e.changes[o]; changed {
		return r, true
	}
	return e.p.at(o)
}

// put changes the fate of a message within [floor, next).
func (e *edit) put(o eventlog.Offset, r run) {
	if e.changes == nil {
		e.changes = make(map[eventlog.Offset]run)
	}
	r.from, r.n = o, 1
	e.changes[o] = r
}

// apply makes the changes, and reports whether there were any.
func (e *edit) apply() bool {
	e.p.set(slices.SortedFunc(maps.Values(e.changes), func(a, b run) int { return cmp.Compare(a.from, b.from) })...)
	return len(e.changes) > 0
}

// held finds the claim that a receipt belongs to.
func (p *part) held(g grant) (run, error) {
	return (&edit{p: p}).held(g)
}

// held is part.held with the changes so far.
func (e *edit) held(g grant) (run, error) {
	r, there := e.at(g.offset)
	switch {
	case !there && g.offset >= e.p.next:
		return run{}, &StaleReceiptError{Why: "the message was never claimed"}
	case !there || r.fate == done:
		return run{}, &StaleReceiptError{Why: "the message is done", Done: true}
	case r.fate == waiting:
		return run{}, &StaleReceiptError{Why: "the message was given back and waits for its next attempt"}
	case r.attempt != g.attempt || r.nonce != g.nonce:
		return run{}, &StaleReceiptError{Why: "its lease ended, and the message was claimed again"}
	}
	return r, nil
}

// resolve gives the message of a receipt another fate.
func (p *part) resolve(g grant, to run) {
	to.from, to.n = g.offset, 1
	p.set(to)
}

// state is the value of a shard's key: what became of the messages of its partitions.
type state struct {
	writer string // the process that wrote it, and a number that is new with each write: it shows whether a lost change was committed
	after  string // a purge wrote it: what the state of this earlier id has from the floors on counts, too (addEarlier). The next change drops it
	parts  []part // by partition
	// For a queue with a rate: tokens is how many claims it could give out at tokensAt. It grows by
	// the rate, up to one second's claims, or to 1 if that is more.
	tokens   float64
	tokensAt Time
}

// count counts the runs.
func (s *state) count() (runs int64) {
	for i := range s.parts {
		runs += int64(len(s.parts[i].runs))
	}
	return runs
}

func (s *state) clone() *state {
	c := *s
	c.parts = slices.Clone(s.parts)
	return &c
}

// find finds the state of a partition. The caller must not change it.
func (s *state) find(p eventlog.Partition) (*part, bool) {
	i, there := slices.BinarySearchFunc(s.parts, p, func(has part, want eventlog.Partition) int { return cmp.Compare(has.partition, want) })
	if !there {
		return nil, false
	}
	return &s.parts[i], true
}

// next returns the offset up to which messages of a partition were claimed or skipped.
func (s *state) next(p eventlog.Partition) eventlog.Offset {
	if mine, there := s.find(p); there {
		return mine.next
	}
	return 0
}

// part finds the state of a partition, or adds an empty one.
func (s *state) part(p eventlog.Partition) *part {
	i, there := slices.BinarySearchFunc(s.parts, p, func(has part, want eventlog.Partition) int { return cmp.Compare(has.partition, want) })
	if !there {
		s.parts = slices.Insert(s.parts, i, part{partition: p})
	}
	return &s.parts[i]
}
