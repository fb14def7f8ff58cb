package weir_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
)

// transfer is an event of the category transfer, which moves money between accounts.
type transfer struct{ From, To string }

// bank is a process manager that debits and credits accounts, for the transfers that were begun.
type bank struct {
	accounts *weir.Category
	fails    func(e weir.CategoryEvent) error // before it reacts; nil: never
}

func newBank(t *testing.T, w *weir.Log) (*bank, *weir.Category) {
	t.Helper()
	transfers, err := w.EnsureCategory(t.Context(), weir.CategorySpec{Name: "transfer", Partitions: 3})
	if err != nil {
		t.Fatal(err)
	}
	accounts, err := w.EnsureCategory(t.Context(), weir.CategorySpec{Name: "account", Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	return &bank{accounts: accounts}, transfers
}

// react expects the versions that it has read, so that others who append to the accounts are in its
// way.
func (b *bank) react(ctx context.Context, e weir.CategoryEvent) ([]weir.StreamPart, error) {
	if b.fails != nil {
		if err := b.fails(e); err != nil {
			return nil, err
		}
	}
	var order transfer
	if e.Type != "Begun" || e.Deleted {
		return nil, nil
	}
	if err := json.Unmarshal(e.Data, &order); err != nil {
		return nil, err
	}
	var parts []weir.StreamPart
	for _, entry := range []struct{ account, kind string }{{order.From, "Debited"}, {order.To, "Credited"}} {
		state, err := b.accounts.State(ctx, entry.account)
		if err != nil {
			return nil, err
		}
		parts = append(parts, weir.StreamPart{Category: b.accounts, Stream: entry.account, Expected: weir.ExpectedVersion(state.Version),
			Events: []weir.NewStreamEvent{{Type: entry.kind, Data: fmt.Appendf(nil, "%s@%d", e.Stream, e.Version)}}})
	}
	return parts, nil
}

func (b *bank) manager() weir.ProcessManager {
	return weir.ProcessManager{Name: "bank", Categories: []string{"transfer"}, React: b.react, Retry: weir.Retry{Attempts: 1000, First: time.Millisecond, Max: 20 * time.Millisecond}}
}

// transferN begins n transfers in a stream.
func transferN(t *testing.T, transfers *weir.Category, stream string, n int, order transfer) {
	t.Helper()
	data, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := transfers.Append(t.Context(), stream, weir.AnyVersion, weir.NewStreamEvent{Type: "Begun", Data: data}, weir.NewStreamEvent{Type: "Noted"}); err != nil {
			t.Fatal(err)
		}
	}
}

// entries counts what the accounts have of each transfer.
func (b *bank) entries(t *testing.T, accounts ...string) map[string]int {
	t.Helper()
	times := make(map[string]int)
	for _, account := range accounts {
		for e, err := range b.accounts.Events(t.Context(), account, weir.StreamRange{}) {
			if err != nil {
				t.Fatal(err)
			}
			times[e.Type+" "+string(e.Data)]++
		}
	}
	return times
}

// Processes run the manager one after the other and side by side; each ends in the middle of its
// work. React fails, and others append to the same accounts.
func TestAProcessManagerAppendsWhatItReactsWithOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		everystore.RefusedOnShards(t, "a process manager whose group and category are on two shards")
		w := s.open(t)
		b, transfers := newBank(t, w)
		b.fails = func(e weir.CategoryEvent) error {
			if e.Attempt == 1 && e.Version%10 == 0 {
				return errors.New("it fails the first time")
			}
			return nil
		}
		const streams, each = 6, 20
		for i := range streams {
			transferN(t, transfers, fmt.Sprint("t", i), each, transfer{fmt.Sprint("a", i%2), fmt.Sprint("b", i%3)})
		}
		crowd, leave := context.WithCancel(t.Context())
		var others sync.WaitGroup
		defer others.Wait()
		defer leave()
		others.Go(func() {
			for crowd.Err() == nil {
				if _, err := b.accounts.Append(crowd, "a0", weir.AnyVersion, weir.NewStreamEvent{Type: "Noted"}); err != nil && crowd.Err() == nil {
					t.Error(err)
				}
				<-time.After(20 * time.Millisecond) // or the manager never finds the account as it has read it
			}
		})
		done := func() (n int) {
			for what, times := range b.entries(t, "a0", "a1", "b0", "b1", "b2") {
				if what != "Noted " {
					if n += times; times != 1 {
						t.Fatalf("%s %d times", what, times)
					}
				}
			}
			return n
		}
		logs := []*weir.Log{w, s.open(t)}
		var before *weir.Consumer
		for round, n := 0, 0; n < 2*streams*each; round++ {
			c, err := logs[round%2].Manage(t.Context(), b.manager())
			if err != nil {
				t.Fatal(err)
			}
			if before != nil {
				closeConsumer(t, before)
			}
			before = c
			want := min(n+40, 2*streams*each)
			eventually(t, fmt.Sprintf("%d entries are made", want), func() bool { n = done(); return n >= want })
		}
		closeConsumer(t, before)
	})
}

