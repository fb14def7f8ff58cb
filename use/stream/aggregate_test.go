package stream_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// account counts what was paid in. Events of the type "paid" have an amount; "paidTwice" is an old
// type.
func account(c *stream.Category) *stream.Aggregate[int] {
	return &stream.Aggregate[int]{
		Category: c,
		Apply: func(sum int, e stream.Event) (int, error) {
			n, err := strconv.Atoi(string(e.Data))
			if e.Type != "paid" {
				err = errors.New("no such type")
			}
			return sum + n, err
		},
		Upcast: func(e stream.Event) []stream.Event {
			if e.Type != "paidTwice" {
				return []stream.Event{e}
			}
			e.Type = "paid"
			return []stream.Event{e, e}
		},
		Encode:        func(sum int) ([]byte, error) { return strconv.AppendInt(nil, int64(sum), 10), nil },
		Decode:        func(data []byte) (int, error) { return strconv.Atoi(string(data)) },
		SnapshotEvery: 10,
		Attempts:      100,
	}
}

func paid(n int) stream.NewEvent { return stream.NewEvent{Type: "paid", Data: []byte(strconv.Itoa(n))} }

// upTo pays one in unless there are most.
func upTo(most int) func(int) ([]stream.NewEvent, error) {
	return func(sum int) ([]stream.NewEvent, error) {
		if sum >= most {
			return nil, errFull
		}
		return []stream.NewEvent{paid(1)}, nil
	}
}

var errFull = errors.New("full")

// Decisions of many, in two processes, keep a rule that no single append can keep.
func TestDecisionsRestOnTheStateAtWhichTheyAreAppended(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		random := rand.New(rand.NewPCG(1, 2))
		var losing []*lossy
		open := func(t *testing.T) eventlog.Store {
			l := &lossy{Store: reopen(t), random: random}
			losing = append(losing, l)
			return l
		}
		_, here := orders(t, open)
		losing = losing[:1]
		losing[0].on.Store(true)
		there := begin(t, reopen(t))
		c, err := there.Category(t.Context(), "orders")
		check(t, err)
		accounts := []*stream.Aggregate[int]{account(here), account(c)}
		var deciding sync.WaitGroup
		for n := range 6 {
			deciding.Go(func() {
				for range 10 {
					_, err := accounts[n%2].Do(t.Context(), "a", upTo(25))
					if err != nil && !errors.Is(err, errFull) && !errors.Is(err, eventlog.ErrUnavailable) && !errors.Is(err, stream.ErrConflict) {
						t.Error(err)
					}
				}
			})
		}
		deciding.Wait()
		for {
			done, err := accounts[1].Do(t.Context(), "a", upTo(25))
			if errors.Is(err, errFull) {
				break
			}
			check(t, err)
			if done.Appended != 1 || int64(done.State) != done.Version {
				t.Fatalf("done: %+v", done)
			}
		}
		if sum, version, err := accounts[1].Load(t.Context(), "a"); sum != 25 || version != 25 || err != nil {
			t.Errorf("the sum is %d at version %d, %v; want 25 at 25", sum, version, err)
		}
	})
}

// outage is a store that loses the answer of one commit, and is away for some lists after it.
type outage struct {
	*memory.Store
	begin  atomic.Bool
	lists  atomic.Int64 // that will fail
	failed func()
}

func (o *outage) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	out, err := o.Store.Commit(ctx, flush)
	if err == nil && o.begin.Swap(false) {
		o.lists.Store(3)
		return nil, fmt.Errorf("%w: the answer is lost for the test", eventlog.ErrUnsure)
	}
	return out, err
}

func (o *outage) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if strings.HasPrefix(prefix, "stream/head/") && o.lists.Load() > 0 {
		o.lists.Add(-1)
		o.failed()
		return nil, fmt.Errorf("%w: for the test", eventlog.ErrUnavailable)
	}
	return o.Store.List(ctx, prefix, after, limit)
}

