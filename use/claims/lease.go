package claims

import (
	"slices"

	"github.com/weir-log/weir/eventlog"
)

// claim gives a worker the oldest free messages: first those below p.Next, which were claimed
// before, or skipped because of the order; then new ones, up to c.end.
//
// It passes over the runs three times at most. If there is an order, it also passes over the
// messages once.
func (p Part) claim(c claim) (next Part, granted, spent []Grant) {
	var changes []Run
	give := func(o eventlog.Offset, attempt int32, reason string, first bool) {
		changes = joinAt(changes, Run{
			From: o, N: 1, Fate: Claimed, Attempt: attempt, Until: c.Until, Nonce: c.Nonce, Worker: c.Worker, Reason: reason,
		})
		granted = append(granted, Grant{p.Partition, o, attempt, c.Nonce, c.Until, first})
	}
	room := c.window - p.started() // how many messages may be started
	for _, r := range p.Runs {
		if len(granted) >= c.Most {
			break
		}
		free := r.Fate != Done && r.Until <= c.Now
		if free && r.Fate == Claimed && c.attempts > 0 && r.Attempt >= c.attempts {
			spent, free = p.grants(spent, r), false
		}
		if !free && c.order == nil {
			continue
		}
		reason := r.Reason
		if r.Fate == Claimed {
			reason = "" // its lease ended
		}
		for o := r.From; o < r.End() && len(granted) < c.Most; o++ {
			next := c.order.First(o, r.Fate == Done)
			if !next || !free || !r.started() && room <= 0 {
				continue
			}
			give(o, r.Attempt+1, reason, r.untouched())
			if !r.started() {
				room--
			}
		}
	}
	for o := p.Next; o < c.end && room > 0 && len(granted) < c.Most; o++ {
		if c.order.First(o, false) {
			give(o, 1, "", true)
			room--
		} else {
			changes = joinAt(changes, Run{From: o, N: 1, Fate: Waiting})
		}
	}
	p.Set(changes...)
	return p, granted, spent
}

// free reports whether a message can be claimed now, according to this state.
func (p *Part) free(now Time, end eventlog.Offset, window int64) bool {
	room := p.started() < window
	if p.Next < end && room {
		return true
	}
	return slices.ContainsFunc(p.Runs, func(r Run) bool {
		return r.Fate != Done && r.Until <= now && (room || r.started())
	})
}
