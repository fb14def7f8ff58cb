package stream_test

import (
	"context"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// Events are forgotten between the read of the head and that of the events: an aggregate reads
// again.
func TestAnAggregateReadsAgainWhatWasForgottenMeanwhile(t *testing.T) {
	for what, act := range map[string]func(a *stream.Aggregate[int]) (int, error){
		"Load": func(a *stream.Aggregate[int]) (int, error) {
			sum, _, err := a.Load(t.Context(), "s")
			return sum, err
		},
		"Do": func(a *stream.Aggregate[int]) (int, error) {
			done, err := a.Do(t.Context(), "s", func(int) ([]stream.NewEvent, error) { return nil, nil })
			return done.State, err
		},
	} {
		t.Run(what, func(t *testing.T) {
			store := &hooked{Store: memory.New(), prefix: "stream/event/"}
			p, c := orders(t, func(*testing.T) eventlog.Store { return store })
			_, err := c.Append(t.Context(), "s", 0, paid(1), paid(2), paid(3))
			check(t, err)
			forget := func() {
				check(t, c.SaveSnapshot(t.Context(), "s", stream.Snapshot{Version: 2, Data: []byte("3")}))
				check(t, c.Forget(t.Context(), "s", 2))
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- p.Run(ctx) }()
				for left := 3; left > 1; {
					list, err := p.log.List(t.Context(), "stream/event/", "", 10)
					check(t, err)
					left = len(list)
				}
				cancel()
				check(t, <-done)
			}
			store.before.Store(&forget)
			if sum, err := act(account(c)); err != nil || sum != 6 {
				t.Errorf("%d, %v; want 6", sum, err)
			}
		})
	}
}

func TestAnAggregateWithNegativeAttemptsDecides(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		a := account(c)
		a.Attempts = -1
		done, err := a.Do(t.Context(), "s", upTo(1))
		if err != nil || done.Appended != 1 {
			t.Errorf("%+v, %v", done, err)
		}
	})
}
