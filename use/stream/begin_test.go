package stream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// headReads counts the reads of streams' heads.
type headReads struct {
	*memory.Store
	n atomic.Int64
}

func (r *headReads) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	r.count(keys...)
	return r.Store.Get(ctx, keys, maxBytes)
}

func (r *headReads) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	r.count(prefix)
	return r.Store.List(ctx, prefix, after, limit)
}

func (r *headReads) count(keys ...string) {
	for _, key := range keys {
		if strings.HasPrefix(key, "stream/head/") {
			r.n.Add(1)
		}
	}
}

// The first append to a stream is one store call: the entry itself checks that there is no stream.
func TestAnAppendThatBeginsAStreamReadsNothing(t *testing.T) {
	store := &headReads{Store: memory.New()}
	_, c := orders(t, func(*testing.T) eventlog.Store { return store })
	for i, expected := range []stream.Expected{0, stream.NoStream, 0, stream.NoStream} {
		if _, err := c.Append(t.Context(), fmt.Sprint("new ", i), expected, stream.NewEvent{Type: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := store.n.Load(); n != 0 {
		t.Errorf("four streams were begun with %d reads of heads, want none", n)
	}
	if _, err := c.Append(t.Context(), "new 0", stream.Any, stream.NewEvent{Type: "t"}); err != nil || store.n.Load() != 0 {
		t.Errorf("the second append: %v, after %d reads", err, store.n.Load())
	}
	if _, err := c.Append(t.Context(), "any", stream.Any, stream.NewEvent{Type: "t"}); err != nil || store.n.Load() != 1 {
		t.Errorf("an append at any version: %v, after %d reads, want 1", err, store.n.Load())
	}
}

// Another process has begun the stream, or deleted it, which this one does not know.
func TestAnAppendThatWouldBeginAStreamFindsTheOneThatIs(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		_, other := orders(t, reopen)
		event := stream.NewEvent{ID: "e", Type: "t", Data: []byte("1")}
		for _, name := range []string{"there", "there too", "repeated", "repeated too", "gone"} {
			_, err := other.Append(t.Context(), name, 0, event)
			check(t, err)
		}
		_, err := other.Delete(t.Context(), "gone", stream.Any)
		check(t, err)
		_, c := another(t, reopen)
		for name, expected := range map[string]stream.Expected{"there": 0, "there too": stream.NoStream} {
			conflict, is := errors.AsType[*stream.ConflictError](func() error {
				_, err := c.Append(t.Context(), name, expected, stream.NewEvent{ID: "another", Type: "t"})
				return err
			}())
			if !is || conflict.Actual != 1 || !conflict.Exists {
				t.Errorf("%s at %v: %+v, want a conflict with version 1", name, expected, conflict)
			}
		}
		for name, expected := range map[string]stream.Expected{"repeated": 0, "repeated too": 0} {
			if done, err := c.Append(t.Context(), name, expected, event); err != nil || !done.Duplicate {
				t.Errorf("%s again: %+v, %v, want a duplicate", name, done, err)
			}
		}
		if done, err := c.Append(t.Context(), "gone", stream.NoStream, stream.NewEvent{Type: "t"}); err != nil || done.First != 1 {
			t.Errorf("a deleted stream is begun anew: %+v, %v, want version 1", done, err)
		}
		if _, err := c.Append(t.Context(), strings.Repeat("x", 10_000), 0, event); err == nil || errors.Is(err, stream.ErrConflict) {
			t.Errorf("a name that is too long: %v", err)
		}
	})
}
