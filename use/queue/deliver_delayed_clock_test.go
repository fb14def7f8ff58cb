package queue_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/queue"
)

// jumping is a store whose clock can be set, and that counts its reads.
type jumping struct {
	eventlog.Store
	by    atomic.Int64 // how far it was set forward
	away  atomic.Bool  // no commit succeeds
	young atomic.Bool  // it was set back: keys do not age
	reads atomic.Int64
}

func (s *jumping) set(to time.Time) { s.by.Store(int64(time.Until(to))) }

func (s *jumping) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	kvs, err := s.Store.List(ctx, prefix, after, limit)
	for i := range kvs {
		if kvs[i].Key == "queue/clock" {
			kvs[i].Now += eventlog.Timestamp(time.Duration(s.by.Load()).Milliseconds())
		} else if s.young.Load() {
			kvs[i].Age = 0
		}
	}
	return kvs, err
}

func (s *jumping) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	s.reads.Add(1)
	return s.Store.Read(ctx, spans, maxBytes)
}

func (s *jumping) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if s.away.Load() {
		return nil, eventlog.ErrUnavailable
	}
	return s.Store.Commit(ctx, flush)
}

// now is the time by the store's clock.
func (s *jumping) now() time.Time { return time.Now().Add(time.Duration(s.by.Load())) }

func delayed(t *testing.T, q *queue.Queue, value string, delay time.Duration) {
	t.Helper()
	if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte(value), Delay: delay}); err != nil {
		t.Fatal(err)
	}
}

// putInSlot makes a delayed message durable in a slot, whatever the time: its process was stopped
// after it chose the slot.
func putInSlot(t *testing.T, log *eventlog.Log, q *queue.Queue, slot int, value string, due time.Time) {
	t.Helper()
	topic, err := log.Topic(t.Context(), "__weir_later")
	if err != nil {
		t.Fatal(err)
	}
	b, err := topic.Seal(topic.Partitions[slot], []batch.Record{{Value: []byte(value), Timestamp: due.UnixMilli(), Headers: []batch.RecordHeader{
		{Key: "weir.queue.to", Value: []byte("mail/" + q.Info().ID)}, {Key: "weir.queue.due", Value: strconv.AppendInt(nil, due.UnixMilli(), 10)}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append(t.Context(), eventlog.Entry{Batches: []eventlog.Batch{b}}); err != nil {
		t.Fatal(err)
	}
}

// slotAt is the slot of a level whose span a time is in, with the length and the end of that span.
func slotAt(level int, at time.Time) (slot int, span time.Duration, end time.Time) {
	span = time.Second << (6 * level)
	n := at.UnixMilli() / span.Milliseconds()
	return level*64 + int(n%64), span, time.UnixMilli((n + 1) * span.Milliseconds())
}

// comesWithin is how late a message may be after the clock jumped or the store was away: the wheel
// sleeps for up to a minute.
const comesWithin = 75 * time.Second

// The store's clock is set forward, or the machine slept: what came due meanwhile comes at once.
func TestADelayedMessageWhoseTimeIsJumpedOverComesAtOnce(t *testing.T) {
	for _, delay := range []time.Duration{time.Minute, 30 * time.Minute, 3 * time.Hour, 5 * 24 * time.Hour, 300 * 24 * time.Hour} {
		t.Run(delay.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &jumping{Store: newStore(t)}
				p := begin(t, store, time.Hour)
				synctest.Wait()
				q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
				delayed(t, q, "x", delay)
				time.Sleep(20 * time.Second)
				store.by.Store(int64(2 * delay))
				time.Sleep(comesWithin)
				if got := values(claimN(t, q, 1)); got != "x " {
					t.Errorf("%v after the jump %q is claimed", comesWithin, got)
				}
			})
		})
	}
}

// A process is stopped between the choice of a slot and the commit, until the span of that slot has
// passed. The leader finds the message, or the next leader does, also behind a message of the
// slot's next turn.
func TestADelayedMessageThatReachesItsSlotAfterTheSpanComesAtOnce(t *testing.T) {
	for level := range 4 {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("level %d, restart %v", level, restart), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &jumping{Store: newStore(t)}
					p := begin(t, store, time.Hour)
					synctest.Wait()
					q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
					delayed(t, q, "far", 10*365*24*time.Hour) // and there is a wheel
					due := time.Now().Add(time.Second)
					slot, span, end := slotAt(level, due)
					if level == 0 {
						time.Sleep(time.Until(end) + 30*time.Second) // less than until the next turn
					} else {
						store.by.Store(int64(time.Until(end)))
						time.Sleep(comesWithin)
					}
					log := p.log
					if restart {
						p.stop()
						log = writer(t, store)
					}
					putInSlot(t, log, q, slot, "next turn", end.Add(63*span))
					putInSlot(t, log, q, slot, "late", due)
					if restart {
						p = begin(t, store, time.Hour)
						synctest.Wait()
						q = open(t, p.Queues, "mail")
					}
					time.Sleep(time.Second)
					if got := values(claimN(t, q, 10)); got != "late " {
						t.Errorf("after 1 s %q is claimed", got)
					}
				})
			})
		}
	}
}

