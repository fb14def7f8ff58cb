package postgres_test

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/store/storetest"
)

func open(ctx context.Context, place string) (eventlog.Store, error) {
	opts := postgres.Options{}
	if strings.Contains(place, "weir_segment_age") {
		opts = postgres.Restless(opts)
	}
	if strings.Contains(place, "application_name=arrays") {
		opts = postgres.ByArrays(opts)
	}
	return postgres.Open(ctx, place, opts)
}

func TestMain(m *testing.M) {
	storetest.Work(open)
	os.Exit(m.Run())
}

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Place:  func(t *testing.T) string { return pgtest.URL(t) },
		Open:   open,
		Backup: pgtest.Backup,
	})
}

// The whole contract once more: with segments sealed, emptied and dropped under it all the time,
// and without anything that lives in a session, as behind a pooler.
func TestStoreOnMovingGround(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Place: func(t *testing.T) string {
			return pgtest.URL(t) + "&weir_segment_age=1ms&weir_segment_bytes=20000&weir_pooled=true"
		},
		Open: open,
	})
}

// And behind a real pooler, with one function for all commits.
func TestStoreBehindAPooler(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Place: func(t *testing.T) string {
			pooled, _ := pgtest.PooledURL(t)
			return pooled + "&weir_pooled=true&application_name=arrays"
		},
		Open: open,
	})
}

// at opens a store, closed when the test ends.
func at(t *testing.T, address string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), address, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// openPartitions opens partitions 1 to n.
func openPartitions(t *testing.T, s eventlog.Store, n int) {
	t.Helper()
	var e eventlog.Entry
	for i := range n {
		e.Batches = append(e.Batches, eventlog.Batch{Partition: eventlog.Partition(i + 1)})
	}
	commit(t, s, e)
}

// commit makes one flush that must succeed whole.
func commit(t *testing.T, s eventlog.Store, entries ...eventlog.Entry) {
	t.Helper()
	outcomes, err := s.Commit(t.Context(), entries)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range outcomes {
		if o.Err != nil {
			t.Fatalf("entry %d: %v", i, o.Err)
		}
	}
}

// batch has one record and incompressible bytes.
func batch(p eventlog.Partition, size int) eventlog.Batch {
	b := eventlog.Batch{Partition: p, Records: 1, MaxTime: 1, Bytes: make([]byte, size)}
	rand.Read(b.Bytes)
	return b
}

func publish(t *testing.T, s eventlog.Store, batches ...eventlog.Batch) {
	t.Helper()
	commit(t, s, eventlog.Entry{Batches: batches})
}

func trim(t *testing.T, s eventlog.Store, p eventlog.Partition, before eventlog.Offset) {
	t.Helper()
	if err := storetest.Trim(t.Context(), s, p, before); err != nil {
		t.Fatal(err)
	}
}

func bounds(t *testing.T, s eventlog.Store, p eventlog.Partition) eventlog.Bounds {
	t.Helper()
	slices, err := s.Read(t.Context(), []eventlog.Span{{Partition: p}}, 0)
	if err != nil || slices[0].Err != nil {
		t.Fatal(err, slices)
	}
	return slices[0].Bounds
}

// held reads a partition from end to end.
func held(t *testing.T, s eventlog.Store, p eventlog.Partition) []eventlog.Placed {
	t.Helper()
	b := bounds(t, s, p)
	var all []eventlog.Placed
	for at := b.First; at < b.Next; {
		slices, err := s.Read(t.Context(), []eventlog.Span{{Partition: p, From: at, MaxBytes: 1 << 20}}, 1<<20)
		if err != nil || len(slices[0].Batches) == 0 {
			t.Fatalf("read from %d in %+v: %v, %d batches", at, b, err, len(slices[0].Batches))
		}
		for _, placed := range slices[0].Batches {
			at = placed.End()
		}
		all = append(all, slices[0].Batches...)
	}
	return all
}
