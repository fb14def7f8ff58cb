package console

import (
	"fmt"
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

// The metrics have the largest numbers only: of many queues, what is missing is not zero.
func TestANumberThatMayBeMissingIsNoZero(t *testing.T) {
	s := seen{}
	for i := range metricsMost {
		s.messages = append(s.messages, named{Name: fmt.Sprint("q", i), State: "ready", Value: 7})
	}
	line := queueLines(s)[0]
	if line.Num(line.Ready) != "7" || line.Num(line.Dead) != "–" {
		t.Errorf("%q ready and %q dead, want 7 and –", line.Num(line.Ready), line.Num(line.Dead))
	}
	s.messages = s.messages[1:]
	if line := queueLines(s)[0]; line.Num(line.Dead) != "0" {
		t.Errorf("%q dead, want 0", line.Num(line.Dead))
	}
}
