package queue

import (
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// wish is what a claim asks of a state.
type wish struct {
	most    int  // how many messages are handed out
	sweep   int  // how many are claimed, at least, if any may be handed out: see Claim.sweep
	now     Time // not later than the store's clock
	until   Time // when the leases end
	nonce   uint32
	worker  string
	repeats bool               // it may have been granted before: what it got then comes first
	own     map[MessageID]bool // but not these, which the caller has
}

// limits are the settings that bound what is claimed.
type limits struct {
	paused      bool    // nothing is
	attempts    int32   // of a message, including leases that ended without an answer; 0: any number
	window      int64   // of a partition: how many messages may be started; those that are may be claimed again
	concurrency int     // messages claimed at a time; 0: any number
	rate        float64 // claims per second; 0: any number
}

// candidates are the messages of a partition that a claim may get.
type candidates struct {
	partition  eventlog.Partition
	first, end eventlog.Offset // of the log
	limits     limits
	order      func(p *part, end eventlog.Offset) (o *order, known eventlog.Offset) // keys.order; nil: none
}

// taken is what a wish got.
type taken struct {
	granted []grant
	allowed int     // how many of granted may be handed out
	found   bool    // an earlier try got granted
	spent   []grant // had their last attempt, and its lease ended: they must become dead letters
}

// take grants a wish: it returns the state after that. s stays as it is. changed: the new state is
// to be put, even if nothing was granted.
func (s *state) take(from candidates, w wish) (next *state, got taken, changed bool) {
	next = s.clone()
	p := next.part(from.partition)
	p.trimmed(from.first)
	got.allowed = w.most
	if w.repeats {
		if *p, got.granted = p.repeat(w); len(got.granted) > 0 {
			got.found = true
			return next, got, true
		}
	}
	if from.limits.paused {
		return next, got, false
	}
	got.allowed = next.allowance(w.most, from.limits, w.now)
	c := claim{wish: w, attempts: from.limits.attempts, window: from.limits.window, end: from.end}
	if c.most = got.allowed; got.allowed > 0 {
		c.most = max(got.allowed, w.sweep)
	}
	if from.order != nil {
		c.order, c.end = from.order(p, c.end)
	}
	before := p.next
	*p, got.granted, got.spent = p.claim(c)
	next.spend(min(len(got.granted), got.allowed), from.limits)
	return next, got, len(got.granted) > 0 || p.next > before
}

// prospect is what a state says of a wish without granting it.
type prospect struct {
	free       bool          // a message may be granted
	unresolved bool          // some may be given back
	wait       time.Duration // until a lease or a wait ends; at most a minute
}

func (s *state) prospect(from candidates, w wish) prospect {
	p, there := s.find(from.partition)
	if !there {
		return prospect{free: from.end > from.first, wait: time.Minute}
	}
	return prospect{
		free:       p.free(w.now, from.end, from.limits.window) || w.repeats && len(p.earlier(w)) > 0,
		unresolved: len(p.runs) > 0,
		wait:       p.untilFree(w.now),
	}
}

// claim is a wish as one partition grants it.
type claim struct {
	wish
	attempts int32 // as in limits
	window   int64
	end      eventlog.Offset
	order    *order // nil: none
}

// claim gives a worker the oldest free messages: first those that came back, then new ones below
// c.end.
//
// It passes over the runs twice at most. If there is an order, it also passes over the messages
// once.
func (p part) claim(c claim) (next part, granted, spent []grant) {
	var changes []run
	give := func(o eventlog.Offset, attempt int32, reason string, first bool) {
		changes = joinAt(changes, run{
			from: o, n: 1, fate: claimed, attempt: attempt, until: c.until, nonce: c.nonce, worker: c.worker, reason: reason,
		})
		granted = append(granted, grant{p.partition, o, attempt, c.nonce, c.until, first})
	}
	room := c.window - p.started() // how many messages may be started
	for _, r := range p.runs {
		if len(granted) >= c.most {
			break
		}
		free := r.fate != done && r.until <= c.now
		if free && r.fate == claimed && c.attempts > 0 && r.attempt >= c.attempts {
			spent, free = p.grants(spent, r), false
		}
		if !free && c.order == nil {
			continue
		}
		reason := r.reason
		if r.fate == claimed {
			reason = "" // its lease ended
		}
		for o := r.from; o < r.end() && len(granted) < c.most; o++ {
			next := c.order.first(o, r.fate == done)
			if !next || !free || !r.started() && room <= 0 {
				continue
			}
			give(o, r.attempt+1, reason, r.untouched())
			if !r.started() {
				room--
			}
		}
	}
	for o := p.next; o < c.end && room > 0 && len(granted) < c.most; o++ {
		if c.order.first(o, false) {
			give(o, 1, "", true)
			room--
		} else {
			changes = joinAt(changes, run{from: o, n: 1, fate: waiting})
		}
	}
	p.set(changes...)
	return p, granted, spent
}

// repeat grants what earlier tries of the wish got. It makes the leases end 1 ms later: an earlier
// try that still runs, although its caller has gone, sees that and does not give these messages
// back.
func (p part) repeat(w wish) (next part, got []grant) {
	got = p.earlier(w)
	got = got[:min(len(got), w.most)]
	e := edit{p: &p}
	for i, g := range got {
		r, _ := p.at(g.offset)
		r.until++
		got[i].until = r.until
		e.put(g.offset, r)
	}
	e.apply()
	return p, got
}

// earlier lists the messages that earlier tries of the wish got, and that its worker still has. The
// nonce depends on the worker's name, which a state may have omitted.
func (p *part) earlier(w wish) (got []grant) {
	for _, r := range p.runs {
		if r.fate == claimed && r.until > w.now && r.nonce == w.nonce && (r.worker == w.worker || r.worker == textOmitted) {
			got = p.grants(got, r)
		}
	}
	return slices.DeleteFunc(got, func(g grant) bool {
		_, mine := w.own[MessageID{g.partition, g.offset}]
		return mine
	})
}

func (p *part) grants(to []grant, r run) []grant {
	for o := r.from; o < r.end(); o++ {
		to = append(to, grant{p.partition, o, r.attempt, r.nonce, r.until, false})
	}
	return to
}

// free reports whether a message can be claimed now, according to this state.
func (p *part) free(now Time, end eventlog.Offset, window int64) bool {
	room := p.started() < window
	if p.next < end && room {
		return true
	}
	return slices.ContainsFunc(p.runs, func(r run) bool {
		return r.fate != done && r.until <= now && (room || r.started())
	})
}

// untilFree returns the time from now until nextFree; at most a minute.
func (p *part) untilFree(now Time) time.Duration {
	if t := p.nextFree(now); t > 0 && t-now < Time(time.Minute.Milliseconds()) {
		return max(time.Duration(t-now)*time.Millisecond, time.Millisecond)
	}
	return time.Minute
}

// nextFree returns the earliest time after now at which a lease or a wait ends, so that a message
// may become free. 0: there is none.
func (p *part) nextFree(now Time) (t Time) {
	for _, r := range p.runs {
		if r.fate != done && r.until > now && (t == 0 || r.until < t) {
			t = r.until
		}
	}
	return t
}

// clockBack, in milliseconds, is more than two processes' readings of the store's clock can differ.
// A larger step back means that the clock was set back.
const clockBack = Time(5000)

// allowance returns how many claims the limits allow now, but not more than most.
func (s *state) allowance(most int, l limits, now Time) int {
	if l.concurrency > 0 {
		left := l.concurrency
		for i := range s.parts {
			for _, r := range s.parts[i].runs {
				if r.fate == claimed && r.until > now {
					left -= int(r.n)
				}
			}
		}
		most = min(most, max(left, 0))
	}
	if l.rate > 0 {
		burst := max(l.rate, 1)
		if s.tokensAt == 0 {
			s.tokens, s.tokensAt = burst, now
		}
		switch {
		case now > s.tokensAt:
			s.tokens = min(burst, s.tokens+l.rate*float64(now-s.tokensAt)/1000)
			s.tokensAt = now
		case now < s.tokensAt-clockBack: // the store's clock was set back: start again with a full burst
			s.tokens, s.tokensAt = burst, now
		}
		most = min(most, int(s.tokens))
	}
	return most
}

// spend subtracts the claims that were given out from the tokens.
func (s *state) spend(claims int, l limits) {
	if l.rate > 0 {
		s.tokens -= float64(claims)
	}
}
