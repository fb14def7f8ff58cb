package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

// slowClock answers readings of the store's clock late.
type slowClock struct {
	eventlog.Store
	late atomic.Int64 // time.Duration
}

func (s *slowClock) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	kvs, err := s.Store.List(ctx, prefix, after, limit)
	if prefix == "queue/clock" {
		time.Sleep(time.Duration(s.late.Load()))
	}
	return kvs, err
}

// The process that sets the schedule asks for the time at 58 s and hears it at 63 s. The other one
// enqueues the tick at 60 s.
func TestATickComesOnceWhereAProcessWhoseClockLagsSetsTheSchedule(t *testing.T) {
	const also = "*/1 * * * *" // the same ticks
	for what, set := range map[string]func(*testing.T, *queue.Queue, *queue.Queue){
		"replace": func(t *testing.T, _, lagging *queue.Queue) {
			setSchedule(t, lagging, queue.Schedule{Name: "s", Cron: also})
		},
		"resume": func(t *testing.T, _, lagging *queue.Queue) {
			setSchedule(t, lagging, queue.Schedule{Name: "s", Cron: everyMinute, Paused: true}) // the reading is good for ten seconds
			setSchedule(t, lagging, queue.Schedule{Name: "s", Cron: everyMinute})
		},
		"delete and set": func(t *testing.T, other, lagging *queue.Queue) {
			go func() {
				time.Sleep(4 * time.Second)
				if err := other.DeleteSchedule(t.Context(), "s"); err != nil {
					t.Error(err)
				}
			}()
			setSchedule(t, lagging, queue.Schedule{Name: "s", Cron: everyMinute})
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				lags := &slowClock{Store: store}
				a := begin(t, store, 20*time.Second)
				log, err := eventlog.Open(t.Context(), lags, eventlog.Config{Poll: 20 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.Background())
				var running sync.WaitGroup
				running.Go(func() { _ = log.Run(ctx) })
				t.Cleanup(func() { cancel(); running.Wait() })
				synctest.Wait()
				q := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1})
				setSchedule(t, q, queue.Schedule{Name: "s", Cron: everyMinute})
				lagging := open(t, queue.New(log, publish.New(log, publish.Config{}), queue.Config{}), "mail")
				time.Sleep(58 * time.Second)
				lags.late.Store(int64(5 * time.Second))
				set(t, q, lagging)
				setSchedule(t, q, queue.Schedule{Name: "other", Cron: "@yearly"}) // so that the first process hears of it
				time.Sleep(65 * time.Second)
				expect(t, what, ticks(t, q), minutes(1, 2))
			})
		})
	}
}

// held is a store whose commits of a schedule's tick wait until another process has committed the
// same one.
type held struct {
	eventlog.Store
	until <-chan struct{} // nil: they do not wait
	did   func()
	stale atomic.Int64
}

func (s *held) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	moves := -1
	for i, e := range flush {
		defines := slices.ContainsFunc(e.Puts, func(p eventlog.Put) bool { return strings.HasPrefix(p.Key, "queue/def/") }) // it has a notice
		for _, p := range e.Puts {
			if strings.HasPrefix(p.Key, "queue/schedule/") && len(e.Batches) > 0 && !defines {
				moves = i
			}
		}
	}
	if moves >= 0 && s.until != nil {
		<-s.until
	}
	out, err := s.Store.Commit(ctx, flush)
	if moves >= 0 && s.did != nil {
		s.did()
	}
	if moves >= 0 && err == nil && out[moves].Err != nil {
		s.stale.Add(1)
	}
	return out, err
}

func TestATickThatTwoProcessesEnqueueAtTheSameTimeHasOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		done := make(chan struct{})
		slow, fast := &held{Store: store, until: done}, &held{Store: store, did: sync.OnceFunc(func() { close(done) })}
		a, b := begin(t, slow, 20*time.Second), begin(t, fast, 20*time.Second)
		synctest.Wait()
		q := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1})
		setSchedule(t, q, queue.Schedule{Name: "s", Cron: everyMinute})
		time.Sleep(55 * time.Second)
		setSchedule(t, open(t, b.Queues, "mail"), queue.Schedule{Name: "other", Cron: "@yearly"}) // so that it hears of s
		time.Sleep(10 * time.Second)
		if slow.stale.Load() != 1 {
			t.Fatalf("%d commits of the first process came too late, want 1", slow.stale.Load())
		}
		expect(t, "after the first tick", ticks(t, open(t, b.Queues, "mail")), minutes(1, 1))
	})
}

