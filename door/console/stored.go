package console

import (
	"slices"
	"time"
)

// What was read from the store: what waits there, and for how long.

// waits is what waits: records for groups, messages that are ready, dead letters. Of each, the
// metrics have the 500 largest numbers.
type waits struct{ lag, ready, dead float64 }

// named is a number that a metric has for one name, and in one state.
type named struct {
	Name, State string
	Value       float64
}

// seen is what was read from the store last.
type seen struct {
	at                                                           time.Time
	topicLag                                                     []named // the group is in State
	lag, members, messages, oldest, projectionLag, projectionAge []named
	delayed, groups, queues                                      float64
}

// lagsAt is how far groups were behind at one time.
type lagsAt struct {
	at  time.Time
	lag map[string]float64
}

// look returns what was read from the store, not longer ago than age if the store answers. While
// one caller asks the store, others get what was read before.
func (h *History) look(age time.Duration) seen {
	h.mu.Lock()
	last := h.last
	h.mu.Unlock()
	if h.store == nil || time.Since(last.at) < age || !h.looking.TryLock() {
		return last
	}
	defer h.looking.Unlock()
	families, err := h.store.Gather()
	if err != nil && len(families) == 0 {
		return last
	}
	next := seen{at: time.Now()}
	for _, f := range families {
		switch f.GetName() {
		case "weir_group_lag_records":
			next.lag, next.topicLag = byName(f, "group", ""), byName(f, "topic", "group")
		case "weir_group_members":
			next.members = byName(f, "group", "")
		case "weir_queue_messages":
			next.messages = byName(f, "queue", "state")
		case "weir_queue_oldest_ready_seconds":
			next.oldest = byName(f, "queue", "")
		case "weir_queue_delayed_messages":
			next.delayed = total(f, "", "")
		case "weir_projection_lag_records":
			next.projectionLag = byName(f, "projection", "run")
		case "weir_projection_behind_seconds":
			next.projectionAge = byName(f, "projection", "run")
		case "weir_groups":
			next.groups = total(f, "", "")
		case "weir_queues":
			next.queues = total(f, "", "")
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = next
	h.noteLags(next)
	h.lags = append(slices.DeleteFunc(h.lags, func(s seen) bool { return next.at.Sub(s.at) > 2*rateOver }), seen{at: next.at, projectionLag: next.projectionLag})
	return next
}

// hasRun reports whether a projection had a run of this kind.
func hasRun(s seen, projection, run string) bool {
	return slices.ContainsFunc(s.projectionLag, func(n named) bool { return n.Name == projection && n.State == run })
}

// noteLags keeps how far groups are behind. h.mu is held.
func (h *History) noteLags(s seen) {
	if n := len(h.groups); n > 0 && s.at.Sub(h.groups[n-1].at) < storeEvery-storeLeast {
		return
	}
	now := lagsAt{s.at, make(map[string]float64, len(s.lag))}
	for _, n := range s.lag {
		now.lag[n.Name] = n.Value
	}
	h.groups = append(slices.DeleteFunc(h.groups, func(was lagsAt) bool { return s.at.Sub(was.at) > historyLasts }), now)
}

// lagOf returns how far a group was behind in the last hour.
func (h *History) lagOf(group string) (s lagSeries) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, was := range h.groups {
		s.Times = append(s.Times, was.at.Unix())
		lag, known := was.lag[group]
		s.Lag = append(s.Lag, &lag)
		if !known {
			s.Lag[len(s.Lag)-1] = nil
		}
	}
	return s
}

// lagSeries is the column of a group's plot.
type lagSeries struct {
	Times []int64    `json:"t"`
	Lag   []*float64 `json:"lag"`
}

// waits adds up what waits; nil: the store was not read yet.
func (s seen) waits() *waits {
	if s.at.IsZero() {
		return nil
	}
	var w waits
	for _, n := range s.lag {
		w.lag += n.Value
	}
	for _, n := range s.messages {
		switch n.State {
		case "ready":
			w.ready += n.Value
		case "dead":
			w.dead += n.Value
		}
	}
	return &w
}

// left returns how long a run of a projection, now or next, needs for what it has not handled yet,
// if it goes on as it did in the last minutes; nil: it comes no nearer to the end, or that is not
// known.
func (h *History) left(projection, run string) *time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	lag := func(s seen) float64 {
		if run == "now" && hasRun(s, projection, "next") != hasRun(h.last, projection, "next") {
			return -1 // a run has begun, or taken over: now may be another one since
		}
		i := slices.IndexFunc(s.projectionLag, func(n named) bool { return n.Name == projection && n.State == run })
		if i < 0 {
			return -1
		}
		return s.projectionLag[i].Value
	}
	for _, before := range h.lags {
		was, is, took := lag(before), lag(h.last), h.last.at.Sub(before.at)
		if was < 0 || took <= 0 {
			continue
		}
		if is <= 0 || was <= is {
			return nil
		}
		left := time.Duration(is / (was - is) * float64(took))
		return &left
	}
	return nil
}
