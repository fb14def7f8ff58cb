package weir_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
)

// trim deletes the records of a category's only partition below an offset.
func trim(t *testing.T, w *weir.Log, category string, before int64) {
	t.Helper()
	topic, err := w.Core().Topic(t.Context(), category)
	if err == nil {
		err = w.Core().Trim(t.Context(), topic.Partitions[0], eventlog.Offset(before))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// lacks waits until a projector has halted for events that are missing.
func lacks(t *testing.T, j *weir.Projector, from, to string) {
	t.Helper()
	eventually(t, "the partition has halted", func() bool { return len(j.Halted()) == 1 })
	for at, err := range j.Halted() {
		if !errors.Is(err, weir.ErrEventsMissing) || !strings.Contains(err.Error(), "the offsets ["+from+", "+to+") of partition 0") {
			t.Errorf("%v halted: %v", at, err)
		}
	}
}

func TestAProjectionHaltsAtEventsThatAreGone(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		c := category(t, w, "order", 1)
		appendTo(t, c, "1", "A", "B")
		var m model
		p := weir.Projection{Name: "orders", Categories: []string{"order"}, Handler: m.handle}
		j := project(t, w, p)
		projected(t, w, "orders")
		closeProjector(t, j)
		appendTo(t, c, "1", "C", "D", "E")
		trim(t, w, "order", 4)
		j = project(t, w, p)
		lacks(t, j, "2", "4")
		if err := w.ResumeProjection(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		lacks(t, j, "2", "4")
		closeProjector(t, j)
		if got := m.of(1); !slices.Equal(got, []string{"order/1@0 A", "order/1@1 B"}) {
			t.Errorf("it got %q", got)
		}
		p.SkipMissing = true
		project(t, w, p)
		projected(t, w, "orders")
		if got := m.of(1); !slices.Equal(got, []string{"order/1@0 A", "order/1@1 B", "order/1@4 E"}) {
			t.Errorf("going on, it got %q", got)
		}
	})
}

func TestARunThatLacksTheFirstEventsDoesNotTakeOver(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		c := category(t, w, "order", 1)
		appendTo(t, c, "1", "A", "B", "C")
		var m model
		p := weir.Projection{Name: "orders", Categories: []string{"order"}, Handler: m.handle}
		j := project(t, w, p)
		projected(t, w, "orders")
		trim(t, w, "order", 2)
		if err := w.RebuildProjection(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		lacks(t, j, "0", "2")
		appendTo(t, c, "1", "D") // the present run goes on
		eventually(t, "readers get D", func() bool { return len(m.of(1)) == 4 })
		if info, err := w.Projection(t.Context(), "orders"); err != nil || info.Run.Number != 1 || info.Next == nil {
			t.Errorf("%+v, %v: want run 1, and a next one", info, err)
		}
		closeProjector(t, j)
		p.SkipMissing = true
		project(t, w, p)
		tookOver(t, w, "orders", 2)
		if got := m.of(2); !slices.Equal(got, []string{"order/1@2 C", "order/1@3 D"}) {
			t.Errorf("going on, run 2 got %q", got)
		}
	})
}

// A category that was deleted and made again while a run works is another: its subjects have other
// keys.
func TestAProjectionReadsACategoryThatWasMadeAgain(t *testing.T) {
	w := newSite(t, "memory").open(t)
	named := func(c *weir.Category, who string) {
		t.Helper()
		if _, err := c.Append(t.Context(), who, weir.NoStream, weir.NewStreamEvent{Type: "Named", Subject: who, Data: []byte("I am " + who)}); err != nil {
			t.Fatal(err)
		}
	}
	named(category(t, w, "customer", 1), "anne")
	got := make(chan weir.ProjectedEvent, 10)
	project(t, w, weir.Projection{Name: "customers", Categories: []string{"customer"}, Handler: func(_ context.Context, e weir.ProjectedEvent) error {
		got <- e
		return nil
	}})
	next(t, got)
	if err := w.DeleteTopic(t.Context(), "customer"); err != nil {
		t.Fatal(err)
	}
	named(category(t, w, "customer", 1), "bob")
	if e := next(t, got); string(e.Data) != "I am bob" || e.Erased {
		t.Errorf("%+v", e)
	}
}
