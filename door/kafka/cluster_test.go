package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// awayAtStart is a store that goes away when somebody asks for the cluster's id, for some tries.
type awayAtStart struct {
	eventlog.Store
	left atomic.Int32
}

func (s *awayAtStart) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if strings.HasPrefix(prefix, "cluster") && s.left.Add(-1) >= 0 {
		return nil, fmt.Errorf("%w: the connection is gone", eventlog.ErrUnavailable)
	}
	return s.Store.List(ctx, prefix, after, limit)
}

func (s *awayAtStart) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if strings.HasPrefix(keys[0], "cluster") && s.left.Add(-1) >= 0 {
		return nil, fmt.Errorf("%w: the connection is gone", eventlog.ErrUnavailable)
	}
	return s.Store.Get(ctx, keys, maxBytes)
}

func TestAStoreThatGoesAwayAtTheStartIsWaitedFor(t *testing.T) {
	store := &awayAtStart{Store: memory.New()}
	store.left.Store(2)
	b := startOn(t, store, kafka.Config{}) // its end fails the test when Serve returned an error
	if err := b.client().Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
