package judge

import (
	"os"
	"slices"
	"testing"

	"github.com/weir-log/weir/eventlog"
)

// rig is a model with a clock that moves by hand.
type rig struct {
	*testing.T
	m  *Model
	at Moment
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t}
	now := func() Moment { r.at++; return r.at }
	file, err := os.Create(t.TempDir() + "/history")
	if err != nil {
		t.Fatal(err)
	}
	h := NewHistory(file, now)
	t.Cleanup(func() { h.Close() })
	r.m = NewModel(now, h)
	return r
}

// topic makes a topic that is there.
func (r *rig) topic(name string) *Life {
	l := r.m.Begins(name, 0)
	r.m.Born(l, eventlog.TopicID{byte(r.at)})
	return l
}

func (r *rig) gone(l *Life) {
	r.m.Dies(l)
	r.m.Dead(l)
}

// publish publishes one record, and returns its value.
func (r *rig) publish(topic string, o Outcome, at ...Place) string {
	records := r.m.Invoke("p", topic, 1, true)
	r.m.End(records, o, at)
	return records[0].Value
}

func (r *rig) broke(invariants ...string) {
	r.Helper()
	var found []string
	for _, v := range r.m.Found() {
		found = append(found, v.Invariant)
	}
	if slices.Sort(found); !slices.Equal(slices.Compact(found), invariants) {
		r.Errorf("broken: %v, want %v: %v", found, invariants, r.m.Found())
	}
}

func at(offset int64) Place { return Place{0, offset} }

func TestTheModelFindsWhatIsWrongAndNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(*rig)
		finds []string
	}{
		"all is well": {do: func(r *rig) {
			l := r.topic("a")
			v, w := r.publish("a", Done, at(0)), r.publish("a", Unknown)
			f := &Reader{Who: "r", Next: map[int32]int64{}}
			r.m.Follow(f, Sight{"a", at(0), v})
			r.m.Follow(f, Sight{"a", at(1), w})
			r.m.Deliver("g", "m", false, Sight{"a", at(0), v}, Sight{"a", at(0), v}) // at least once
			r.m.JudgeHeld(Held{Life: l, First: []int64{0}, Value: [][]string{{v, w}}})
		}},
		"an unknown record that is not there is no loss": {do: func(r *rig) {
			l := r.topic("a")
			r.publish("a", Unknown)
			r.m.JudgeHeld(Held{Life: l, First: []int64{0}, Value: [][]string{{}}})
		}},
		"an acknowledged record is not there": {finds: []string{"L1"}, do: func(r *rig) {
			l := r.topic("a")
			r.publish("a", Done, at(0))
			r.m.JudgeHeld(Held{Life: l, First: []int64{0}, Value: [][]string{{}}})
		}},
		"it was trimmed": {do: func(r *rig) {
			l := r.topic("a")
			r.publish("a", Done, at(0))
			r.m.Trims(l, 0, 1)
			r.m.JudgeHeld(Held{Life: l, First: []int64{1}, Value: [][]string{{}}})
		}},
		"a record that was rolled back is read": {finds: []string{"L2"}, do: func(r *rig) {
			r.topic("a")
			r.m.Follow(&Reader{Who: "r", Next: map[int32]int64{}}, Sight{"a", at(0), r.publish("a", Refused)})
		}},
		"a record that nobody published": {finds: []string{"L2"}, do: func(r *rig) {
			r.topic("a")
			r.m.Deliver("g", "m", false, Sight{"a", at(0), "out of thin air"})
		}},
		"an offset with two values": {finds: []string{"L3"}, do: func(r *rig) {
			r.topic("a")
			r.m.Invoke("q", "a", 1, false)
			p, q := r.m.Invoke("p", "a", 1, false), r.m.Invoke("q", "a", 1, false)
			r.m.End(p, Done, []Place{at(0)})
			r.m.End(q, Done, []Place{at(0)})
		}},
		"a record at two offsets": {finds: []string{"L3"}, do: func(r *rig) {
			r.topic("a")
			v := r.publish("a", Unknown)
			r.m.Deliver("g", "m", false, Sight{"a", at(0), v}, Sight{"a", at(1), v})
		}},
		"a later record gets a lower offset": {finds: []string{"L4"}, do: func(r *rig) {
			r.topic("a")
			r.publish("a", Done, at(5))
			r.publish("a", Done, at(4))
		}},
		"records at once may get any order": {do: func(r *rig) {
			r.topic("a")
			p, q := r.m.Invoke("p", "a", 1, false), r.m.Invoke("q", "a", 1, false)
			r.m.End(p, Done, []Place{at(5)})
			r.m.End(q, Done, []Place{at(4)})
		}},
		"a reader gets past an offset that it was not given": {finds: []string{"L5"}, do: func(r *rig) {
			r.topic("a")
			v, w := r.publish("a", Done, at(0)), r.publish("a", Done, at(1))
			_ = v
			r.m.Follow(&Reader{Who: "r", Next: map[int32]int64{}}, Sight{"a", at(1), w})
		}},
		"a reader begins anew with the next topic": {do: func(r *rig) {
			f := &Reader{Who: "r", Next: map[int32]int64{}}
			first := r.topic("a")
			r.m.Follow(f, Sight{"a", at(0), r.publish("a", Done, at(0))})
			r.gone(first)
			r.topic("a")
			r.m.Follow(f, Sight{"a", at(0), r.publish("a", Done, at(0))})
		}},
		"a reader goes on in the next topic where it was": {finds: []string{"L5"}, do: func(r *rig) {
			f := &Reader{Who: "r", Next: map[int32]int64{}}
			first := r.topic("a")
			r.m.Follow(f, Sight{"a", at(0), r.publish("a", Done, at(0))})
			r.gone(first)
			r.topic("a")
			r.publish("a", Done, at(0))
			r.m.Follow(f, Sight{"a", at(1), r.publish("a", Done, at(1))})
		}},
		"a record of a topic that is gone is in its namesake": {finds: []string{"L10"}, do: func(r *rig) {
			first := r.topic("a")
			v := r.publish("a", Unknown)
			r.m.records[v].outcome, r.m.records[v].ended = Done, r.at
			r.gone(first)
			r.m.JudgeHeld(Held{Life: r.topic("a"), First: []int64{0}, Value: [][]string{{v}}})
		}},
		"the end of a partition goes back": {finds: []string{"L6"}, do: func(r *rig) {
			l := r.topic("a")
			r.m.ShowEnd("b.1", l, 0, r.at, 5)
			r.m.ShowEnd("b.2", l, 0, r.at, 4) // another process may be late
			r.m.ShowEnd("b.1", l, 0, r.at+1, 4)
		}},
		"what a transaction committed is handled again": {finds: []string{"G6"}, do: func(r *rig) {
			r.topic("a")
			s := Sight{"a", at(0), r.publish("a", Done, at(0))}
			r.m.Deliver("g", "m", true, s)
			r.m.Deliver("g", "n", true, s)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c.do(r)
			r.broke(c.finds...)
		})
	}
}

// What a group must have billed is what it committed of one topic: not what a namesake had there,
// nor what was trimmed.
func TestKnownBelowIsOfOneTopicAndStillThere(t *testing.T) {
	r := newRig(t)
	first := r.topic("a")
	r.publish("a", Done, at(0))
	r.gone(first)
	second := r.topic("a")
	r.publish("a", Done, at(0))
	v := r.publish("a", Done, at(1))
	r.publish("a", Done, at(3))
	r.m.Trims(second, 0, 1)
	want := []Sight{{"a", at(1), v}}
	if got := r.m.KnownBelow(second, map[int32]int64{0: 3}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