func TestADecisionWhoseAnswerWasLostInAnOutageIsMadeOnceOrToldAsUnknown(t *testing.T) {
	store := &outage{Store: memory.New(), failed: func() {}}
	_, c := orders(t, func(*testing.T) eventlog.Store { return store })
	a := account(c)
	store.begin.Store(true)
	done, err := a.Do(t.Context(), "a", upTo(10))
	if want := (stream.Done[int]{State: 1, Version: 1, Appended: 1}); done != want || err != nil {
		t.Errorf("the store came back: %+v, %v; want %+v", done, err, want)
	}

	ctx, cancel := context.WithCancel(t.Context())
	store.failed = cancel
	store.begin.Store(true)
	if _, err := a.Do(ctx, "a", upTo(10)); !errors.Is(err, eventlog.ErrUnsure) {
		t.Errorf("the caller gave up: %v, want ErrUnsure", err)
	}
	store.lists.Store(0)
	if sum, version, err := a.Load(t.Context(), "a"); sum != 2 || version != 2 || err != nil {
		t.Errorf("sum %d at version %d, %v; want 2 at 2", sum, version, err)
	}
}

func TestAStateIsLoadedFromItsSnapshotAndWhatFollows(t *testing.T) {
	store := &counting{Store: memory.New()}
	_, c := orders(t, func(*testing.T) eventlog.Store { return store })
	a := account(c)
	applied := 0
	apply := a.Apply
	a.Apply = func(sum int, e stream.Event) (int, error) { applied++; return apply(sum, e) }
	for range 25 {
		_, err := a.Do(t.Context(), "a", upTo(100))
		check(t, err)
	}
	load := func(want int, reads int) {
		t.Helper()
		applied = 0
		before := store.lists.Load()
		sum, version, err := a.Load(t.Context(), "a")
		check(t, err)
		if calls := store.lists.Load() - before; calls != 3 {
			t.Errorf("loaded with %d store calls; want 3: the head, the snapshot, what follows", calls)
		}
		if sum != want || version != int64(want) || applied != reads {
			t.Errorf("sum %d at version %d after %d events; want %d after %d", sum, version, applied, want, reads)
		}
	}
	load(25, 5)
	decode := a.Decode
	a.Decode = func([]byte) (int, error) { return 0, errors.New("another form") }
	load(25, 25)
	a.Decode = decode
	_, err := c.Delete(t.Context(), "a", stream.Any)
	check(t, err)
	if sum, version, err := a.Load(t.Context(), "a"); sum != 0 || version != 25 || err != nil {
		t.Errorf("deleted: sum %d at version %d, %v", sum, version, err)
	}
	done, err := a.Do(t.Context(), "a", upTo(1))
	check(t, err)
	if want := (stream.Done[int]{State: 1, Version: 26, Appended: 1}); done != want {
		t.Errorf("begun again: %+v, want %+v", done, want)
	}
	if sum, _, err := a.Load(t.Context(), "a"); sum != 1 || err != nil {
		t.Errorf("begun again: sum %d, %v", sum, err)
	}
}

func TestOldTypesOfEventsAreReadAsNewOnes(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		a := account(c)
		_, err := c.Append(t.Context(), "a", 0, paid(1), stream.NewEvent{Type: "paidTwice", Data: []byte("2")})
		check(t, err)
		if sum, version, err := a.Load(t.Context(), "a"); sum != 5 || version != 2 || err != nil {
			t.Errorf("sum %d at version %d, %v", sum, version, err)
		}
		_, err = c.Append(t.Context(), "a", 2, stream.NewEvent{Type: "unknown"})
		check(t, err)
		if _, _, err := a.Load(t.Context(), "a"); err == nil {
			t.Error("an event that cannot be applied is left out")
		}
	})
}

func TestADecisionIsTestedWithoutAStore(t *testing.T) {
	a := account(nil)
	then, err := a.Decide([]stream.NewEvent{paid(3), {Type: "paidTwice", Data: []byte("2")}}, upTo(8))
	if err != nil || len(then) != 1 || string(then[0].Data) != "1" {
		t.Errorf("then %+v, %v", then, err)
	}
	if _, err := a.Decide([]stream.NewEvent{paid(8)}, upTo(8)); !errors.Is(err, errFull) {
		t.Errorf("then %v, want errFull", err)
	}
}
