// Package storetest is the contract of eventlog.Store as tests. Every store runs it:
//
//	func TestMain(m *testing.M) {
//		storetest.Work(Open) // does not return in a worker process
//		os.Exit(m.Run())
//	}
//
//	func TestStore(t *testing.T) { storetest.Run(t, storetest.Harness{...}) }
//
// Random tests print their seed; WEIR_SEED sets it.
package storetest

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/seed"
)

// Harness is what the tests need to know about a store.
type Harness struct {
	// Place makes an empty place for one store, and returns its address. The place is removed after
	// the test.
	Place func(t *testing.T) string
	// Open opens the store at a place. Two stores opened at one place hold the same data.
	Open Opener
	// Backup copies what the store at a place holds, and returns a function that puts it back under
	// the stores that are open there.
	Backup func(t *testing.T, place string) (restore func())
	// OneProcess leaves out the tests with several processes, for a store that lives and ends with
	// its process.
	OneProcess bool
}

// Opener opens the store at a place, in this process or in a worker.
type Opener func(ctx context.Context, place string) (eventlog.Store, error)

// Run tests a store against the contract.
func Run(t *testing.T, h Harness) {
	for _, group := range []map[string]func(*testing.T, Harness){
		commitTests, stateTests, readTests, trimTests, replaceTests, seekTests, movedTests, incarnationTests, concurrencyTests, historyTests,
	} {
		runAll(t, h, group)
	}
	if !h.OneProcess {
		runAll(t, h, processTests)
	}
}

func runAll(t *testing.T, h Harness, tests map[string]func(*testing.T, Harness)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, h) })
	}
}

// rig is a store under test, and helpers for what the tests do with it.
type rig struct {
	*testing.T
	ctx   context.Context
	place string
	store eventlog.Store
	open  Opener
}

func newRig(t *testing.T, h Harness) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	r := &rig{T: t, ctx: ctx, place: h.Place(t), open: h.Open}
	r.store = r.another()
	return r
}

// another opens the same store once more, as a second process would.
func (r *rig) another() eventlog.Store {
	r.Helper()
	store, err := r.open(r.ctx, r.place)
	if err != nil {
		r.Fatalf("open %s: %v", r.place, err)
	}
	r.Cleanup(func() {
		if err := store.Close(); err != nil {
			r.Errorf("close %s: %v", r.place, err)
		}
	})
	return store
}

func (r *rig) reopen() {
	r.Helper()
	if err := r.store.Close(); err != nil {
		r.Fatalf("close: %v", err)
	}
	r.store = r.another()
}

// commit makes one flush and expects the store to answer it.
func (r *rig) commit(flush ...eventlog.Entry) []eventlog.Outcome {
	r.Helper()
	outcomes, err := r.store.Commit(r.ctx, flush)
	if err != nil {
		r.Fatalf("commit: %v", err)
	}
	if len(outcomes) != len(flush) {
		r.Fatalf("commit answered %d outcomes for %d entries", len(outcomes), len(flush))
	}
	return outcomes
}

// do commits one entry that must happen, and returns where its batches begin.
func (r *rig) do(entry eventlog.Entry) []eventlog.Offset {
	r.Helper()
	o := r.commit(entry)[0]
	if o.Err != nil {
		r.Fatalf("entry refused: %v", o.Err)
	}
	if len(o.Base) != len(entry.Batches) {
		r.Fatalf("entry with %d batches got %d offsets", len(entry.Batches), len(o.Base))
	}
	return o.Base
}

func (r *rig) openPartitions(ids ...eventlog.Partition) {
	r.Helper()
	entry := eventlog.Entry{}
	for _, id := range ids {
		entry.Batches = append(entry.Batches, eventlog.Batch{Partition: id})
	}
	r.do(entry)
}

// publish appends batches in one entry.
func (r *rig) publish(batches ...eventlog.Batch) []eventlog.Offset {
	r.Helper()
	return r.do(eventlog.Entry{Batches: batches})
}

func (r *rig) put(puts ...eventlog.Put) {
	r.Helper()
	r.do(eventlog.Entry{Puts: puts})
}

func (r *rig) read(spans ...eventlog.Span) []eventlog.Slice {
	r.Helper()
	return r.readWithin(math.MaxInt, spans...)
}

// readWithin reads at most so many bytes.
func (r *rig) readWithin(maxBytes int, spans ...eventlog.Span) []eventlog.Slice {
	r.Helper()
	slices, err := r.store.Read(r.ctx, spans, maxBytes)
	if err != nil {
		r.Fatalf("read: %v", err)
	}
	if len(slices) != len(spans) {
		r.Fatalf("read answered %d slices for %d spans", len(slices), len(spans))
	}
	return slices
}

func (r *rig) bounds(id eventlog.Partition) eventlog.Bounds {
	r.Helper()
	slice := r.read(eventlog.Span{Partition: id})[0]
	if slice.Err != nil {
		r.Fatalf("bounds of partition %d: %v", id, slice.Err)
	}
	return slice.Bounds
}

// all reads what a partition holds.
func (r *rig) all(id eventlog.Partition) []eventlog.Placed {
	r.Helper()
	placed, err := scan(r.ctx, r.store, id)
	if err != nil {
		r.Fatal(err)
	}
	return placed
}

func (r *rig) list(prefix, after string, limit int) []eventlog.KeyValue {
	r.Helper()
	list, err := r.store.List(r.ctx, prefix, after, limit)
	if err != nil {
		r.Fatalf("list: %v", err)
	}
	return list
}

func (r *rig) get(maxBytes int, keys ...string) []eventlog.KeyValue {
	r.Helper()
	found, err := r.store.Get(r.ctx, keys, maxBytes)
	if err != nil {
		r.Fatalf("get: %v", err)
	}
	return found
}

func (r *rig) trim(id eventlog.Partition, before eventlog.Offset) {
	r.Helper()
	if err := Trim(r.ctx, r.store, id, before); err != nil {
		r.Fatalf("trim: %v", err)
	}
}

// Trim trims one partition.
func Trim(ctx context.Context, s eventlog.Store, id eventlog.Partition, before eventlog.Offset) error {
	errs, err := s.Trim(ctx, []eventlog.Trim{{Partition: id, Before: before}})
	if err != nil {
		return err
	}
	return errs[0]
}

func (r *rig) forget(ids ...eventlog.Partition) {
	r.Helper()
	r.do(eventlog.Entry{Forgets: ids})
}

func (r *rig) seek(id eventlog.Partition, goal eventlog.Goal) eventlog.Offset {
	r.Helper()
	at, err := seekOne(r.ctx, r.store, id, goal)
	if err != nil {
		r.Fatalf("seek: %v", err)
	}
	return at
}

// seekOne seeks in one partition.
func seekOne(ctx context.Context, s eventlog.Store, id eventlog.Partition, goal eventlog.Goal) (eventlog.Offset, error) {
	goal.Partition = id
	found, err := s.Seek(ctx, []eventlog.Goal{goal})
	if err != nil {
		return 0, err
	}
	return found[0].At, found[0].Err
}

// batch is a batch of so many records for a partition, with opaque bytes.
func batch(id eventlog.Partition, records int32, size int) eventlog.Batch {
	return eventlog.Batch{Partition: id, Records: records, MaxTime: 1_700_000_000_000, Bytes: make([]byte, size)}
}

// chance returns a source of random numbers whose seed is printed.
func chance(t *testing.T) *rand.Rand {
	t.Helper()
	return seed.Random(t)
}