// writer is the log of a process without queues.
func writer(t *testing.T, store eventlog.Store) *eventlog.Log {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store, eventlog.Config{Poll: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = log.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return log
}

// Whatever happens to the clock, the store and the processes: each delayed message comes, once, and
// not before its time.
func TestEachDelayedMessageComesWhateverTheClockDoes(t *testing.T) {
	for range 4 {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { oneWheel(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func oneWheel(t *testing.T, rng *rand.Rand) {
	upTo := func(most time.Duration) time.Duration { // small ones as often as large ones
		return time.Duration(math.Exp(rng.Float64() * math.Log(float64(most))))
	}
	const day = 24 * time.Hour
	store := &jumping{Store: newStore(t)}
	p := begin(t, store, time.Hour)
	synctest.Wait()
	q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
	due := make(map[string]time.Time) // of messages that did not come yet
	latest := store.now()             // that the clock has shown
	for n := range 100 {
		switch value := strconv.Itoa(n); rng.IntN(10) {
		default:
			delay := time.Second + upTo(30*day)
			due[value] = store.now().Add(delay)
			delayed(t, q, value, delay)
		case 0:
			due[value] = store.now().Add(-upTo(30 * day))
			slot, _, _ := slotAt(rng.IntN(5), due[value])
			if len(due) > 1 { // there is a wheel
				putInSlot(t, p.log, q, slot, value, due[value])
			} else {
				delete(due, value)
			}
		case 1:
			store.by.Add(int64(upTo(30 * day)))
		case 2:
			latest = slices.MaxFunc([]time.Time{latest, store.now().Add(10 * time.Second)}, time.Time.Compare) // a reading of the clock is good for so long
			store.by.Add(-int64(upTo(day)))
		case 3:
			store.away.Store(true)
			time.Sleep(upTo(10 * time.Minute))
			store.away.Store(false)
		case 4:
			p.stop()
			time.Sleep(upTo(10 * time.Minute))
			p = begin(t, store, time.Hour)
			synctest.Wait()
			q = open(t, p.Queues, "mail")
		case 5:
			time.Sleep(upTo(time.Hour))
		}
		time.Sleep(comesWithin)
		latest = slices.MaxFunc([]time.Time{latest, store.now()}, time.Time.Compare)
		for got := claimN(t, q, 100); len(got) > 0; got = claimN(t, q, 100) {
			for _, m := range got {
				at, there := due[string(m.Value)]
				if !there || at.After(latest) {
					t.Fatalf("message %s came at %v; due %v, %v", m.Value, latest, at, there)
				}
				delete(due, string(m.Value))
				errs, err := q.Ack(t.Context(), m.Receipt)
				if err := one(t, errs, err); err != nil {
					t.Fatal(err)
				}
			}
		}
		for value, at := range due {
			if at.Before(store.now().Add(-comesWithin)) {
				t.Fatalf("step %d: message %s, due %v, is not there at %v", n, value, at, store.now())
			}
		}
	}
}

// A process reads each delayed message when it comes and when its slot opens, not each time that it
// becomes the leader.
func TestFarOffDelayedMessagesCostNoReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &jumping{Store: newStore(t)}
		for i := range 2 {
			p := begin(t, store, time.Second)
			synctest.Wait()
			q := create(t, p.Queues, queue.Spec{Name: fmt.Sprint("mail", i), Partitions: 1})
			for i := range 50 {
				delayed(t, q, "x", time.Duration(i+30)*24*time.Hour)
			}
		}
		time.Sleep(10 * time.Minute) // both have been the leader
		before := store.reads.Load()
		time.Sleep(2 * time.Hour)
		if n := store.reads.Load() - before; n > 0 {
			t.Errorf("two processes read the store %d times in 2 h", n)
		}
	})
}

// The store's clock is set back, and the process that moved the messages is gone: another one goes
// on, whatever the age of the leader's key.
func TestAnotherProcessMovesDelayedMessagesWhileTheClockIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &jumping{Store: newStore(t)}
		store.young.Store(true)
		a := begin(t, store, time.Second)
		synctest.Wait()
		q := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1})
		delayed(t, q, "x", 30*time.Second)
		time.Sleep(5 * time.Second)
		b := begin(t, store, time.Second)
		synctest.Wait()
		a.stop()
		time.Sleep(40 * time.Second)
		if got := values(claimN(t, open(t, b.Queues, "mail"), 1)); got != "x " {
			t.Errorf("10 s after it was due %q is claimed", got)
		}
	})
}