// pages is the most that one list of a prefix brought.
type pages struct {
	eventlog.Store
	prefix string
	most   atomic.Int64
}

func (s *pages) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	kvs, err := s.Store.List(ctx, prefix, after, limit)
	if prefix == s.prefix {
		bytes := 0
		for _, kv := range kvs {
			bytes += len(kv.Key) + len(kv.Value)
		}
		s.most.Store(max(s.most.Load(), int64(bytes)))
	}
	return kvs, err
}

func TestToHearOfSchedulesAProcessDoesNotReadTheirMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &pages{Store: newStore(t), prefix: "queue/schedule/"}
		p := begin(t, store, 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		large := queue.NewMessage{Value: bytes.Repeat([]byte("x"), 60<<10)}
		for _, name := range []string{"a", "b", "c"} {
			setSchedule(t, q, queue.Schedule{Name: name, Cron: everyMinute, Message: large})
		}
		time.Sleep(5 * time.Minute)
		if n := store.most.Load(); n == 0 || n > 3<<10 {
			t.Fatalf("a list of three schedules has %d bytes", n)
		}
		list, err := q.Schedules(t.Context())
		if err != nil || len(list) != 3 || !bytes.Equal(list[2].Message.Value, large.Value) {
			t.Fatalf("%d schedules, %v", len(list), err)
		}
	})
}

func TestAScheduleThatCannotBeReadIsToldOnceAndMayBeSetAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var said bytes.Buffer
		log, err := eventlog.Open(t.Context(), newStore(t), eventlog.Config{Poll: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		qs := queue.New(log, publish.New(log, publish.Config{}), queue.Config{Logger: slog.New(slog.NewTextHandler(&locked{mu: &mu, to: &said}, nil))})
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = log.Run(ctx) })
		running.Go(func() { _ = qs.Run(ctx) })
		t.Cleanup(func() { cancel(); running.Wait() })
		synctest.Wait()
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1})
		setSchedule(t, q, queue.Schedule{Name: "s", Cron: everyMinute})
		kvs, err := log.List(t.Context(), "queue/schedule/", "", 1)
		if err != nil || len(kvs) != 1 {
			t.Fatal(kvs, err)
		}
		if _, err := log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: kvs[0].Key, Version: 7, Value: []byte("{")}}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Minute + 30*time.Second)
		mu.Lock()
		n := strings.Count(said.String(), "level=ERROR")
		mu.Unlock()
		if n != 1 {
			t.Fatalf("it was told %d times in ten minutes, want once:\n%s", n, said.String())
		}
		setSchedule(t, q, queue.Schedule{Name: "s", Cron: everyMinute})
		time.Sleep(time.Minute)
		expect(t, "after it was set again", ticks(t, q), minutes(11, 11))
	})
}

type locked struct {
	mu *sync.Mutex
	to *bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}

func TestAScheduleThatCannotBeReadIsListedAsBrokenBesideTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, newStore(t), 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		for _, name := range []string{"a", "bad", "lost", "mute", "z"} {
			setSchedule(t, q, queue.Schedule{Name: name, Cron: everyMinute, Message: queue.NewMessage{Value: []byte(name)}})
		}
		spoil := func(prefix, name string, value []byte) {
			if err := p.log.ListAll(t.Context(), prefix, func(kv eventlog.KeyValue) error {
				if !strings.HasSuffix(kv.Key, "/"+name) {
					return nil
				}
				_, err := p.log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: kv.Key, Version: kv.Version.Next(), Value: value}}})
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		spoil("queue/schedule/", "bad", []byte("{"))
		spoil("queue/scheduled/", "mute", []byte("{"))
		spoil("queue/scheduled/", "lost", nil)
		list := func() (all []string) {
			got, err := q.Schedules(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range got {
				all = append(all, fmt.Sprintf("%s=%s %v", s.Name, s.Message.Value, s.Err != nil))
			}
			return all
		}
		if got := fmt.Sprint(list()); got != "[a=a false bad=bad true lost= true mute= true z=z false]" {
			t.Fatalf("listed: %s", got)
		}
		setSchedule(t, q, queue.Schedule{Name: "bad", Cron: everyMinute, Err: errors.New("of a list")})
		for _, name := range []string{"lost", "mute"} {
			if err := q.DeleteSchedule(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprint(list()); got != "[a=a false bad= false z=z false]" {
			t.Fatalf("listed after they were set and deleted: %s", got)
		}
	})
}
