package storecopy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/storecopy"
	"github.com/weir-log/weir/store/storetest"
)

const part = eventlog.Partition(1)

// sealed is a batch of the offsets [from, to), as compaction leaves it: it has records at the
// offsets that are listed, each with a key and a value of valueBytes.
func sealed(t *testing.T, from, to eventlog.Offset, valueBytes int, offsets ...eventlog.Offset) eventlog.Batch {
	t.Helper()
	b := batch.Compacted{Base: int64(from), Last: int64(to) - 1, EmptyTime: 1}
	for _, o := range offsets {
		b.Records = append(b.Records, batch.Record{Offset: int64(o), Timestamp: 1, Key: fmt.Append(nil, "k", o), Value: make([]byte, valueBytes)})
	}
	raw, err := b.Seal()
	if err != nil {
		t.Fatal(err)
	}
	return eventlog.Batch{Partition: part, Records: int32(to - from), MaxTime: 1, Bytes: raw}
}

func commit(t *testing.T, store eventlog.Store, e eventlog.Entry) {
	t.Helper()
	for _, r := range e.Replaces {
		e.Puts = append(e.Puts, eventlog.Put{Key: eventlog.ReplacedKey(r.Partition), Version: eventlog.Version(time.Now().UnixNano()), Value: []byte("{}")})
	}
	if out, err := store.Commit(t.Context(), []eventlog.Entry{e}); err != nil || out[0].Err != nil {
		t.Fatal(out, err)
	}
}

// small appends n batches of two offsets each, with both records.
func small(t *testing.T, store eventlog.Store, from eventlog.Offset, n int) {
	t.Helper()
	for range n {
		commit(t, store, eventlog.Entry{Batches: []eventlog.Batch{sealed(t, from, from+2, 10, from, from+1)}})
		from += 2
	}
}

// source is a store with a partition.
func source(t *testing.T) *memory.Store {
	t.Helper()
	store := memory.New()
	commit(t, store, eventlog.Entry{Batches: []eventlog.Batch{{Partition: part}}})
	return store
}

