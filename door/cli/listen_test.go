package cli

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/user"
)

// awayUntil does not answer for a while.
type awayUntil struct {
	eventlog.Store
	until time.Time
}

func (s awayUntil) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if time.Now().Before(s.until) {
		return nil, fmt.Errorf("list: %w: it is slow", eventlog.ErrUnavailable)
	}
	return s.Store.List(ctx, prefix, after, limit)
}

func TestAStartWaitsForAStoreThatDoesNotAnswerForAMoment(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for away, starts := range map[time.Duration]bool{10 * time.Second: true, time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			store := awayUntil{memory.New(), time.Now().Add(away)}
			c := serveCmd{HTTP: "127.0.0.1:0"}
			_, err := c.checkHTTP(t.Context(), apikey.New(everystore.Direct(store), quiet), user.New(everystore.Direct(store), quiet), quiet)
			if (err == nil) != starts {
				t.Errorf("away for %v: %v", away, err)
			}
		})
	}
}
