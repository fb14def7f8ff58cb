// Package everystore gives tests an empty store of each kind that weir has.
package everystore

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/s3test"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/keys"
)

// Kinds are the kinds of stores.
func Kinds() []string { return append([]string{"memory"}, Durable()...) }

// Durable are the kinds of stores that keep what they hold when weir stops. "shards", which is two
// SQLite files as one store, is one of them if WEIR_TEST_SHARDS is set; "s3", which is versitygw
// (see internal/s3test), is one of them if WEIR_TEST_S3 is set, as `make s3` does: its commits are
// a quarter of a second apart, so these tests take minutes.
func Durable() []string {
	all := []string{"sqlite", "postgres", "mysql"}
	if os.Getenv("WEIR_TEST_SHARDS") != "" {
		all = append(all, "shards")
	}
	if os.Getenv("WEIR_TEST_S3") != "" {
		all = append(all, "s3")
	}
	return all
}

// URL returns the URL of an empty store of a durable kind. It is removed after the test.
func URL(t testing.TB, kind string) string {
	t.Helper()
	switch kind {
	case "sqlite":
		return "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	case "shards":
		dir := t.TempDir()
		return "shard:sqlite:" + filepath.Join(dir, "a.db") + ",sqlite:" + filepath.Join(dir, "b.db")
	case "postgres":
		return pgtest.URL(t)
	case "mysql":
		return mytest.URL(t)
	case "s3":
		return s3test.URL(t)
	}
	t.Fatalf("there is no durable store of the kind %q", kind)
	return ""
}

// RefusedOnShards skips a test that needs a change which a store made of shards refuses, if it runs
// on one.
func RefusedOnShards(t testing.TB, what string) {
	t.Helper()
	if strings.HasSuffix(t.Name(), "/shards") {
		t.Skipf("refused on shards (docs/shards.md): %s", what)
	}
}

// Run runs a test on an empty store of each kind. reopen opens it once more, as another process
// would; what it opened is closed with the test.
func Run(t *testing.T, test func(t *testing.T, reopen func(t *testing.T) eventlog.Store)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		store := memory.New()
		test(t, func(*testing.T) eventlog.Store { return store })
	})
	for _, kind := range Durable() {
		t.Run(kind, func(t *testing.T) {
			url := URL(t, kind)
			test(t, func(t *testing.T) eventlog.Store { return Open(t, url) })
		})
	}
}

// Open opens the store at a URL until the test ends.
func Open(t testing.TB, url string) eventlog.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, nil, keys.Rules()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return s
}

// Direct returns the keys of a store, as a log has them, without a log: each entry is a commit. It
// is for tests in fake time, or with a store that misbehaves.
func Direct(store keyed) Keyed { return Keyed{store} }

// Keyed is what Direct returns.
type Keyed struct{ keyed }

type keyed interface {
	Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error)
	List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error)
}

// Get reads one key.
func (k Keyed) Get(ctx context.Context, key string) (eventlog.KeyValue, error) {
	kvs, err := k.List(ctx, key, "", 1)
	if err != nil || len(kvs) == 0 || kvs[0].Key != key {
		return eventlog.KeyValue{Key: key}, err
	}
	return kvs[0], nil
}

// Append commits one entry.
func (k Keyed) Append(ctx context.Context, e eventlog.Entry) (eventlog.Outcome, error) {
	outcomes, err := k.Commit(ctx, []eventlog.Entry{e})
	if err != nil {
		return eventlog.Outcome{}, err
	}
	return outcomes[0], outcomes[0].Err
}
