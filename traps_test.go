package weir_test

// The traps that EventSQL fell into, one test each. docs/from-eventsql.md lists them.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
)

// There an event could wait in a buffer until somebody published to the same topic again: when its
// topic was new, or its transaction was committed late. For a process that dies see
// TestTrapWhatAKilledProcessPublishedArrives.
func TestTrapALoneEventArrivesWithoutFurtherTraffic(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		var got seen
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"new"}, Handler: got.note})
		ensure(t, w, "new", 1)
		publish(t, w, "new", "alone")
		got.wait(t, 1)
	})
}

// There the order inside a bulk move was that of the disk, and with two databases a key went to
// either.
func TestTrapAKeyKeepsItsOrderWhoeverPublishes(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		a, b := s.open(t), s.open(t)
		ensure(t, a, "orders", 7)
		for i := range 50 {
			publish(t, []*weir.Log{a, b}[i%2], "orders", "key="+strconv.Itoa(i))
		}
		var got seen
		consume(t, b, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
		if v := values(got.wait(t, 50)); !slices.Equal(v, numbered("", 50)) {
			t.Errorf("got %q", v)
		}
	})
}

// counting is a store that counts reads, and how often a partition is read or said to have moved.
// It fails reads when told to.
type counting struct {
	eventlog.Store
	reads atomic.Int64
	away  atomic.Bool

	mu    sync.Mutex // guards asked and moved
	asked map[eventlog.Partition]int
	moved map[eventlog.Partition]int
}

func count(store eventlog.Store) *counting {
	return &counting{Store: store, asked: map[eventlog.Partition]int{}, moved: map[eventlog.Partition]int{}}
}

func (c *counting) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	c.reads.Add(1)
	c.mu.Lock()
	for _, s := range spans {
		c.asked[s.Partition]++
	}
	c.mu.Unlock()
	if c.away.Load() {
		return nil, fmt.Errorf("read: %w: it is away for the test", eventlog.ErrUnavailable)
	}
	return c.Store.Read(ctx, spans, maxBytes)
}

func (c *counting) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	moved, mark, err := c.Store.Changes(ctx, since)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range moved {
		c.moved[b.Partition]++
	}
	return moved, mark, err
}

// There each poll of an idle partition went through everything that the others had got since.
func TestTrapAnIdlePartitionCostsNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, under eventlog.Store) {
		store := count(under)
		w := site{memory: store}.open(t, weir.Options{Partitioner: weir.ByPartitionField, Poll: 10 * time.Millisecond})
		ensure(t, w, "orders", 10)
		var got seen
		c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
		assigned(t, 10, c)
		publish(t, w, "orders", "first")
		got.wait(t, 1)
		store.mu.Lock()
		clear(store.asked)
		clear(store.moved)
		store.mu.Unlock()
		const n = 500
		for i := range n {
			publish(t, w, "orders", strconv.Itoa(i)) // all to partition 0
		}
		got.wait(t, n+1)
		topic, err := w.Core().Topic(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		store.mu.Lock()
		defer store.mu.Unlock()
		busy, idle := topic.Partitions[0], topic.Partitions[1:]
		for _, p := range idle {
			if store.asked[p] > 0 || store.moved[p] > 3 { // perhaps it is told now that they were made
				t.Errorf("during %d events elsewhere the idle partition %d was read %d times, and the store said %d times that it had moved", n, p, store.asked[p], store.moved[p])
			}
		}
		// Now and then a look for what others wrote finds an event before its flush has been
		// answered, and it is read.
		if store.asked[busy] > n/5 {
			t.Errorf("%d events at the end of a partition cost %d reads of it", n, store.asked[busy])
		}
	})
}

// There a consumer of one partition could not be registered again once it had state, and two groups
// were taken for one when their topic and name ran together alike.
func TestTrapOnePartitionAndAlikeNamesWorkAgainAfterARestart(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		for run := range 3 {
			w := s.open(t)
			for topic, group := range map[string]string{"a": "bc", "ab": "c"} {
				ensure(t, w, topic, 1)
				publish(t, w, topic, fmt.Sprintf("%s%d", topic, run))
				var got seen
				c := consume(t, w, weir.Subscription{Group: group, Topics: []string{topic}, Handler: got.note})
				if v := values(got.wait(t, 1)); v[0] != fmt.Sprintf("%s%d", topic, run) {
					t.Errorf("run %d, topic %s: %q", run, topic, v)
				}
				closeConsumer(t, c)
			}
			closeLog(t, w)
		}
	})
}

