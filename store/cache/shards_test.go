package cache_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/cache"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/shard"
)

// away is a store that may not answer reads.
type away struct {
	eventlog.Store
	down atomic.Bool
}

var errAway = fmt.Errorf("%w: the cable was cut", eventlog.ErrUnavailable)

func (a *away) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	if a.down.Load() {
		return nil, errAway
	}
	return a.Store.Read(ctx, spans, maxBytes)
}

func (a *away) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if a.down.Load() {
		return nil, errAway
	}
	return a.Store.List(ctx, prefix, after, limit)
}

func (a *away) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if a.down.Load() {
		return nil, errAway
	}
	return a.Store.Get(ctx, keys, maxBytes)
}

// A cache in front of shards answers reads of the shards that answer.
func TestAShardThatDoesNotAnswerFailsOnlyItsOwnSpans(t *testing.T) {
	lost := &away{Store: memory.New()}
	set, err := shard.Open(t.Context(), []shard.Shard{{Name: "a", Store: memory.New()}, {Name: "b", Store: lost}}, shard.Options{Rules: eventlog.KeyRules(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	cached, err := cache.Open(set, small(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer cached.Close()
	var spans []eventlog.Span
	for n := range 6 {
		p := eventlog.Partition(1 + n).On(n % 2)
		spans = append(spans, eventlog.Span{Partition: p, MaxBytes: 100})
		batch := eventlog.Batch{Partition: p, Records: 1, MaxTime: 1, Bytes: []byte("bytes")}
		if out, err := cached.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: p}, batch}}}); err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
	}
	if _, _, err := cached.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Fatal(err)
	}
	for _, down := range []bool{false, true, false} {
		lost.down.Store(down)
		for _, asked := range [][]eventlog.Span{spans, spans[:2]} {
			got, err := cached.Read(t.Context(), asked, 1000)
			if err != nil {
				t.Fatal(err)
			}
			for i, slice := range got {
				if gone := down && i%2 == 1; gone != errors.Is(slice.Err, eventlog.ErrUnavailable) || !gone && len(slice.Batches) != 1 {
					t.Errorf("down %v, %d spans, span %d: %+v", down, len(asked), i, slice)
				}
			}
		}
	}
}
