package eventlog_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// storm is a store that wakes as fast as it is heard, as any session can make PostgreSQL do.
type storm struct {
	*memory.Store
	looks atomic.Int32
}

const stormMost = 10_000

func (s *storm) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	s.looks.Add(1)
	return s.Store.Changes(ctx, since)
}

func (s *storm) Wake(ctx context.Context) (<-chan struct{}, error) {
	woken := make(chan struct{})
	go func() {
		for s.looks.Load() < stormMost { // without a floor no time would ever pass
			select {
			case woken <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return woken, nil
}

func TestAStormOfWakeUpsDoesNotMakeAStormOfLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &storm{Store: memory.New()}
		log, err := eventlog.Open(t.Context(), s, eventlog.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			log.Run(ctx)
		}()
		time.Sleep(time.Second) // fake time
		if looks := s.looks.Load(); looks < 10 || looks > 250 {
			t.Errorf("%d looks in a second of wake-ups without end, want about 200", looks)
		}
		cancel()
		<-done
	})
}
