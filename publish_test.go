package weir_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/seed"
)

func TestWhatIsPublishedArrivesAsItWas(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		sent := []weir.Event{
			{Topic: "orders", Key: []byte("k"), Value: []byte("v"), Time: time.UnixMilli(1_700_000_000_123),
				Headers: []weir.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "null"}, {Key: "", Value: []byte{}}}},
			{Topic: "orders", Value: []byte("no key"), Time: time.UnixMilli(1)},
			{Topic: "orders", Key: []byte{}, Value: []byte{}, Time: time.UnixMilli(2)},
			{Topic: "orders", Key: []byte("tombstone"), Time: time.UnixMilli(3)},
		}
		if _, err := w.Publish(t.Context(), sent...); err != nil {
			t.Fatal(err)
		}
		var got seen
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
		for i := range sent {
			sent[i].Offset, sent[i].Attempt = int64(i), 1
		}
		if diff := cmp.Diff(sent, got.wait(t, len(sent)), cmpopts.IgnoreUnexported(weir.Event{})); diff != "" {
			t.Errorf("sent -, got +:\n%s", diff)
		}
	})
}

func TestPublishSaysWhereEachEventRests(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		everystore.RefusedOnShards(t, "events for partitions of two shards in one call")
		w := s.open(t)
		ensure(t, w, "a", 4)
		ensure(t, w, "b", 1)
		var sent []weir.Event
		for i := range 40 {
			sent = append(sent, events([]string{"a", "b"}[i%2], fmt.Sprintf("key%d=%d", i%7, i))...)
		}
		placed, err := w.Publish(t.Context(), sent...)
		if err != nil {
			t.Fatal(err)
		}
		var got seen
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"a", "b"}, Handler: got.note})
		at := map[string]weir.Placed{}
		for _, e := range got.wait(t, len(sent)) {
			at[string(e.Value)] = weir.Placed{Partition: e.Partition, Offset: e.Offset}
		}
		for i, e := range sent {
			if at[string(e.Value)] != placed[i] {
				t.Errorf("event %d: Publish says %v, it arrived from %v", i, placed[i], at[string(e.Value)])
			}
		}
	})
}

func TestEventsOfOneCallArePublishedAllOrNone(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "a", 2)
		for _, c := range []struct {
			name string
			bad  weir.Event
			want error
		}{
			{"an unknown topic", weir.Event{Topic: "missing"}, weir.ErrUnknownTopic},
			{"one too large", weir.Event{Topic: "a", Value: make([]byte, 2<<20)}, weir.ErrTooLarge},
		} {
			good := events("a", "k1=1", "k2=2", "k3=3")
			if _, err := w.Publish(t.Context(), append(good, c.bad)...); !errors.Is(err, c.want) {
				t.Errorf("%s among good ones: %v, want %v", c.name, err, c.want)
			}
		}
		publish(t, w, "a", "k1=after")
		var got seen
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"a"}, Handler: got.note})
		if v := values(got.wait(t, 1)); !slices.Equal(v, []string{"after"}) {
			t.Errorf("events of refused calls are there: %q", v)
		}
	})
}

func TestPublishOnceIsKnownInAnotherLog(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		everystore.RefusedOnShards(t, "an idempotency key for a topic on two shards")
		w, other := s.open(t), s.open(t)
		ensure(t, w, "orders", 3)
		order := weir.Event{Topic: "orders", Key: []byte("4711"), Value: []byte("v"), Time: time.UnixMilli(7)}
		first, repeated, err := w.PublishOnce(t.Context(), "req-1", order)
		if err != nil || repeated {
			t.Fatalf("first: repeated %v, %v", repeated, err)
		}
		again, repeated, err := other.PublishOnce(t.Context(), "req-1", order)
		if err != nil || !repeated || !slices.Equal(first, again) {
			t.Errorf("again: %v, repeated %v, %v; want %v, repeated", again, repeated, err, first)
		}
		order.Value = []byte("another")
		if _, _, err := other.PublishOnce(t.Context(), "req-1", order); !errors.Is(err, weir.ErrKeyReused) {
			t.Errorf("the key with another event: %v, want ErrKeyReused", err)
		}
	})
}

func TestSameKeySamePartitionAndAllAreUsed(t *testing.T) {
	random := seed.Random(t)
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 5)
	used := map[int32]bool{}
	for range 50 {
		key := fmt.Sprint("key", random.Uint64())
		var at []int32
		for range 5 {
			at = append(at, publish(t, w, "orders", key+"=v")[0].Partition)
		}
		if at = slices.Compact(at); len(at) != 1 {
			t.Errorf("key %s went to the partitions %v", key, at)
		}
		used[at[0]] = true
	}
	if len(used) != 5 {
		t.Errorf("50 keys use %d of 5 partitions", len(used))
	}
	keyless := map[int32]bool{}
	for range 5000 {
		keyless[publish(t, w, "orders", "v")[0].Partition] = true
	}
	if len(keyless) != 5 {
		t.Errorf("events without a key use %d of 5 partitions", len(keyless))
	}
}

