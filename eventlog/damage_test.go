package eventlog_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// rotten is a store that does not give back what was written.
type rotten struct {
	eventlog.Store
	mu  sync.Mutex // guards rot
	rot func(*eventlog.Slice)
}

func (r *rotten) set(rot func(*eventlog.Slice)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rot = rot
}

func (r *rotten) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	got, err := r.Store.Read(ctx, spans, maxBytes)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range got {
		if r.rot != nil {
			r.rot(&got[i])
		}
	}
	return got, err
}

// decayed is a log whose partition p has ten batches of one record, of which none is in memory.
func decayed(t *testing.T) (store *rotten, log *eventlog.Log, p eventlog.Partition, said *bytes.Buffer) {
	t.Helper()
	store, said = &rotten{Store: memory.New()}, new(bytes.Buffer)
	writer := open(t, store, eventlog.Config{})
	p = topic(t, writer, "orders", 2).Partitions[1]
	for range 10 {
		if _, err := writer.Publish(t.Context(), p, batch.Record{Value: []byte("0123456789"), Timestamp: 5}); err != nil {
			t.Fatal(err)
		}
	}
	return store, open(t, store, eventlog.Config{Logger: slog.New(slog.NewTextHandler(said, nil))}), p, said
}

// One changed bit, anywhere but in the bytes that readers patch, is an error with the place in it,
// and never data.
func TestABatchThatChangedInTheStoreIsNeverDelivered(t *testing.T) {
	store, log, p, said := decayed(t)
	size := len(one(t, log, p, 4).Batches[0].Bytes)
	for at := 8; at < size; at++ {
		if at >= 12 && at < 16 { // the leader epoch: readers write their own there
			continue
		}
		for _, bit := range []byte{1, 0x80} {
			store.set(func(s *eventlog.Slice) {
				for _, b := range s.Batches {
					if b.Base == 4 {
						b.Bytes[at] ^= bit
					}
				}
			})
			got := one(t, log, p, 4)
			var damaged *eventlog.DamagedError
			if !errors.As(got.Err, &damaged) || len(got.Batches) > 0 || damaged.Partition != p || damaged.From != 4 || damaged.Next != 5 || damaged.Topic != "orders" || damaged.Number != 1 {
				t.Fatalf("bit %#x of byte %d of %d: %+v", bit, at, size, got)
			}
		}
	}
	if n := strings.Count(said.String(), "events are damaged"); n != 1 || !strings.Contains(said.String(), "topic=orders partition=1 offset=4") {
		t.Errorf("the operator is told %d times: %s", n, said)
	}
}

// What is before and behind the damage is delivered, and other partitions are not affected.
func TestDamageWithholdsNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		rot  func(s *eventlog.Slice)
		next eventlog.Offset
	}{
		"a changed byte": {func(s *eventlog.Slice) {
			for _, b := range s.Batches {
				if b.Base == 4 {
					b.Bytes[len(b.Bytes)-1]++
				}
			}
		}, 5},
		"a short batch": {func(s *eventlog.Slice) {
			for i, b := range s.Batches {
				if b.Base == 4 {
					s.Batches[i].Bytes = b.Bytes[:20]
				}
			}
		}, 5},
		"a missing batch": {func(s *eventlog.Slice) {
			for i, b := range s.Batches {
				if b.Base == 4 {
					s.Batches = append(s.Batches[:i:i], s.Batches[i+1:]...)
					break
				}
			}
		}, 5},
		"nothing at all": {func(s *eventlog.Slice) {
			for i, b := range s.Batches {
				if b.Base == 4 {
					s.Batches = s.Batches[:i]
					break
				}
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			store, log, p, _ := decayed(t)
			other := topic(t, log, "others", 1).Partitions[0]
			if _, err := log.Publish(t.Context(), other, batch.Record{}); err != nil {
				t.Fatal(err)
			}
			store.set(c.rot)
			fetch := func(from eventlog.Offset) []eventlog.Slice {
				t.Helper()
				got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: from, MaxBytes: 1 << 20}, {Partition: other, MaxBytes: 1 << 20}}})
				if err != nil {
					t.Fatal(err)
				}
				if len(got[1].Batches) != 1 || got[1].Err != nil {
					t.Errorf("the other partition: %+v", got[1])
				}
				return got
			}
			if got := fetch(0); got[0].Err != nil || len(got[0].Batches) != 4 {
				t.Errorf("before the damage: %d batches, %v", len(got[0].Batches), got[0].Err)
			}
			var damaged *eventlog.DamagedError
			if got := fetch(4); !errors.As(got[0].Err, &damaged) || damaged.Next != c.next || !strings.Contains(got[0].Err.Error(), `topic "orders", partition 1`) {
				t.Errorf("at the damage: %+v", got[0])
			}
			if got := fetch(5); got[0].Err != nil || len(got[0].Batches) != 5 {
				t.Errorf("behind the damage: %d batches, %v", len(got[0].Batches), got[0].Err)
			}
		})
	}
}

