package queue_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/sqlite"
)

// storeUnderTest is the kind of store that newStore returns: TestMain runs the tests on each.
// PostgreSQL has no place here, because its answers do not come in fake time: its tests are in
// postgres_test.go.
var storeUnderTest = "memory"

func TestMain(m *testing.M) {
	code := m.Run()
	var names []string
	askers.Range(func(name, _ any) bool { names = append(names, name.(string)); return true })
	if len(names) > 0 { // the others would do the same again
		storeUnderTest = "sqlite"
		fmt.Println("again, on SQLite")
		_, subtests, are := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
		run := "^(" + strings.Join(names, "|") + ")$"
		if are {
			run += "/" + subtests
		}
		if err := flag.Set("test.run", run); err != nil {
			panic(err) // only for an unknown flag
		}
		code = max(code, m.Run())
	}
	os.Exit(code)
}

// askers has the names of the tests that asked for a store.
var askers sync.Map

// newStore returns an empty store.
func newStore(t testing.TB) eventlog.Store {
	t.Helper()
	if storeUnderTest == "memory" {
		name, _, _ := strings.Cut(t.Name(), "/")
		askers.Store(name, true)
		return memory.New()
	}
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "weir.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return store
}

// once skips a test that takes long, and is the same whatever the store is, when it is its turn
// again.
func once(t *testing.T) {
	if storeUnderTest != "memory" {
		t.Skip("it ran already, and is the same on every store")
	}
}
