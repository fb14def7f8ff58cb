package shard

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/sqlite"
	"github.com/weir-log/weir/store/storetest"
)

// testRules are those of the tests: keys under t/ live by their first part.
var testRules = []eventlog.KeyRule{{Prefix: "t/", By: eventlog.ByFirst}, {Prefix: "compact/", By: eventlog.ByPartition}}

func TestMain(m *testing.M) {
	storetest.Work(openFiles)
	os.Exit(m.Run())
}

// The contract holds for what lives on any one shard, beside others.
func TestTheContractHoldsOnEveryShard(t *testing.T) {
	for _, at := range []int{0, 2} {
		t.Run(strconv.Itoa(at), func(t *testing.T) {
			stores, sets := map[string][]*memory.Store{}, map[string]eventlog.Store{}
			storetest.Run(t, storetest.Harness{
				Place: func(t *testing.T) string {
					stores[t.Name()] = []*memory.Store{memory.New(), memory.New(), memory.New()}
					sets[t.Name()] = on(openMemory(t, stores[t.Name()]...), at)
					return t.Name()
				},
				Open: func(_ context.Context, place string) (eventlog.Store, error) { return kept{sets[place]}, nil },
				Backup: func(_ *testing.T, place string) func() {
					restore := stores[place][at].Backup() // one shard
					return func() { restore(false) }
				},
				OneProcess: true,
			})
		})
	}
}

// kept is a store that stays open after the test closed it: what memory holds ends with it
// otherwise.
type kept struct{ eventlog.Store }

func (kept) Close() error { return nil }

func TestTheContractHoldsOnFiles(t *testing.T) {
	for _, at := range []int{0, 1} {
		t.Run(strconv.Itoa(at), func(t *testing.T) {
			storetest.Run(t, storetest.Harness{
				Place: func(t *testing.T) string { return fmt.Sprintf("%d,%s", at, t.TempDir()) },
				Open:  openFiles,
			})
		})
	}
}

// openFiles opens a set of two SQLite files, for what lives on one of them. A place is the number
// of that one, and a directory.
func openFiles(ctx context.Context, place string) (eventlog.Store, error) {
	number, dir, _ := strings.Cut(place, ",")
	at, err := strconv.Atoi(number)
	if err != nil {
		return nil, err
	}
	var shards []Shard
	for _, name := range []string{"a.db", "b.db"} {
		s, err := sqlite.Open(ctx, filepath.Join(dir, name), sqlite.Options{})
		if err != nil {
			return nil, err
		}
		shards = append(shards, Shard{name, s})
	}
	set, err := Open(ctx, shards, Options{Rules: testRules})
	if err != nil {
		return nil, err
	}
	return on(set, at), nil
}

func openMemory(t testing.TB, stores ...*memory.Store) *Set {
	t.Helper()
	var shards []Shard
	for i, s := range stores {
		shards = append(shards, Shard{"memory " + strconv.Itoa(i), s})
	}
	return openSet(t, shards...)
}

func openSet(t testing.TB, shards ...Shard) *Set {
	t.Helper()
	s, err := Open(t.Context(), shards, Options{Rules: testRules, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// homed returns a part of a key that lives on a shard.
func homed(s *Set, at int) string {
	for n := 0; ; n++ {
		if part := "part" + strconv.Itoa(n); s.place.hashed(part) == at {
			return part
		}
	}
}

// single is a set for tests that know nothing of shards: all their partitions and keys, except
// those of the store's incarnation, live on one shard.
type single struct {
	*Set
	at     int
	prefix string // of the keys
}

func on(s *Set, at int) eventlog.Store { return single{s, at, "t/" + homed(s, at) + "/"} }

func (s single) key(key string) string {
	if strings.HasPrefix(key, eventlog.EpochKey) {
		return key
	}
	return s.prefix + key
}

func (s single) batches(batches []eventlog.Batch) (out []eventlog.Batch) {
	for _, b := range batches {
		b.Partition = b.Partition.On(s.at)
		out = append(out, b)
	}
	return out
}

func (s single) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	var all []eventlog.Entry
	for _, e := range flush {
		n := eventlog.Entry{UsesReserve: e.UsesReserve, Batches: s.batches(e.Batches)}
		for _, c := range e.Checks {
			n.Checks = append(n.Checks, eventlog.Check{Key: s.key(c.Key), Version: c.Version, Holdable: c.Holdable})
		}
		for _, p := range e.Puts {
			p.Key = s.key(p.Key)
			n.Puts = append(n.Puts, p)
		}
		for _, p := range e.Forgets {
			n.Forgets = append(n.Forgets, p.On(s.at))
		}
		for _, r := range e.Replaces {
			n.Replaces = append(n.Replaces, eventlog.Replace{Partition: r.Partition.On(s.at), From: r.From, To: r.To, Batches: s.batches(r.Batches)})
		}
		all = append(all, n)
	}
	return s.Set.Commit(ctx, all)
}

func (s single) bounds(b eventlog.Bounds) eventlog.Bounds {
	b.Partition = b.Partition.On(0)
	return b
}

func (s single) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	var own []eventlog.Span
	for _, span := range spans {
		span.Partition = span.Partition.On(s.at)
		own = append(own, span)
	}
	slices, err := s.Set.Read(ctx, own, maxBytes)
	for i := range slices {
		slices[i].Bounds = s.bounds(slices[i].Bounds)
		for n := range slices[i].Batches {
			slices[i].Batches[n].Partition = slices[i].Batches[n].Partition.On(0)
		}
	}
	return slices, err
}

func (s single) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	all, mark, err := s.Set.Changes(ctx, since)
	for i := range all {
		all[i] = s.bounds(all[i])
	}
	return all, mark, err
}

func (s single) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	goals = slices.Clone(goals)
	for i := range goals {
		goals[i].Partition = goals[i].Partition.On(s.at)
	}
	return s.Set.Seek(ctx, goals)
}

func (s single) Trim(ctx context.Context, trims []eventlog.Trim) ([]error, error) {
	trims = slices.Clone(trims)
	for i := range trims {
		trims[i].Partition = trims[i].Partition.On(s.at)
	}
	return s.Set.Trim(ctx, trims)
}

func (s single) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	own := make([]string, len(keys))
	for i, key := range keys {
		own[i] = s.key(key)
	}
	found, err := s.Set.Get(ctx, own, maxBytes)
	for i := range found {
		found[i].Key = keys[i]
	}
	return found, err
}

func (s single) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	key := s.key(prefix)
	if after != "" {
		after = s.key(after)
	}
	list, err := s.Set.List(ctx, key, after, limit)
	for i := range list {
		list[i].Key = strings.TrimPrefix(list[i].Key, s.prefix)
	}
	return list, err
}