// There a handler that failed, or a database that was away, was called in a hot loop.
func TestTrapFailuresDoNotSpin(t *testing.T) {
	onEachStore(t, func(t *testing.T, under eventlog.Store) {
		t.Parallel() // each waits for its partition to be read again
		store := count(under)
		w := site{memory: store}.open(t, weir.Options{Partitioner: weir.ByPartitionField, TailBytes: 1, Poll: 10 * time.Millisecond})
		ensure(t, w, "orders", 2)
		if _, err := w.Publish(t.Context(), weir.Event{Topic: "orders", Value: []byte("bad")}); err != nil {
			t.Fatal(err)
		}
		var main failing
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: main.handle, Retry: weir.Retry{First: time.Hour, Max: 1000 * time.Hour}})
		for i := range 100 { // something to pass the time, which the test has no clock for
			if _, err := w.Publish(t.Context(), weir.Event{Topic: "orders", Partition: 1, Value: []byte(strconv.Itoa(i))}); err != nil {
				t.Fatal(err)
			}
			main.wait(t, i+2)
		}
		if calls := slices.Index(values(main.all()), "bad"); calls < 0 || strings.Count(strings.Join(values(main.all()), " "), "bad") != 1 {
			t.Errorf("a failing event was tried again at once: %q", values(main.all()))
		}

		store.away.Store(true)
		if _, err := w.Publish(t.Context(), weir.Event{Topic: "orders", Partition: 1, Value: []byte("unread")}); err != nil {
			t.Fatal(err)
		}
		before := store.reads.Load()
		eventually(t, "the store is asked in vain", func() bool { return store.reads.Load() > before })
		began := time.Now()
		eventually(t, "it is asked again", func() bool { return store.reads.Load() > before+1 })
		if pause := time.Since(began); pause < 100*time.Millisecond {
			t.Errorf("the store was asked again after %v", pause)
		}
		store.away.Store(false)
		main.wait(t, 102)
	})
}

// There a topic that was deleted elsewhere still took events, which nobody ever got.
func TestTrapATopicDeletedElsewhereTakesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w, other := s.open(t), s.open(t)
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", "known here")
		if err := other.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Publish(t.Context(), events("orders", "lost")...); !errors.Is(err, weir.ErrUnknownTopic) {
			t.Errorf("publish to a topic deleted elsewhere: %v, want ErrUnknownTopic", err)
		}
		ensure(t, other, "orders", 2)
		publish(t, w, "orders", "k=found")
		var got seen
		consume(t, other, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
		got.wait(t, 1)
	})
}

// There a dead-letter topic that came later was not seen without a restart.
func TestTrapADeadLetterTopicMadeLaterElsewhereIsUsed(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w, other := s.open(t), s.open(t)
		ensure(t, w, "orders", 1)
		if _, err := w.Publish(t.Context(), events("orders.dlt", "too early")...); !errors.Is(err, weir.ErrUnknownTopic) {
			t.Fatalf("there is a dead-letter topic already: %v", err)
		}
		if err := other.EnsureTopic(t.Context(), weir.Topic{Name: "orders.dlt", Partitions: 3, Config: map[string]string{"retention.ms": "7200000"}}); err != nil {
			t.Fatal(err)
		}
		publish(t, w, "orders", "bad")
		var main failing
		var dead seen
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: main.handle, Retry: weir.Retry{Attempts: 1}})
		consume(t, other, weir.Subscription{Group: "dead", Topics: []string{"orders.dlt"}, Handler: dead.note})
		dead.wait(t, 1)
		topics, err := w.Topics(t.Context())
		if err != nil || topics[1].Partitions != 3 || topics[1].Config["retention.ms"] != "7200000" {
			t.Errorf("the dead-letter topic was changed: %+v, %v", topics, err)
		}
	})
}

// There each partition whose handler ran held a transaction and a connection for as long.
func TestTrapARunningHandlerHoldsNoTransactionAndNoConnection(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	ensure(t, w, "orders", 40)
	connections := func() int {
		n, err := strconv.Atoi(pgtest.Value(t, s.url, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	b := newBlocking()
	c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: b.handle})
	assigned(t, 40, c)
	for i := range 400 {
		publish(t, w, "orders", fmt.Sprintf("key%d=v", i))
	}
	for range 40 {
		next(t, b.begun)
	}
	const most = 12 // what the store opens for its own work, whatever runs
	if n := connections(); n > most {
		t.Errorf("%d connections while 40 handlers run, want at most %d", n, most)
	}
	if open := pgtest.Value(t, s.url, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'`); open != "0" {
		t.Errorf("%s transactions are open", open)
	}
	close(b.go_on)
}

// There one busy topic, first in the alphabet, kept the others from being moved.
func TestTrapABusyTopicStarvesNobody(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "a-busy", 1)
		ensure(t, w, "z-quiet", 1)
		busy := events("a-busy", numbered("v", 2000)...)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					if _, err := w.Publish(context.Background(), busy...); err != nil {
						t.Errorf("publish: %v", err)
						return
					}
				}
			}
		}()
		var quiet seen
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"a-busy", "z-quiet"}, Handler: func(ctx context.Context, e weir.Event) error {
			if e.Topic == "a-busy" {
				return nil
			}
			return quiet.note(ctx, e)
		}})
		for i := range 5 {
			publish(t, w, "z-quiet", strconv.Itoa(i))
			quiet.wait(t, i+1)
		}
		close(stop)
		<-stopped
	})
}

