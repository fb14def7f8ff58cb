package stream_test

import (
	"slices"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/stream"
)

func TestAppendsAreCountedByTheirOutcome(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		p, c := orders(t, reopen)
		other, err := p.CreateCategory(t.Context(), stream.Spec{Name: "accounts", Partitions: 1})
		check(t, err)
		counted := func(want ...stream.Counts) {
			t.Helper()
			if got := p.Counts(); !slices.Equal(got, want) {
				t.Errorf("counted %+v, want %+v", got, want)
			}
		}
		counted()
		_, bound, err := c.Tagged(t.Context(), "t")
		check(t, err)
		for range 2 {
			_, err := c.Append(t.Context(), "s", 0, named("a")...)
			check(t, err)
		}
		_, _ = c.Append(t.Context(), "s", 0, named("b")...)
		_, _ = c.Append(t.Context(), "s", 0)
		counted(stream.Counts{Category: "orders", Appended: 1, Duplicates: 1, Conflicts: 1})
		_, err = c.Append(t.Context(), "u", stream.Any, tagged("e", "t"))
		check(t, err)
		_, _ = c.AppendWithin(t.Context(), bound, "u", stream.Any, tagged("f", "t"))
		both := []stream.Part{{Category: c, Stream: "s", Expected: 1, Events: named("c")}, {Category: other, Stream: "s", Expected: 0, Events: named("c")}}
		_, err = p.AppendAll(t.Context(), both...)
		check(t, err)
		_, err = p.AppendAll(t.Context(), both...)
		check(t, err)
		both[0].Expected, both[0].Events, both[1].Events = 2, named("d"), named("d")
		_, _ = p.AppendAll(t.Context(), both...) // a conflict with the second alone
		counted(stream.Counts{Category: "accounts", Appended: 1, Duplicates: 1, Conflicts: 1}, stream.Counts{Category: "orders", Appended: 3, Duplicates: 2, Conflicts: 1, Boundaries: 1})
		check(t, p.log.DeleteTopic(t.Context(), "orders"))
		counted(stream.Counts{Category: "accounts", Appended: 1, Duplicates: 1, Conflicts: 1})
	})
}
