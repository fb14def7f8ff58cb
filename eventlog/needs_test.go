package eventlog_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/storetest"
)

// A store can say that it needs something. A weir that does not know it opens no log on it; one
// that runs already reads and writes nothing more; and both say what to do.
func TestAStoreThatNeedsWhatThisWeirDoesNotKnowIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		running := open(t, store, eventlog.Config{Poll: time.Second})
		p := topic(t, running, "orders", 1).Partitions[0]
		if _, err := running.Append(t.Context(), sealed(t, p, 1, -1, 0, 0)); err != nil {
			t.Fatal(err)
		}
		storetest.Need(t, store.Again(), "a", "b")
		keys, err := store.Again().List(t.Context(), "", "", 1000)
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, eventlog.ErrUpgraded) || !strings.Contains(err.Error(), `needs "a" and "b"`) || !strings.Contains(err.Error(), `use a weir that knows "a" and "b"`) {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err = running.Append(t.Context(), sealed(t, p, 1, -1, 0, 0))
		check("an append of a process that runs", err)
		_, err = running.Bounds(t.Context(), p)
		check("a read of a process that runs", err)
		_, err = eventlog.Open(t.Context(), store.Again(), eventlog.Config{})
		check("open", err)
		_, _, err = eventlog.FindClosed(t.Context(), store.Again())
		check("a copy", err)
		check("a command without a server", eventlog.CheckOpen(t.Context(), store.Again()))
		check("closing", eventlog.CloseStore(t.Context(), store.Again(), &eventlog.Closed{By: "a test"}))
		if now, err := store.Again().List(t.Context(), "", "", 1000); err != nil || len(now) != len(keys) {
			t.Errorf("the store has %d keys, and had %d, %v", len(now), len(keys), err)
		}
	})
}

func TestAStoreThatNeedsWhatThisWeirKnowsIsUsed(t *testing.T) {
	eventlog.Know(t, "a", "b")
	of := memory.New()
	p := topic(t, open(t, of.Again(), eventlog.Config{}), "orders", 1).Partitions[0]
	trips := func() [2]int64 {
		store := &counting{Store: of.Again()}
		if err := eventlog.CheckOpen(t.Context(), store); err != nil {
			t.Fatal(err)
		}
		if _, err := eventlog.Open(t.Context(), store, eventlog.Config{}); err != nil {
			t.Fatal(err)
		}
		return [2]int64{store.lists.Load(), store.reads.Load()}
	}
	before := trips()
	storetest.Need(t, of.Again(), "a", "b")
	if after := trips(); after != before {
		t.Errorf("to open the store costs %d trips, and %d before", after, before)
	}
	if _, err := open(t, of, eventlog.Config{}).Append(t.Context(), sealed(t, p, 1, -1, 0, 0)); err != nil {
		t.Error(err)
	}
}

func TestNeedsThatCannotBeReadAreRefused(t *testing.T) {
	store := memory.New()
	log := open(t, store, eventlog.Config{})
	if _, err := log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: eventlog.NeedsKey, Version: 1, Value: []byte(`{"of": "another form"}`)}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := eventlog.Open(t.Context(), store, eventlog.Config{}); !errors.Is(err, eventlog.ErrUpgraded) {
		t.Errorf("%v, want ErrUpgraded", err)
	}
}
