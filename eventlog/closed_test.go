package eventlog_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// Who writes keys without a log hears that a store is closed, and why; with one call of the store.
func TestAClosedStoreIsNotOpen(t *testing.T) {
	of := memory.New()
	open(t, of.Again(), eventlog.Config{})
	check := func() error {
		t.Helper()
		store := &counting{Store: of.Again()}
		err := eventlog.CheckOpen(t.Context(), store)
		if n := store.lists.Load(); n != 1 {
			t.Errorf("that took %d lists", n)
		}
		return err
	}
	for range 2 {
		if err := eventlog.CloseStore(t.Context(), of.Again(), &eventlog.Closed{By: "a test", Why: "it was moved to the attic"}); err != nil {
			t.Fatal(err)
		}
		if err := check(); !errors.Is(err, eventlog.ErrStoreClosed) || !strings.Contains(err.Error(), "attic") {
			t.Errorf("closed: %v", err)
		}
		if err := eventlog.CloseStore(t.Context(), of.Again(), nil); err != nil {
			t.Fatal(err)
		}
		if err := check(); err != nil {
			t.Errorf("open again: %v", err)
		}
	}
}