// forgetful is a store that loses its answers to reactions: it keeps the first, and not the second,
// and says of neither what became of it. It answers the third, and begins anew.
type forgetful struct {
	eventlog.Store
	mu    sync.Mutex // guards count
	count int
}

func (s *forgetful) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if !slices.ContainsFunc(flush, func(e eventlog.Entry) bool {
		return slices.ContainsFunc(e.Batches, func(b eventlog.Batch) bool { return bytes.Contains(b.Bytes, []byte("Debited")) })
	}) {
		return s.Store.Commit(ctx, flush)
	}
	s.mu.Lock()
	s.count++
	turn := s.count % 3
	s.mu.Unlock()
	if turn != 2 {
		out, err := s.Store.Commit(ctx, flush)
		if turn == 0 || err != nil {
			return out, err
		}
	}
	return nil, eventlog.ErrUnsure
}

func TestAReactionWhoseAnswerGotLostIsThereOnce(t *testing.T) {
	onEachStore(t, func(t *testing.T, under eventlog.Store) {
		everystore.RefusedOnShards(t, "a process manager whose group and category are on two shards")
		w := site{memory: &forgetful{Store: under}}.open(t)
		b, transfers := newBank(t, w)
		const n = 12
		transferN(t, transfers, "t", n, transfer{"a", "b"})
		c, err := w.Manage(t.Context(), b.manager())
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "all transfers are made", func() bool { return len(b.entries(t, "a", "b")) == 2*n })
		committed(t, w, "bank")
		for what, times := range b.entries(t, "a", "b") {
			if times != 1 {
				t.Errorf("%s %d times", what, times)
			}
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAProcessManagerHaltsAtAnEventThatItCannotReactTo(t *testing.T) {
	w := newSite(t, "memory").open(t)
	b, transfers := newBank(t, w)
	transferN(t, transfers, "t", 1, transfer{"a", "b"})
	bad := weir.Permanent(errors.New("no such account"))
	var mu sync.Mutex
	b.fails = func(weir.CategoryEvent) error { mu.Lock(); defer mu.Unlock(); return bad }
	c, err := w.Manage(t.Context(), b.manager())
	if err != nil {
		t.Fatal(err)
	}
	halted := func() (err error) {
		for _, a := range c.Assigned() {
			err = errors.Join(err, a.Halted)
		}
		return err
	}
	eventually(t, "the partition halts", func() bool { return halted() != nil })
	mu.Lock()
	bad = nil
	mu.Unlock()
	c.Resume()
	eventually(t, "it goes on", func() bool { return len(b.entries(t, "a", "b")) == 2 })
	for what, m := range map[string]weir.ProcessManager{
		"a name":     {Categories: []string{"transfer"}, React: b.react},
		"categories": {Name: "m", React: b.react},
		"React":      {Name: "m", Categories: []string{"transfer"}},
	} {
		if _, err := w.Manage(t.Context(), m); err == nil {
			t.Errorf("a process manager without %s runs", what)
		}
	}
}