// A damaged batch takes of the budget as any other. Who comes after it gets nothing for that
// reason, and is not damaged.
func TestDamageIsNotLaidToThoseThatHaveNoBudgetLeft(t *testing.T) {
	store, log, p, _ := decayed(t)
	other := topic(t, log, "others", 1).Partitions[0]
	if _, err := log.Publish(t.Context(), other, batch.Record{Value: []byte("0123456789")}); err != nil {
		t.Fatal(err)
	}
	store.set(func(s *eventlog.Slice) {
		if s.Bounds.Partition == p && len(s.Batches) > 0 {
			s.Batches[0].Bytes[70]++
		}
	})
	size := len(one(t, log, other, 0).Batches[0].Bytes)
	reader := open(t, store, eventlog.Config{}) // has neither in memory
	got, err := reader.Fetch(t.Context(), eventlog.Want{
		Spans:    []eventlog.Span{{Partition: p, From: 4, MaxBytes: size / 2}, {Partition: other, MaxBytes: size / 2}},
		MaxBytes: size,
	})
	if err != nil {
		t.Fatal(err)
	}
	var damaged *eventlog.DamagedError
	if !errors.As(got[0].Err, &damaged) || got[1].Err != nil {
		t.Errorf("the damaged partition: %v; the other one, which is well: %v", got[0].Err, got[1].Err)
	}
}

// panicking is a store that panics in the read of a number.
type panicking struct {
	eventlog.Store
	in atomic.Int64
}

func (s *panicking) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	if s.in.Add(-1) == 0 {
		panic("a bug")
	}
	return s.Store.Read(ctx, spans, maxBytes)
}

// No request waits for what is read ahead, so no door would catch its panic: the process would end.
func TestAPanicWhileReadingAheadIsAFailedTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &panicking{Store: memory.New()}
		log, p := history(t, store, 10)
		store.in.Store(3) // of offset 0, of offset 1, and ahead of offset 2
		for from := range eventlog.Offset(10) {
			synctest.Wait() // what is read ahead has come
			if from == 2 && store.in.Load() != 0 {
				t.Fatalf("offset 2 was not read ahead: the panic is %d reads away", store.in.Load())
			}
			if got := one(t, log, p, from); got.Err != nil || len(got.Batches) != 1 || got.Batches[0].Base != from {
				t.Fatalf("from %d: %+v", from, got)
			}
		}
	})
}

func FuzzStoredBatch(f *testing.F) {
	raw, err := batch.Seal([]batch.Record{{Value: []byte("a")}, {Value: []byte("b")}}, batch.None)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw, int32(2))
	f.Add(raw[:30], int32(2))
	f.Add([]byte{}, int32(1))
	f.Fuzz(func(t *testing.T, sent []byte, records int32) {
		store := &rotten{Store: memory.New()}
		log := open(t, store, eventlog.Config{})
		p := topic(t, log, "t", 1).Partitions[0]
		store.set(func(s *eventlog.Slice) {
			s.Bounds.Next = 100
			s.Batches = []eventlog.Placed{{Batch: eventlog.Batch{Partition: p, Records: records, Bytes: bytes.Clone(sent)}}}
		})
		got := since(t, log, p, 0)
		if got.Err == nil && got.There && got.Offset >= int64(records) {
			t.Fatalf("offset %d of %d", got.Offset, records)
		}
	})
}

// What the check of a batch costs, alone: compare with what the store takes to give the bytes.
func BenchmarkStoredBatchIsChecked(b *testing.B) {
	raw, err := batch.Seal([]batch.Record{{Value: make([]byte, 16<<10)}}, batch.None)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("check", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		for b.Loop() {
			if _, err := batch.Check(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// The damage of one large slice of an answer is found, and is of no other.
func TestDamageIsFoundInTheSliceThatHasIt(t *testing.T) {
	store := &rotten{Store: memory.New()}
	writer := open(t, store, eventlog.Config{})
	var spans []eventlog.Span
	for _, p := range topic(t, writer, "orders", 4).Partitions {
		for range 4 {
			if _, err := writer.Publish(t.Context(), p, batch.Record{Value: make([]byte, 100<<10)}); err != nil {
				t.Fatal(err)
			}
		}
		spans = append(spans, eventlog.Span{Partition: p, MaxBytes: 1 << 20})
	}
	for damaged, s := range spans {
		for place := range 4 {
			store.set(func(slice *eventlog.Slice) {
				if slice.Bounds.Partition == s.Partition {
					b := &slice.Batches[place]
					b.Bytes = bytes.Clone(b.Bytes)
					b.Bytes[len(b.Bytes)/2]++
				}
			})
			log := open(t, store, eventlog.Config{Logger: slog.New(slog.DiscardHandler)}) // with none in memory
			got, err := log.Fetch(t.Context(), eventlog.Want{Spans: spans})
			if err != nil {
				t.Fatal(err)
			}
			for i, slice := range got {
				batches, fails := 4, false
				if i == damaged {
					batches, fails = place, place == 0
				}
				if len(slice.Batches) != batches || (slice.Err != nil) != fails {
					t.Errorf("batch %d of slice %d is damaged: slice %d has %d batches and the error %v", place, damaged, i, len(slice.Batches), slice.Err)
				}
			}
		}
	}
}