func copyOf(t *testing.T, from, to eventlog.Store) *storecopy.Copy {
	t.Helper()
	c, err := storecopy.Begin(t.Context(), from, to, "SOURCE", "TARGET", nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pass(t *testing.T, c *storecopy.Copy) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := c.Pass(ctx); err != nil {
		t.Fatal(err)
	}
}

// offsets lists the records that a store has, from its first offset on.
func offsets(t *testing.T, store eventlog.Store) (all []int64) {
	t.Helper()
	bounds, _, err := store.Changes(t.Context(), eventlog.Mark{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := store.Read(t.Context(), []eventlog.Span{{Partition: part, From: bounds[0].First, MaxBytes: 1 << 20}}, 1<<20)
	if err != nil || got[0].Err != nil {
		t.Fatal(got, err)
	}
	for _, b := range got[0].Batches {
		for rec, err := range b.Decode() {
			if err != nil {
				t.Fatal(err)
			}
			if rec.Offset >= int64(bounds[0].First) {
				all = append(all, rec.Offset)
			}
		}
	}
	return all
}

// A source compacts batches that were copied, and then trims the first records of what they became.
func TestACopyFollowsCompactionOfWhatIsThenTrimmedInPart(t *testing.T) {
	from, to := source(t), memory.New()
	small(t, from, 0, 10)
	c := copyOf(t, from, to)
	pass(t, c)
	small(t, from, 20, 5)
	commit(t, from, eventlog.Entry{Replaces: []eventlog.Replace{{Partition: part, From: 0, To: 26, Batches: []eventlog.Batch{sealed(t, 0, 26, 10, 2, 9, 19, 21, 25)}}}})
	if err := storetest.Trim(t.Context(), from, part, 5); err != nil {
		t.Fatal(err)
	}
	pass(t, c)
	if err := c.Compare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Switch(t.Context(), func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if got, want := offsets(t, to), "[5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 21 25 26 27 28 29]"; fmt.Sprint(got) != want {
		t.Errorf("the copy has the records %v, want %s", got, want)
	}
}

// What the target lacks of a batch that the source has compacted and trimmed is found.
func TestACopyWithoutARecordOfAHalfTrimmedBatchIsDifferent(t *testing.T) {
	from, to := source(t), memory.New()
	small(t, from, 0, 10)
	c := copyOf(t, from, to)
	pass(t, c)
	commit(t, to, eventlog.Entry{Replaces: []eventlog.Replace{{Partition: part, From: 8, To: 10, Batches: []eventlog.Batch{sealed(t, 8, 10, 10, 8)}}}})
	commit(t, from, eventlog.Entry{Replaces: []eventlog.Replace{{Partition: part, From: 0, To: 20, Batches: []eventlog.Batch{sealed(t, 0, 20, 10, 2, 9, 19)}}}})
	if err := storetest.Trim(t.Context(), from, part, 5); err != nil {
		t.Fatal(err)
	}
	var different *storecopy.DifferentError
	if err := c.Compare(t.Context()); !errors.As(err, &different) || !strings.Contains(err.Error(), "the record at offset 9 of partition 1") {
		t.Errorf("compare: %v, want that the record at offset 9 is missing", err)
	}
}

// hooked is a store that calls before ahead of each read of one batch, as when compacted batches
// are copied again.
type hooked struct {
	eventlog.Store
	before func()
}

func (h hooked) Read(ctx context.Context, spans []eventlog.Span, most int) ([]eventlog.Slice, error) {
	if most == 1 {
		h.before()
	}
	return h.Store.Read(ctx, spans, most)
}

// While Compare copies again what was compacted in the source, the source goes on to trim, compact
// and delete.
func TestCompareIsNotMisledByASourceThatChangesMeanwhile(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, from *memory.Store){
		"trimmed": func(t *testing.T, from *memory.Store) {
			if err := storetest.Trim(t.Context(), from, part, 8); err != nil {
				t.Fatal(err)
			}
		},
		"compacted": func(t *testing.T, from *memory.Store) {
			commit(t, from, eventlog.Entry{Replaces: []eventlog.Replace{{Partition: part, From: 0, To: 20, Batches: []eventlog.Batch{sealed(t, 0, 20, 10, 19)}}}})
		},
		"deleted": func(t *testing.T, from *memory.Store) {
			commit(t, from, eventlog.Entry{Forgets: []eventlog.Partition{part}})
		},
	} {
		for at := 1; at <= 3; at++ { // the read before which it happens
			t.Run(fmt.Sprintf("%s before read %d", name, at), func(t *testing.T) {
				from, to := source(t), memory.New()
				small(t, from, 0, 10)
				reads := 0
				c := copyOf(t, hooked{from, func() {
					if reads++; reads == at {
						change(t, from)
					}
				}}, to)
				pass(t, c)
				commit(t, from, eventlog.Entry{Replaces: []eventlog.Replace{{Partition: part, From: 0, To: 8, Batches: []eventlog.Batch{sealed(t, 0, 8, 10, 6, 7)}}}})
				if err := c.Compare(t.Context()); err != nil {
					t.Error(err)
				}
				if reads < min(at, 2) {
					t.Errorf("batches were read one by one %d times: the source has not changed", reads)
				}
			})
		}
	}
}

// A source whose batches end at other offsets than those of the copy was not compacted: how much of
// it is held in memory is bounded.
func TestWhatIsCopiedAgainIsBounded(t *testing.T) {
	const large = 6 << 20
	from, to := source(t), memory.New()
	for _, o := range []eventlog.Offset{0, 10, 20, 30, 40} {
		commit(t, from, eventlog.Entry{Batches: []eventlog.Batch{sealed(t, o, o+10, large, o)}})
	}
	c := copyOf(t, from, to)
	pass(t, c)
	var other []eventlog.Batch
	for _, span := range [][2]eventlog.Offset{{0, 11}, {11, 22}, {22, 33}, {33, 44}, {44, 50}} {
		other = append(other, sealed(t, span[0], span[1], large, span[0]))
	}
	commit(t, from, eventlog.Entry{Replaces: []eventlog.Replace{{Partition: part, From: 0, To: 50, Batches: other}}})
	var different *storecopy.DifferentError
	if err := c.Compare(t.Context()); !errors.As(err, &different) || !strings.Contains(err.Error(), "from offset 0 to 22") {
		t.Errorf("compare: %v, want that source and target do not end at the same offset", err)
	}
}