func TestPartitionerOfTheCaller(t *testing.T) {
	w := newSite(t, "memory").open(t, weir.Options{Partitioner: weir.ByPartitionField})
	ensure(t, w, "orders", 3)
	for _, c := range []struct {
		partition int32
		refused   bool
	}{{0, false}, {2, false}, {1, false}, {3, true}, {10, true}, {101, true}, {-1, true}, {-99, true}} {
		placed, err := w.Publish(t.Context(), weir.Event{Topic: "orders", Partition: c.partition})
		var invalid *weir.InvalidError
		switch {
		case c.refused && !errors.As(err, &invalid):
			t.Errorf("partition %d of 3: %v, want an InvalidError", c.partition, err)
		case c.refused && !strings.Contains(err.Error(), fmt.Sprint(c.partition)):
			t.Errorf("the error does not name partition %d: %v", c.partition, err)
		case !c.refused && (err != nil || placed[0].Partition != c.partition):
			t.Errorf("partition %d of 3: %v, %v", c.partition, placed, err)
		}
	}
	if _, err := w.Publish(t.Context(), weir.Event{Topic: "missing"}); !errors.Is(err, weir.ErrUnknownTopic) || !strings.Contains(err.Error(), `"missing": create it with EnsureTopic or weir topic create`) {
		t.Errorf("an unknown topic: %v", err)
	}
}

// What a partitioner answers is weir's choice and not the caller's: a repetition is one whatever it
// would answer now.
func TestARepetitionIsKnownWhateverThePartitionerWouldAnswerNow(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		everystore.RefusedOnShards(t, "an idempotency key for a topic on two shards")
		w := s.open(t, weir.Options{Partitioner: func(_ *weir.Event, n int) int32 { return int32(n) - 1 }})
		ensure(t, w, "orders", 2)
		order := events("orders", "a=1", "b=2")
		first, _, err := w.PublishOnce(t.Context(), "key", order...)
		if err != nil || first[0].Partition != 1 {
			t.Fatalf("first: %v, %v", first, err)
		}
		for _, change := range []struct {
			name string
			do   func() error
		}{
			{"raised", func() error { return w.RaisePartitions(t.Context(), "orders", 5) }},
			{"deleted", func() error { return w.DeleteTopic(t.Context(), "orders") }},
		} {
			if err := change.do(); err != nil {
				t.Fatal(err)
			}
			again, repeated, err := w.PublishOnce(t.Context(), "key", order...)
			if err != nil || !repeated || !slices.Equal(again, first) {
				t.Errorf("%s: %v, repeated %v, %v; want %v", change.name, again, repeated, err, first)
			}
		}
	})
}

// Where the caller's partitioner looks at Event.Partition, that is the caller's choice, and another
// one makes another event.
func TestAnotherPartitionUnderTheSameKeyIsRefused(t *testing.T) {
	s := newSite(t, "memory")
	for name, c := range map[string]struct {
		partitioner weir.Partitioner
		refused     bool
	}{"by field": {weir.ByPartitionField, true}, "default": {nil, false}} {
		w := s.open(t, weir.Options{Partitioner: c.partitioner})
		ensure(t, w, "orders", 3)
		if _, _, err := w.PublishOnce(t.Context(), name, weir.Event{Topic: "orders", Partition: 1}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.PublishOnce(t.Context(), name, weir.Event{Topic: "orders", Partition: 2}); errors.Is(err, weir.ErrKeyReused) != c.refused {
			t.Errorf("%s: another partition: %v", name, err)
		}
	}
}

func TestManyPublishersKeepTheOrderOfTheirKeys(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 3)
		const publishers, each = 20, 25
		var all sync.WaitGroup
		for p := range publishers {
			all.Go(func() {
				for i := range each {
					publish(t, w, "orders", fmt.Sprintf("key%d=%d", p, i))
				}
			})
		}
		all.Wait()
		var got seen
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
		reached := map[string]int{}
		for _, e := range got.wait(t, publishers*each) {
			if want := fmt.Sprint(reached[string(e.Key)]); string(e.Value) != want {
				t.Fatalf("key %s: event %s came where %s was next", e.Key, e.Value, want)
			}
			reached[string(e.Key)]++
		}
	})
}

func TestAfterCloseNothingIsPublished(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		closeLog(t, w)
		if _, err := w.Publish(t.Context(), events("orders", "late")...); !errors.Is(err, weir.ErrClosed) {
			t.Errorf("publish after Close: %v, want ErrClosed", err)
		}
		_, err := w.Consume(t.Context(), weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(context.Context, weir.Event) error { return nil }})
		if err == nil {
			t.Error("consume after Close worked")
		}
	})
}
