package main

import (
	"slices"
	"testing"

	"github.com/weir-log/weir/eventlog"
)

// rig is a model with a clock that moves by hand.
type rig struct {
	*testing.T
	m  *model
	at moment
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t}
	now := func() moment { r.at++; return r.at }
	h, err := newHistory(t.TempDir()+"/history", now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.close() })
	r.m = newModel(now, h)
	return r
}

// topic makes a topic that is there.
func (r *rig) topic(name string) *life {
	l := r.m.begins(name, 0)
	r.m.born(l, eventlog.TopicID{byte(r.at)})
	return l
}

func (r *rig) gone(l *life) {
	r.m.dies(l)
	r.m.dead(l)
}

// publish publishes one record, and returns its value.
func (r *rig) publish(topic string, o outcome, at ...place) string {
	records := r.m.invoke("p", topic, 1, true)
	r.m.end(records, o, at)
	return records[0].value
}

func (r *rig) broke(invariants ...string) {
	r.Helper()
	var found []string
	for _, v := range r.m.found() {
		found = append(found, v.invariant)
	}
	if slices.Sort(found); !slices.Equal(slices.Compact(found), invariants) {
		r.Errorf("broken: %v, want %v: %v", found, invariants, r.m.found())
	}
}

func at(offset int64) place { return place{0, offset} }

func TestTheModelFindsWhatIsWrongAndNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(*rig)
		finds []string
	}{
		"all is well": {do: func(r *rig) {
			l := r.topic("a")
			v, w := r.publish("a", done, at(0)), r.publish("a", unknown)
			f := &reader{who: "r", next: map[int32]int64{}}
			r.m.follow(f, sight{"a", at(0), v})
			r.m.follow(f, sight{"a", at(1), w})
			r.m.deliver("g", "m", false, sight{"a", at(0), v}, sight{"a", at(0), v}) // at least once
			r.m.judgeHeld(held{life: l, first: []int64{0}, value: [][]string{{v, w}}})
		}},
		"an unknown record that is not there is no loss": {do: func(r *rig) {
			l := r.topic("a")
			r.publish("a", unknown)
			r.m.judgeHeld(held{life: l, first: []int64{0}, value: [][]string{{}}})
		}},
		"an acknowledged record is not there": {finds: []string{"L1"}, do: func(r *rig) {
			l := r.topic("a")
			r.publish("a", done, at(0))
			r.m.judgeHeld(held{life: l, first: []int64{0}, value: [][]string{{}}})
		}},
		"it was trimmed": {do: func(r *rig) {
			l := r.topic("a")
			r.publish("a", done, at(0))
			r.m.trims(l, 0, 1)
			r.m.judgeHeld(held{life: l, first: []int64{1}, value: [][]string{{}}})
		}},
		"a record that was rolled back is read": {finds: []string{"L2"}, do: func(r *rig) {
			r.topic("a")
			r.m.follow(&reader{who: "r", next: map[int32]int64{}}, sight{"a", at(0), r.publish("a", refused)})
		}},
		"a record that nobody published": {finds: []string{"L2"}, do: func(r *rig) {
			r.topic("a")
			r.m.deliver("g", "m", false, sight{"a", at(0), "out of thin air"})
		}},
		"an offset with two values": {finds: []string{"L3"}, do: func(r *rig) {
			r.topic("a")
			r.m.invoke("q", "a", 1, false)
			p, q := r.m.invoke("p", "a", 1, false), r.m.invoke("q", "a", 1, false)
			r.m.end(p, done, []place{at(0)})
			r.m.end(q, done, []place{at(0)})
		}},
		"a record at two offsets": {finds: []string{"L3"}, do: func(r *rig) {
			r.topic("a")
			v := r.publish("a", unknown)
			r.m.deliver("g", "m", false, sight{"a", at(0), v}, sight{"a", at(1), v})
		}},
		"a later record gets a lower offset": {finds: []string{"L4"}, do: func(r *rig) {
			r.topic("a")
			r.publish("a", done, at(5))
			r.publish("a", done, at(4))
		}},
		"records at once may get any order": {do: func(r *rig) {
			r.topic("a")
			p, q := r.m.invoke("p", "a", 1, false), r.m.invoke("q", "a", 1, false)
			r.m.end(p, done, []place{at(5)})
			r.m.end(q, done, []place{at(4)})
		}},
		"a reader gets past an offset that it was not given": {finds: []string{"L5"}, do: func(r *rig) {
			r.topic("a")
			v, w := r.publish("a", done, at(0)), r.publish("a", done, at(1))
			_ = v
			r.m.follow(&reader{who: "r", next: map[int32]int64{}}, sight{"a", at(1), w})
		}},
		"a reader begins anew with the next topic": {do: func(r *rig) {
			f := &reader{who: "r", next: map[int32]int64{}}
			first := r.topic("a")
			r.m.follow(f, sight{"a", at(0), r.publish("a", done, at(0))})
			r.gone(first)
			r.topic("a")
			r.m.follow(f, sight{"a", at(0), r.publish("a", done, at(0))})
		}},
		"a reader goes on in the next topic where it was": {finds: []string{"L5"}, do: func(r *rig) {
			f := &reader{who: "r", next: map[int32]int64{}}
			first := r.topic("a")
			r.m.follow(f, sight{"a", at(0), r.publish("a", done, at(0))})
			r.gone(first)
			r.topic("a")
			r.publish("a", done, at(0))
			r.m.follow(f, sight{"a", at(1), r.publish("a", done, at(1))})
		}},
		"a record of a topic that is gone is in its namesake": {finds: []string{"L10"}, do: func(r *rig) {
			first := r.topic("a")
			v := r.publish("a", unknown)
			r.m.records[v].outcome, r.m.records[v].ended = done, r.at
			r.gone(first)
			r.m.judgeHeld(held{life: r.topic("a"), first: []int64{0}, value: [][]string{{v}}})
		}},
		"the end of a partition goes back": {finds: []string{"L6"}, do: func(r *rig) {
			l := r.topic("a")
			r.m.showEnd("b.1", l, 0, r.at, 5)
			r.m.showEnd("b.2", l, 0, r.at, 4) // another process may be late
			r.m.showEnd("b.1", l, 0, r.at+1, 4)
		}},
		"what a transaction committed is handled again": {finds: []string{"G6"}, do: func(r *rig) {
			r.topic("a")
			s := sight{"a", at(0), r.publish("a", done, at(0))}
			r.m.deliver("g", "m", true, s)
			r.m.deliver("g", "n", true, s)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c.do(r)
			r.broke(c.finds...)
		})
	}
}

