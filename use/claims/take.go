package claims

import (
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// Wish is what a claim asks of a state.
type Wish struct {
	Most    int  // how many messages may be handed out
	Sweep   int  // claim at least so many messages, if any may be claimed: many of them are expected to be ones that must not be handed out
	Now     Time // not later than the store's clock
	Until   Time // when the leases end
	Nonce   uint32
	Worker  string
	Repeats bool               // the wish may have been granted before: it gets the messages that it got then, if they are still claimed
	Has     func(g Grant) bool // the caller has that message already; nil: it has none
}

// Limits are the settings that bound what is claimed.
type Limits struct {
	Paused      bool    // nothing is claimed
	Attempts    int32   // how many attempts a message has, including leases that ended without an answer; 0: any number
	Window      int64   // how many messages of a partition may be started; a started message may be claimed again
	Concurrency int     // messages claimed at a time; 0: any number
	Rate        float64 // claims per second; 0: any number
}

// Candidates are the messages of a partition that a claim may get.
type Candidates struct {
	Partition  eventlog.Partition
	First, End eventlog.Offset // the partition's bounds in the log
	Limits     Limits
	// InOrder returns the order in which the part's messages are claimed, and the offset from where
	// on it is not known: messages from there on cannot be claimed yet. nil: by their offsets.
	InOrder func(p *Part, end eventlog.Offset) (o Order, known eventlog.Offset)
}

// Order reports whether a message is next in its order: of the messages that have an order with it,
// such as those with its key, it is the first that is not done. It is asked for each message, done
// or not, one after the other from the floor on. nil: there is no order, so each message that is
// not done is next.
type Order func(at eventlog.Offset, done bool) bool

// First calls the function, or answers for nil.
func (is Order) First(at eventlog.Offset, done bool) bool {
	if is == nil {
		return !done
	}
	return is(at, done)
}

// Taken is what a wish got.
type Taken struct {
	Granted []Grant
	Allowed int     // how many of Granted may be handed out
	Found   bool    // an earlier try of the wish got Granted
	Spent   []Grant // messages that had their last attempt, and whose lease ended: they must become dead letters
}

// Take grants a wish: it returns the state after that. s stays as it is. changed: the new state is
// to be put, even if nothing was granted.
func (s *State) Take(from Candidates, w Wish) (next *State, got Taken, changed bool) {
	next = s.Clone()
	p := next.Part(from.Partition)
	p.Trimmed(from.First)
	got.Allowed = w.Most
	if w.Repeats {
		if *p, got.Granted = p.Repeat(w); len(got.Granted) > 0 {
			got.Found = true
			return next, got, true
		}
	}
	if from.Limits.Paused {
		return next, got, false
	}
	got.Allowed = next.allowance(w.Most, from.Limits, w.Now)
	c := claim{Wish: w, attempts: from.Limits.Attempts, window: from.Limits.Window, end: from.End}
	if c.Most = got.Allowed; got.Allowed > 0 {
		c.Most = max(got.Allowed, w.Sweep)
	}
	if from.InOrder != nil {
		c.order, c.end = from.InOrder(p, c.end)
	}
	before := p.Next
	*p, got.Granted, got.Spent = p.claim(c)
	next.spend(min(len(got.Granted), got.Allowed), from.Limits)
	return next, got, len(got.Granted) > 0 || p.Next > before
}

// Prospect is what a state says of a wish without granting it.
type Prospect struct {
	Free       bool          // a message may be granted
	Unresolved bool          // there are messages that may be given back
	Wait       time.Duration // until a lease or a wait ends; at most a minute
}

// Prospect says whether Take would grant something, and if not, when to try again.
func (s *State) Prospect(from Candidates, w Wish) Prospect {
	p, there := s.Find(from.Partition)
	if !there {
		return Prospect{Free: from.End > from.First, Wait: time.Minute}
	}
	return Prospect{
		Free:       p.free(w.Now, from.End, from.Limits.Window) || w.Repeats && len(p.Earlier(w)) > 0,
		Unresolved: len(p.Runs) > 0,
		Wait:       p.untilFree(w.Now),
	}
}

// claim is a wish, with what limits it in one partition.
type claim struct {
	Wish
	attempts int32 // as in Limits
	window   int64
	end      eventlog.Offset
	order    Order
}

// Repeat grants what earlier tries of the wish got. It makes the leases end 1 ms later: an earlier
// try that still runs, although its caller has gone, sees that and does not give these messages
// back.
func (p Part) Repeat(w Wish) (next Part, got []Grant) {
	got = p.Earlier(w)
	got = got[:min(len(got), w.Most)]
	e := Edit{Part: &p}
	for i, g := range got {
		r, _ := p.At(g.Offset)
		r.Until++
		got[i].Until = r.Until
		e.Put(g.Offset, r)
	}
	e.Apply()
	return p, got
}

// Earlier lists the messages that earlier tries of the wish got, and that its worker still has. If
// the state has omitted the worker's name (textOmitted), the nonce is enough, because it is random
// or made from the name.
func (p *Part) Earlier(w Wish) (got []Grant) {
	for _, r := range p.Runs {
		if r.Fate == Claimed && r.Until > w.Now && r.Nonce == w.Nonce && (r.Worker == w.Worker || r.Worker == textOmitted) {
			got = p.grants(got, r)
		}
	}
	if w.Has != nil {
		got = slices.DeleteFunc(got, w.Has)
	}
	return got
}

func (p *Part) grants(to []Grant, r Run) []Grant {
	for o := r.From; o < r.End(); o++ {
		to = append(to, Grant{p.Partition, o, r.Attempt, r.Nonce, r.Until, false})
	}
	return to
}

// untilFree returns the time from now until nextFree; at most a minute.
func (p *Part) untilFree(now Time) time.Duration {
	if t := p.nextFree(now); t > 0 && t-now < Time(time.Minute.Milliseconds()) {
		return max(time.Duration(t-now)*time.Millisecond, time.Millisecond)
	}
	return time.Minute
}

// nextFree returns the earliest time after now at which a lease or a wait ends, so that a message
// may become free. 0: there is none.
func (p *Part) nextFree(now Time) (t Time) {
	for _, r := range p.Runs {
		if r.Fate != Done && r.Until > now && (t == 0 || r.Until < t) {
			t = r.Until
		}
	}
	return t
}

// clockBack, in milliseconds, is more than two processes' readings of the store's clock can differ.
// A larger step back means that the clock was set back.
const clockBack = Time(5000)

// allowance returns how many claims the limits allow now, but not more than most.
func (s *State) allowance(most int, l Limits, now Time) int {
	if l.Concurrency > 0 {
		left := l.Concurrency
		for i := range s.Parts {
			for _, r := range s.Parts[i].Runs {
				if r.Fate == Claimed && r.Until > now {
					left -= int(r.N)
				}
			}
		}
		most = min(most, max(left, 0))
	}
	if l.Rate > 0 {
		burst := max(l.Rate, 1)
		if s.tokensAt == 0 {
			s.tokens, s.tokensAt = burst, now
		}
		switch {
		case now > s.tokensAt:
			s.tokens = min(burst, s.tokens+l.Rate*float64(now-s.tokensAt)/1000)
			s.tokensAt = now
		case now < s.tokensAt-clockBack: // the store's clock was set back: start again with a full burst
			s.tokens, s.tokensAt = burst, now
		}
		most = min(most, int(s.tokens))
	}
	return most
}

// spend subtracts the claims that were given out from the tokens.
func (s *State) spend(claims int, l Limits) {
	if l.Rate > 0 {
		s.tokens -= float64(claims)
	}
}
