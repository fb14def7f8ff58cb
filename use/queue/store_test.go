package queue_test

import (
	"fmt"
	"os"
	"path/filepath"
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
	storeUnderTest = "sqlite"
	fmt.Println("again, on SQLite")
	os.Exit(max(code, m.Run()))
}

// newStore returns an empty store.
func newStore(t testing.TB) eventlog.Store {
	t.Helper()
	if storeUnderTest == "memory" {
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