// There an event was a dead letter at its first failure, and failed batches counted as consumed.
func TestTrapAFailedBatchCountsForNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", numbered("", 10)...)
		called := make(chan int, 100)
		c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Retry: quick(-1), BatchHandler: func(_ context.Context, events []weir.Event) error {
			called <- len(events)
			return errors.New("no")
		}})
		for range 20 {
			if n := next(t, called); n != 10 {
				t.Fatalf("a batch of %d", n)
			}
		}
		if a := c.Assigned()[0]; a.Next != 0 || a.Committed != 0 {
			t.Errorf("after twenty failures: %+v", a)
		}
	})
}

// There names went into statements: - and mixed case broke them, and more than that could be done.
func TestTrapNamesAreDataNotStatements(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		for _, topic := range []string{"a-b", "A-B", "a.b", "a_b", "Select", "order", "x--y"} {
			ensure(t, w, topic, 1)
			publish(t, w, topic, topic)
			for _, group := range []string{`g'; DROP TABLE weir.state; --`, "with/slash and % and ☂"} {
				var got seen
				c := consume(t, w, weir.Subscription{Group: group, Topics: []string{topic}, Handler: got.note})
				if v := values(got.wait(t, 1)); !slices.Equal(v, []string{topic}) {
					t.Errorf("topic %s, group %s: %q", topic, group, v)
				}
				closeConsumer(t, c)
			}
		}
		for _, topic := range []string{`a"b`, "a b", "a;b", "a'b", "ä"} {
			if err := w.EnsureTopic(t.Context(), weir.Topic{Name: topic}); err == nil {
				t.Errorf("topic %s was made", topic)
			}
		}
	})
}

// There, when one partition was running already, those behind it were not started. Here one whose
// handler hangs does not keep the others of a moved topic back.
func TestTrapAPartitionThatIsBusyKeepsNoOtherBack(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t, weir.Options{Partitioner: weir.ByPartitionField, Poll: 10 * time.Millisecond})
		ensure(t, w, "orders", 4)
		b := newBlocking()
		a := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: b.handle})
		assigned(t, 4, a)
		publish(t, w, "orders", "hangs") // in partition 0
		next(t, b.begun)
		var got seen
		other := consume(t, s.open(t), weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
		eventually(t, "the other consumer has partitions", func() bool { return len(other.Assigned()) > 0 })
		for _, p := range other.Assigned() {
			if _, err := w.Publish(t.Context(), weir.Event{Topic: "orders", Partition: p.Partition, Value: []byte("goes on")}); err != nil {
				t.Fatal(err)
			}
		}
		got.wait(t, 1)
		close(b.go_on)
	})
}

// There events stayed for ever.
func TestTrapOldEventsGoAndAConsumerBehindGoesOn(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		t.Parallel() // each waits for the log to look for old events
		w := s.open(t)
		if err := w.EnsureTopic(t.Context(), weir.Topic{Name: "orders", Partitions: 1, Config: map[string]string{"retention.ms": "100000"}}); err != nil {
			t.Fatal(err)
		}
		b := newBlocking()
		var got seen
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(ctx context.Context, e weir.Event) error {
			if e.Offset == 0 {
				return errors.Join(b.handle(ctx, e), got.note(ctx, e))
			}
			return got.note(ctx, e)
		}})
		for i := range 3 { // in a batch each
			old := weir.Event{Topic: "orders", Value: []byte(fmt.Sprint("old", i)), Time: time.Now().Add(-2 * time.Hour)}
			if _, err := w.Publish(t.Context(), old); err != nil {
				t.Fatal(err)
			}
		}
		publish(t, w, "orders", "new")
		eventually(t, "the old events are gone", func() bool {
			bounds, err := w.Bounds(t.Context(), "orders")
			return err == nil && bounds[0].First == 3
		})
		close(b.go_on)
		eventually(t, "the new event is handled", func() bool { return slices.Contains(values(got.all()), "new") })
	})
}
