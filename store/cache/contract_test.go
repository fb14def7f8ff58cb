package cache_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/cache"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/storetest"
)

// small are the options of a cache that always evicts: blocks of a few batches, and space for a few
// blocks.
func small(dir string) cache.Options {
	return cache.Options{Dir: dir, Bytes: 100_000, BlockBytes: 2000}
}

// open opens the store at a place, which is a URL, behind a cache of its own.
func open(ctx context.Context, place string) (eventlog.Store, error) {
	below, err := store.Open(ctx, place, nil)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "weir-cache-")
	if err != nil {
		return nil, err
	}
	cached, err := cache.Open(below, small(dir))
	return temporary{cached, dir}, err
}

// temporary is a cache whose directory is removed when it is closed.
type temporary struct {
	*cache.Store
	dir string
}

func (t temporary) Close() error {
	err := t.Store.Close()
	os.RemoveAll(t.dir)
	return err
}

func TestMain(m *testing.M) {
	storetest.Work(open)
	os.Exit(m.Run())
}

func TestTheContractHoldsInFrontOfMemory(t *testing.T) {
	places := map[string]*memory.Store{}
	cached := map[string]eventlog.Store{}
	var mu sync.Mutex
	storetest.Run(t, storetest.Harness{
		Place: func(t *testing.T) string {
			mu.Lock()
			defer mu.Unlock()
			places[t.Name()] = memory.New()
			return t.Name()
		},
		Open: func(_ context.Context, place string) (eventlog.Store, error) {
			mu.Lock()
			defer mu.Unlock()
			if cached[place] == nil { // a store in memory is one value
				one, err := cache.Open(places[place], small(filepath.Join(t.TempDir(), strings.ReplaceAll(place, "/", "_"))))
				if err != nil {
					return nil, err
				}
				cached[place] = staysOpen{one}
			}
			return cached[place], nil
		},
		Backup: func(_ *testing.T, place string) func() {
			restore := places[place].Backup()
			return func() { restore(false) }
		},
		OneProcess: true,
	})
}

// staysOpen stays open: the tests close it as often as they opened it.
type staysOpen struct{ *cache.Store }

func (staysOpen) Close() error { return nil }

func TestTheContractHoldsInFrontOfSQLite(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Place: func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "weir.db") },
		Open:  open,
	})
}

func TestTheContractHoldsInFrontOfPostgreSQL(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Place: func(t *testing.T) string { return pgtest.URL(t) },
		Open:  open,
	})
}

// BenchmarkHistory reads 64 MiB of a partition in fetches of 1 MiB, on PostgreSQL without a cache,
// and with a cache that has everything.
func BenchmarkHistory(b *testing.B) {
	for _, with := range []bool{false, true} {
		b.Run(fmt.Sprintf("cache=%v", with), func(b *testing.B) {
			s, err := store.Open(b.Context(), pgtest.URL(b), nil)
			if err != nil {
				b.Fatal(err)
			}
			if with {
				if s, err = cache.Open(s, cache.Options{Dir: b.TempDir()}); err != nil {
					b.Fatal(err)
				}
			}
			defer s.Close()
			const flushes, each = 256, 256 << 10
			if _, _, err := s.Changes(b.Context(), eventlog.Mark{}); err != nil {
				b.Fatal(err)
			}
			publish(b, s, 1, 0)
			for i := range flushes {
				publish(b, s, 1, each, byte(i))
			}
			history := func() {
				for at := eventlog.Offset(0); at < flushes; {
					got, err := s.Read(b.Context(), []eventlog.Span{{Partition: 1, From: at, MaxBytes: 1 << 20}}, 1<<20)
					if err != nil || len(got[0].Batches) == 0 {
						b.Fatal(got, err)
					}
					at += eventlog.Offset(len(got[0].Batches))
				}
			}
			history()
			b.SetBytes(flushes * each)
			for b.Loop() {
				history()
			}
		})
	}
}
