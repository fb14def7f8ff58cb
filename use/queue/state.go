package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// Time is a moment by the store's clock, in milliseconds since the Unix epoch.
type Time int64

// fate is the state of a message.
type fate byte

const (
	done    fate = 'd' // acknowledged, or given up: it never comes back
	claimed fate = 'c' // a worker has it until its lease ends
	waiting fate = 'w' // it was claimed before, and may be claimed again once its time has come
)

// run is neighbouring messages that share a fate.
type run struct {
	n       int64 // how many
	fate    fate
	attempt int32  // claimed: which attempt this is, from 1. waiting: how many there were
	until   Time   // claimed: when the lease ends. waiting: not to be claimed before
	nonce   uint32 // claimed: what the receipts carry
	worker  string // claimed: by whom
	reason  string // waiting: why the last attempt failed
}

// like reports whether two runs can be one.
func (r run) like(o run) bool {
	r.n, o.n = 0, 0
	return r == o
}

// part is the state of the messages of one partition.
//
//	floor ≤ next, and the runs cover [floor, next) without a hole; the first is not done
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
}

func (p *part) clone() part {
	c := *p
	c.runs = slices.Clone(p.runs)
	return c
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

// started counts the messages that were claimed at least once and are not done. Others between floor and next were passed because an older
// message has their key.
func (p *part) started() (n int64) {
	for _, r := range p.runs {
		if r.fate == claimed || r.fate == waiting && r.attempt > 0 {
			n += r.n
		}
	}
	return n
}

// at finds the run that holds an offset; false below floor and from next on.
func (p *part) at(o eventlog.Offset) (run, bool) {
	if o < p.floor || o >= p.next {
		return run{}, false
	}
	at := p.floor
	for _, r := range p.runs {
		if at += eventlog.Offset(r.n); o < at {
			return r, true
		}
	}
	panic("queue: the runs of a partition do not reach its next offset")
}

// set changes the fate of r.n messages from an offset on. They are within [floor, next).
func (p *part) set(from eventlog.Offset, r run) {
	first := p.split(from)
	last := p.split(from + eventlog.Offset(r.n))
	p.runs = slices.Replace(p.runs, first, last, r)
}

// split makes a run begin at an offset, and returns its index.
func (p *part) split(o eventlog.Offset) int {
	at := p.floor
	for i, r := range p.runs {
		if at == o {
			return i
		}
		if end := at + eventlog.Offset(r.n); o < end {
			left, right := r, r
			left.n, right.n = int64(o-at), int64(end-o)
			p.runs = slices.Replace(p.runs, i, i+1, left, right)
			return i + 1
		}
		at += eventlog.Offset(r.n)
	}
	return len(p.runs)
}

// tidy joins runs that can be one, and raises the floor past what is done.
func (p *part) tidy() {
	kept := p.runs[:0]
	for _, r := range p.runs {
		switch last := len(kept) - 1; {
		case r.n == 0:
		case last < 0 && r.fate == done:
			p.floor += eventlog.Offset(r.n)
		case last >= 0 && kept[last].like(r):
			kept[last].n += r.n
		default:
			kept = append(kept, r)
		}
	}
	clear(p.runs[len(kept):])
	p.runs = kept
}

// trimmed raises the floor to first, the log's start: what is below is deleted, whatever its fate was.
func (p *part) trimmed(first eventlog.Offset) {
	if first <= p.floor {
		return
	}
	if first >= p.next {
		p.floor, p.next, p.runs = first, first, nil
		return
	}
	p.runs = p.runs[p.split(first):]
	p.floor = first
	p.tidy()
}

// claim is what a worker asks for.
type claim struct {
	most        int
	now         Time // not later than the store's clock
	until       Time // when the leases end
	nonce       uint32
	worker      string
	attemptsMax int32 // a claim that ended without an answer counts as a failed attempt; 0: no limit
	window      int64 // most messages above the floor that are not done
	end         eventlog.Offset
	allowed     func(eventlog.Offset) bool // nil: all
}

// claim gives a worker the oldest free messages: first those that came back, then new ones below c.end. The leases of the messages
// in spent ended after their last attempt: they must become dead letters.
func (p *part) claim(c claim) (granted []grant, spent []grant) {
	at := p.floor
	for i := 0; c.most > 0 && i < len(p.runs) && len(granted) < c.most; i++ {
		r := p.runs[i]
		start := at
		at += eventlog.Offset(r.n)
		if r.fate == done || r.until > c.now {
			continue
		}
		if r.fate == claimed && c.attemptsMax > 0 && r.attempt >= c.attemptsMax {
			for k := range r.n {
				spent = append(spent, grant{p.partition, start + eventlog.Offset(k), r.attempt, r.nonce, r.until})
			}
			continue
		}
		n := min(r.n, int64(c.most-len(granted)))
		n, skip := c.allows(start, n)
		if skip > 0 { // split off what must wait, and come back for the rest
			p.split(start + eventlog.Offset(skip))
			at = start + eventlog.Offset(skip)
			continue
		}
		next := run{n: n, fate: claimed, attempt: r.attempt + 1, until: c.until, nonce: c.nonce, worker: c.worker}
		p.set(start, next)
		at = start + eventlog.Offset(n)
		granted = p.grants(granted, start, next)
	}
	room := c.window - p.started()
	for room > 0 && len(granted) < c.most && p.next < c.end {
		n := min(int64(c.end-p.next), int64(c.most-len(granted)), room)
		n, skip := c.allows(p.next, n)
		next := run{n: n, fate: claimed, attempt: 1, until: c.until, nonce: c.nonce, worker: c.worker}
		if skip > 0 {
			next = run{n: skip, fate: waiting}
		} else {
			granted = p.grants(granted, p.next, next)
		}
		p.runs = append(p.runs, next)
		p.next += eventlog.Offset(next.n)
		if skip == 0 {
			room -= next.n
		}
	}
	p.tidy()
	return granted, spent
}

// allows cuts n messages from an offset on down to those in front that may be claimed, or says how many in front may not.
func (c *claim) allows(from eventlog.Offset, n int64) (allowed, skip int64) {
	if c.allowed == nil {
		return n, 0
	}
	for allowed < n && c.allowed(from+eventlog.Offset(allowed)) {
		allowed++
	}
	if allowed > 0 {
		return allowed, 0
	}
	for skip < n && !c.allowed(from+eventlog.Offset(skip)) {
		skip++
	}
	return 0, skip
}

func (p *part) grants(to []grant, from eventlog.Offset, r run) []grant {
	for k := range r.n {
		to = append(to, grant{p.partition, from + eventlog.Offset(k), r.attempt, r.nonce, r.until})
	}
	return to
}

// held finds the claim that a receipt belongs to.
func (p *part) held(g grant) (run, error) {
	r, there := p.at(g.offset)
	switch {
	case !there && g.offset >= p.next:
		return run{}, &StaleReceiptError{Why: "the message was never claimed"}
	case !there || r.fate == done:
		return run{}, &StaleReceiptError{Why: "the message is done", Done: true}
	case r.fate == waiting:
		return run{}, &StaleReceiptError{Why: "the message was given back and waits for its next attempt"}
	case r.attempt != g.attempt || r.nonce != g.nonce:
		return run{}, &StaleReceiptError{Why: "its lease ended, and the message was claimed again"}
	}
	r.n = 1
	return r, nil
}

// resolve gives the message of a receipt another fate.
func (p *part) resolve(g grant, to run) {
	to.n = 1
	p.set(g.offset, to)
	p.tidy()
}

// nextFree is when a message of the partition may become free that is not now: the earliest end of a lease or a wait after now. 0: none.
func (p *part) nextFree(now Time) (t Time) {
	for _, r := range p.runs {
		if r.fate != done && r.until > now && (t == 0 || r.until < t) {
			t = r.until
		}
	}
	return t
}

// untilFree is how long it is until nextFree; at most a minute.
func (p *part) untilFree(now Time) time.Duration {
	if t := p.nextFree(now); t > 0 && t-now < Time(time.Minute.Milliseconds()) {
		return max(time.Duration(t-now)*time.Millisecond, time.Millisecond)
	}
	return time.Minute
}

// free reports whether a message can be claimed now, as far as this state tells.
func (p *part) free(now Time, end eventlog.Offset, window int64) bool {
	if p.next < end && p.started() < window {
		return true
	}
	return slices.ContainsFunc(p.runs, func(r run) bool { return r.fate != done && r.until <= now })
}

// state is the keyed value that decides over the partitions of a shard.
type state struct {
	writer string // who wrote it, and a number of its own: a lost answer is found again by it
	parts  []part // by partition
	// Of a queue with a rate: how many claims it may give out at once, at a moment. They grow with time, up to those of one second.
	tokens   float64
	tokensAt Time
}

// allowance is how many of so many claims the queue's limits allow now.
func (s *state) allowance(most int, settings Settings, now Time) int {
	if settings.Concurrency > 0 {
		for i := range s.parts {
			for _, r := range s.parts[i].runs {
				if r.fate == claimed && r.until > now {
					settings.Concurrency -= int(r.n)
				}
			}
		}
		most = min(most, max(settings.Concurrency, 0))
	}
	if settings.Rate > 0 {
		burst := max(settings.Rate, 1)
		if s.tokensAt == 0 {
			s.tokens, s.tokensAt = burst, now
		}
		if now > s.tokensAt {
			s.tokens = min(burst, s.tokens+settings.Rate*float64(now-s.tokensAt)/1000)
			s.tokensAt = now
		}
		most = min(most, int(s.tokens))
	}
	return most
}

// spend takes claims that were given out from those that the rate allows.
func (s *state) spend(claims int, settings Settings) {
	if settings.Rate > 0 {
		s.tokens -= float64(claims)
	}
}

func (s *state) clone() *state {
	c := &state{writer: s.writer, tokens: s.tokens, tokensAt: s.tokensAt, parts: make([]part, len(s.parts))}
	for i := range s.parts {
		c.parts[i] = s.parts[i].clone()
	}
	return c
}

// find finds the state of a partition. The caller must not change it.
func (s *state) find(p eventlog.Partition) (*part, bool) {
	i, there := slices.BinarySearchFunc(s.parts, p, func(has part, want eventlog.Partition) int { return cmp.Compare(has.partition, want) })
	if !there {
		return nil, false
	}
	return &s.parts[i], true
}

// part finds the state of a partition, or adds an empty one.
func (s *state) part(p eventlog.Partition) *part {
	i, there := slices.BinarySearchFunc(s.parts, p, func(has part, want eventlog.Partition) int { return cmp.Compare(has.partition, want) })
	if !there {
		s.parts = slices.Insert(s.parts, i, part{partition: p})
	}
	return &s.parts[i]
}
