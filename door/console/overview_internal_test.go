package console

import (
	"slices"
	"testing"
)

func TestQueuesThatNeedAnOperatorComeFirst(t *testing.T) {
	s := seen{
		messages: []named{
			{Name: "busy", State: "claimed", Value: 5000}, {Name: "full", State: "ready", Value: 900}, {Name: "late", State: "ready", Value: 1},
			{Name: "broken", State: "dead", Value: 2}, {Name: "worse", State: "dead", Value: 3},
		},
		oldest: []named{{Name: "late", Value: 3600}, {Name: "full", Value: 2}},
	}
	var got []string
	for _, l := range queueLines(s) {
		got = append(got, l.Name)
	}
	if want := []string{"worse", "broken", "late", "full", "busy"}; !slices.Equal(got, want) {
		t.Errorf("the queues are in the order %q, want %q", got, want)
	}
}
