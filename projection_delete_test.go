package weir_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
)

// A rebuild runs in another process alone: the group of the run that readers use has no members,
// that of the next one has.
func TestADeletionOfAProjectionInUseChangesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		appendTo(t, category(t, w, "order", 1), "1", "Placed")
		var m model
		p := weir.Projection{Name: "orders", Categories: []string{"order"}, Handler: m.handle}
		j := project(t, w, p)
		before := projected(t, w, "orders")
		closeProjector(t, j)
		p.Version, p.TakeOver = 1, func(context.Context, int64) error { return errors.New("not yet") }
		next := project(t, w, p)
		eventually(t, "the next run has handled the event", func() bool { return len(m.of(2)) == 1 })
		if err := w.DeleteProjection(t.Context(), "orders"); !errors.Is(err, weir.ErrGroupInUse) {
			t.Fatalf("while a run is made: %v, want ErrGroupInUse", err)
		}
		g, err := w.Group(t.Context(), before.Run.Group)
		if err != nil || len(g.Offsets) != 1 || g.Offsets[0].Committed != 1 {
			t.Errorf("the run that readers use has %+v, %v; want its offset", g, err)
		}
		closeProjector(t, next)
		if err := w.DeleteProjection(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if groups, err := w.Groups(t.Context()); err != nil || len(groups) != 0 {
			t.Errorf("groups %q, %v; want none", groups, err)
		}
	})
}

// noDeletion is a store that fails to delete a projection's key, once it shall.
type noDeletion struct {
	eventlog.Store
	on atomic.Bool
}

func (n *noDeletion) Unwrap() eventlog.Store { return n.Store }

func (n *noDeletion) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	for _, e := range flush {
		if n.on.Load() && slices.ContainsFunc(e.Puts, func(p eventlog.Put) bool {
			return strings.HasPrefix(p.Key, "stream/projection/") && p.Value == nil
		}) {
			return nil, errors.New("not now")
		}
	}
	return n.Store.Commit(ctx, flush)
}

func TestADeletionOfAProjectionThatFailsLosesNoPlace(t *testing.T) {
	onEachStore(t, func(t *testing.T, under eventlog.Store) {
		store := &noDeletion{Store: under}
		w, err := weir.OpenStore(t.Context(), store, weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeLog(t, w) })
		appendTo(t, category(t, w, "order", 1), "1", "Placed")
		var m model
		j := project(t, w, weir.Projection{Name: "orders", Categories: []string{"order"}, Handler: m.handle})
		info := projected(t, w, "orders")
		closeProjector(t, j)
		store.on.Store(true)
		if err := w.DeleteProjection(t.Context(), "orders"); err == nil {
			t.Fatal("it was deleted")
		}
		store.on.Store(false)
		g, err := w.Group(t.Context(), info.Run.Group)
		if err != nil || len(g.Offsets) != 1 || g.Offsets[0].Committed != 1 {
			t.Errorf("its run has %+v, %v; want its offset", g, err)
		}
	})
}