func TestASeedPlansTheSameFaults(t *testing.T) {
	plan := func(seed uint64) []step {
		return makePlan((&world{seed: seed}).random("plan"), 60e9, allFaults("postgres", seed, true))
	}
	if a, b := plan(7), plan(7); len(a) == 0 || !slices.Equal(a, b) {
		t.Errorf("the same seed planned %v and %v", a, b)
	}
	if slices.Equal(plan(7), plan(8)) {
		t.Error("two seeds planned the same")
	}
}

func TestCalmKnowsWhatWasDone(t *testing.T) {
	now := moment(0)
	c := newCalm(func() moment { return now })
	end := c.disturb("a")
	now = 1e9
	end()
	for _, q := range []struct {
		from, to moment
		name     string
		want     bool
	}{
		{0, 1e9, "a", false},
		{2e9, 3e9, "a", false}, // it recovers
		{5e9, 6e9, "a", true},
		{0, 1e9, "b", true},
	} {
		if got := c.between(q.from, q.to, q.name); got != q.want {
			t.Errorf("calm for %s between %v and %v: %v", q.name, q.from, q.to, got)
		}
	}
}

// What a group must have billed is what it committed of one topic: not what a namesake had there, nor what was trimmed.
func TestKnownBelowIsOfOneTopicAndStillThere(t *testing.T) {
	r := newRig(t)
	first := r.topic("a")
	r.publish("a", done, at(0))
	r.gone(first)
	second := r.topic("a")
	r.publish("a", done, at(0))
	v := r.publish("a", done, at(1))
	r.publish("a", done, at(3))
	r.m.trims(second, 0, 1)
	want := []sight{{"a", at(1), v}}
	if got := r.m.knownBelow(second, map[int32]int64{0: 3}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
