package weir_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir"
)

func TestWhoAwaitsAProjectionKnowsPartitionsThatOthersAdded(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		c := category(t, w, "order", 1)
		appendTo(t, c, "first", "Placed")
		late := s.open(t, weir.Options{Poll: time.Hour})
		if err := w.RaisePartitions(t.Context(), "order", 8); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			appendTo(t, c, fmt.Sprint(i), "Placed")
		}
		var m model
		project(t, w, weir.Projection{Name: "orders", Categories: []string{"order"}, Handler: m.handle})
		for i := range 20 {
			if err := late.AwaitProjection(t.Context(), "orders", "order", fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		if got := m.of(1); len(got) != 21 {
			t.Errorf("it has %q", got)
		}
	})
}

func TestWhoAwaitsInVainIsToldWhy(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		c := category(t, w, "order", 1)
		appendTo(t, category(t, w, "other", 1), "1", "Placed")
		var m model
		j := project(t, w, weir.Projection{Name: "orders", Categories: []string{"order"}, Handler: m.handle})
		var invalid *weir.InvalidError
		if err := w.AwaitProjection(t.Context(), "orders", "other", "1"); !errors.As(err, &invalid) {
			t.Errorf("a category that it does not read: %v, want *InvalidError", err)
		}
		closeProjector(t, j)
		appendTo(t, c, "1", "Placed")
		for _, why := range []string{"no process works on it", "is paused"} {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if err := w.AwaitProjection(ctx, "orders", "order", "1"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), why) {
				t.Errorf("%v, want %q", err, why)
			}
			if err := w.PauseProjection(t.Context(), "orders"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Readers use what run 2 made from within its TakeOver on; an event that run 1 alone has handled
// since is not to be seen yet.
func TestWhoAwaitsAProjectionThatIsTakenOverWaitsForBothRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		c := category(t, w, "order", 1)
		appendTo(t, c, "1", "A")
		var m model
		hold, taking := make(chan struct{}), make(chan struct{}, 1)
		var once sync.Once
		p := weir.Projection{Name: "orders", Categories: []string{"order"}, CommitEvery: time.Millisecond,
			Handler: func(ctx context.Context, e weir.ProjectedEvent) error {
				if e.Run == 2 && e.Type == "B" {
					select {
					case <-hold:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				return m.handle(ctx, e)
			},
		}
		p.TakeOver = func(ctx context.Context, run int64) error {
			once.Do(func() { // it is called again, perhaps before either run has B
				appendTo(t, c, "1", "B")
				taking <- struct{}{}
			})
			return errors.New("not yet")
		}
		project(t, w, p)
		projected(t, w, "orders")
		if err := w.RebuildProjection(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		next(t, taking)
		eventually(t, "run 1 has handled B", func() bool {
			info, err := w.Projection(t.Context(), "orders")
			return err == nil && len(m.of(1)) == 2 && info.Run.Lag == 0
		})
		awaited := make(chan error, 1)
		go func() { awaited <- w.AwaitProjection(t.Context(), "orders", "order", "1") }()
		select {
		case err := <-awaited:
			t.Errorf("it returned with %v, and run 2 has %q", err, m.of(2))
		case <-time.After(200 * time.Millisecond):
		}
		close(hold)
		if err := next(t, awaited); err != nil || len(m.of(2)) < 2 {
			t.Errorf("%v, and run 2 has %q", err, m.of(2))
		}
	})
}
