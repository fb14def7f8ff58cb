package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/queue"
)

// watched is a store that counts what is asked of it.
type watched struct {
	eventlog.Store

	mu      sync.Mutex // guards what follows
	refuse  string     // entries that forget keys under this prefix are refused; "": none
	largest int        // puts of one entry, at most
	lists   map[string]int
}

func (s *watched) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	s.mu.Lock()
	refused := false
	for _, e := range flush {
		s.largest = max(s.largest, len(e.Puts))
		for _, p := range e.Puts {
			refused = refused || s.refuse != "" && p.Value == nil && strings.HasPrefix(p.Key, s.refuse)
		}
	}
	s.mu.Unlock()
	if refused {
		return nil, fmt.Errorf("commit: %w", eventlog.ErrUnavailable)
	}
	return s.Store.Commit(ctx, flush)
}

func (s *watched) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	s.mu.Lock()
	s.lists[prefix]++
	s.mu.Unlock()
	return s.Store.List(ctx, prefix, after, limit)
}

func (s *watched) listed(prefix string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists[prefix]
}

func keysOf(t *testing.T, store eventlog.Store, prefixes ...string) (keys []string) {
	t.Helper()
	for _, prefix := range prefixes {
		kvs, err := store.List(t.Context(), prefix, "", 10_000)
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range kvs {
			keys = append(keys, kv.Key)
		}
	}
	return keys
}

func TestWhatAPurgeAndADeletionForgetIsManySmallEntries(t *testing.T) {
	for name, end := range map[string]func(*queue.Queues, context.Context, string) error{"purge": (*queue.Queues).Purge, "delete": (*queue.Queues).Delete} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				under := newStore(t)
				store := &watched{Store: under, lists: make(map[string]int)}
				p := begin(t, store, time.Minute)
				synctest.Wait()
				q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true}})
				const total = 3000
				for from := 0; from < total; from += 500 {
					var ms []queue.NewMessage
					for i := range 500 {
						ms = append(ms, queue.NewMessage{Unique: fmt.Sprint(from + i)})
					}
					if _, err := q.Enqueue(t.Context(), ms...); err != nil {
						t.Fatal(err)
					}
				}
				id := q.Info().ID
				if n := len(keysOf(t, under, "queue/unique/"+id)); n != total {
					t.Fatalf("there are %d unique keys, want %d", n, total)
				}
				store.mu.Lock()
				store.largest, store.refuse = 0, "queue/unique/" // the process does not come to the end of it
				store.mu.Unlock()
				if err := end(p.Queues, t.Context(), "mail"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				p.stop()
				store.mu.Lock()
				largest := store.largest
				store.refuse = ""
				store.mu.Unlock()
				if largest > 1000 {
					t.Errorf("one entry has %d puts", largest)
				}
				begin(t, store, time.Minute) // another one finds what was left
				time.Sleep(time.Minute)
				left := keysOf(t, under, "queue/unique/"+id, "queue/state/"+id, "queue/dead/"+id, "queue/gone/")
				if len(left) > 0 {
					t.Errorf("%d keys are left, such as %s", len(left), left[0])
				}
			})
		})
	}
}

// The store loses the purge or the deletion while it is being finished: the queue is there as
// before, and so is what it keeps.
func TestNothingIsForgottenOfAQueueThatTheStoreHasBack(t *testing.T) {
	once(t)
	for name, end := range map[string]func(*queue.Queues, context.Context, string) error{"purge": (*queue.Queues).Purge, "delete": (*queue.Queues).Delete} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				under := memory.New()
				store := &ahead{Store: under}
				p := begin(t, store, time.Second)
				synctest.Wait()
				q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
				setSchedule(t, q, queue.Schedule{Name: "daily", Cron: "@daily"})
				enqueue(t, q, "a", "b", "c")
				for _, m := range claimN(t, q, 3) {
					errs, err := q.Ack(t.Context(), m.Receipt)
					if err := one(t, errs, err); err != nil {
						t.Fatal(err)
					}
				}
				enqueue(t, q, "d")
				restore := under.Backup()
				lose := sync.OnceFunc(func() { restore(false) })
				listed := func(prefix string) {
					if strings.HasPrefix(prefix, "queue/state/") {
						lose()
						time.Sleep(5 * time.Second) // the log hears of it
					}
				}
				store.ofList.Store(&listed)
				if err := end(p.Queues, t.Context(), "mail"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				store.ofList.Store(nil)
				q = open(t, begin(t, under, time.Second).Queues, "mail") // by a process that remembers nothing
				if got := values(claimN(t, q, 10)); got != "d " {
					t.Errorf("claimed %q, want d alone: the others were acknowledged", got)
				}
				if list, err := q.Schedules(t.Context()); err != nil || len(list) != 1 {
					t.Errorf("schedules %+v, %v, want one", list, err)
				}
			})
		})
	}
}

func TestThousandsOfDelayedMessagesOfAPurgedQueueCostAFewTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &watched{Store: newStore(t), lists: make(map[string]int)}
		p := begin(t, store, time.Minute)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		var ms []queue.NewMessage
		for range 2000 {
			ms = append(ms, queue.NewMessage{Delay: 10 * time.Second})
		}
		if _, err := q.Enqueue(t.Context(), ms...); err != nil {
			t.Fatal(err)
		}
		if err := p.Purge(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		before := store.listed("queue/def/mail")
		time.Sleep(time.Minute)
		if n := store.listed("queue/def/mail") - before; n > 20 {
			t.Errorf("the queue's definition was read %d times", n)
		}
		if got := claimN(t, open(t, p.Queues, "mail"), 10); len(got) != 0 {
			t.Errorf("%d messages of before the purge are there", len(got))
		}
	})
}

func TestAClaimInAPartitionThatIsAddedWhileTheQueueGetsLimitsHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &between{Store: newStore(t)}
		a, b := begin(t, store, 100*time.Millisecond), begin(t, store, 100*time.Millisecond)
		synctest.Wait()
		create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Lease: time.Hour}})
		time.Sleep(time.Second)
		other := open(t, b.Queues, "mail")
		var got []queue.Message
		store.after("queue/state/", func() {
			topic, err := b.log.ChangeTopic(context.Background(), "mail", eventlog.TopicChange{Partitions: 2})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := b.log.Publish(context.Background(), topic.Partitions[1], eventRecord("a")); err != nil {
				t.Error(err)
			}
			if got, err = other.Claim(context.Background(), queue.Claim{Max: 10}); err != nil {
				t.Error(err)
			}
		})
		if _, err := a.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.Concurrency = 10; return nil }); err != nil {
			t.Fatal(err)
		}
		if values(got) != "a " {
			t.Fatalf("meanwhile %q was claimed", values(got))
		}
		time.Sleep(time.Second)
		if again := values(claimN(t, open(t, a.Queues, "mail"), 10)); again != "" {
			t.Errorf("%q is claimed twice at a time", again)
		}
		errs, err := open(t, b.Queues, "mail").Ack(t.Context(), got[0].Receipt)
		if err := one(t, errs, err); err != nil {
			t.Errorf("ack of the claim: %v", err)
		}
	})
}

// afterDays stops a process, and begins another one so many days later, which has looked for old
// messages when afterDays returns. A process that ran all the time would look once a second for
// work.
func afterDays(t *testing.T, p process, store eventlog.Store, days int) process {
	t.Helper()
	const looks = 2 * time.Hour // every retainEvery, with chance
	p.stop()
	time.Sleep(time.Duration(days)*24*time.Hour - looks)
	p = begin(t, store, time.Hour)
	time.Sleep(looks)
	return p
}

func TestMessagesThatNobodyClaimsAreKeptAndHandledOnesAreRemovedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		p := begin(t, store, time.Hour)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		if _, err := p.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "kept", Partitions: 1, Config: map[string]string{"retention.ms": "-1"}}); err != nil {
			t.Fatal(err)
		}
		kept := create(t, p.Queues, queue.Spec{Name: "reader", Topic: "kept"})
		for _, q := range []*queue.Queue{q, kept} {
			for _, v := range []string{"handled", "first", "second"} {
				enqueue(t, q, v) // each a batch of its own
			}
			errs, err := q.Ack(t.Context(), claimN(t, q, 1)[0].Receipt)
			if one(t, errs, err) != nil {
				t.Fatal(errs)
			}
		}
		undated := create(t, p.Queues, queue.Spec{Name: "undated", Partitions: 1})
		of, err := p.log.Topic(t.Context(), "undated")
		if err == nil {
			_, err = p.log.Publish(t.Context(), of.Partitions[0], batch.Record{Timestamp: batch.NoTimestamp})
		}
		if err != nil {
			t.Fatal(err)
		}
		errs, err := undated.Ack(t.Context(), claimN(t, undated, 1)[0].Receipt)
		if one(t, errs, err) != nil {
			t.Fatal(errs)
		}
		begins := func(topic string) eventlog.Offset {
			t.Helper()
			found, err := p.log.Topic(t.Context(), topic)
			if err != nil {
				t.Fatal(err)
			}
			held, err := p.log.Bounds(t.Context(), found.Partitions[0])
			if err != nil {
				t.Fatal(err)
			}
			return held[0].Bounds.First
		}
		p = afterDays(t, p, store, 6)
		if first := begins("mail"); first != 0 {
			t.Errorf("after 6 days the topic begins at %d", first)
		}
		if first := begins("undated"); first != 0 {
			t.Errorf("a record without a time is gone after 6 days: the topic begins at %d", first)
		}
		p = afterDays(t, p, store, 9)
		if first := begins("mail"); first != 1 {
			t.Errorf("after 15 days the topic of the queue begins at %d, want 1, the first that nobody handled", first)
		}
		if first := begins("kept"); first != 0 {
			t.Errorf("a topic that was there before the queue begins at %d", first)
		}
		if got := values(claimN(t, open(t, p.Queues, "mail"), 10)); got != "first second " {
			t.Errorf("after 15 days %q is claimed", got)
		}
	})
}

// What one queue of a topic has handled, another one may not have claimed yet.
func TestAMessageIsKeptForTheSlowestQueueOfItsTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		p := begin(t, store, time.Hour)
		synctest.Wait()
		fast := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		create(t, p.Queues, queue.Spec{Name: "audit", Topic: "mail"})
		enqueue(t, fast, "a", "b")
		for _, m := range claimN(t, fast, 10) {
			if errs, err := fast.Ack(t.Context(), m.Receipt); errors.Join(append(errs, err)...) != nil {
				t.Fatal(errs, err)
			}
		}
		p = afterDays(t, p, store, 15)
		if got := values(claimN(t, open(t, p.Queues, "audit"), 10)); got != "a b " {
			t.Errorf("the other queue claims %q", got)
		}
	})
}

// It lands behind the end of its partition that the purge found.
func TestADelayedMessageThatComesDueDuringAPurgeIsPurged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &between{Store: newStore(t)}
		p := begin(t, store, time.Minute)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("delayed"), Delay: 5 * time.Second}); err != nil {
			t.Fatal(err)
		}
		store.after("queue/dead/", func() { time.Sleep(10 * time.Second) }) // the ends are known, and the purge is not committed
		if err := p.Purge(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		enqueue(t, open(t, p.Queues, "mail"), "new")
		time.Sleep(time.Minute)
		got := ""
		for range 3 {
			got += values(claimN(t, open(t, p.Queues, "mail"), 10))
		}
		if got != "new " {
			t.Errorf("after the purge %q is claimed", got)
		}
	})
}

// The topic of the dead letters was deleted: who looks finds none, and does not make it again. The
// next dead letter does.
func TestToLookAtDeadLettersMakesNoTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, newStore(t), time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		if err := p.log.DeleteTopic(t.Context(), "mail.dlt"); err != nil {
			t.Fatal(err)
		}
		if s, err := q.Stats(t.Context()); err != nil || s.Dead != 0 {
			t.Errorf("stats: %+v, %v", s, err)
		}
		if letters, err := q.DeadLetters(t.Context(), queue.MessageID{}, 10); err != nil || len(letters) > 0 {
			t.Errorf("dead letters: %+v, %v", letters, err)
		}
		if letters, err := q.Letters(t.Context(), queue.MessageID{}); err != nil || len(letters) > 0 {
			t.Errorf("letters by id: %+v, %v", letters, err)
		}
		if swept, err := q.Sweep(t.Context(), queue.Sweep{}); err != nil || swept != (queue.Swept{}) {
			t.Errorf("a sweep: %+v, %v", swept, err)
		}
		if _, err := p.log.TopicNow(t.Context(), "mail.dlt"); !errors.Is(err, eventlog.ErrUnknownTopic) {
			t.Errorf("then the topic is there: %v", err)
		}
		enqueue(t, q, "a")
		errs, err := q.Nack(t.Context(), queue.Nack{Reject: true}, claimN(t, q, 1)[0].Receipt)
		if err := one(t, errs, err); err != nil {
			t.Fatal(err)
		}
		if letters, err := q.DeadLetters(t.Context(), queue.MessageID{}, 10); err != nil || len(letters) != 1 {
			t.Errorf("then there are %+v, %v, want one", letters, err)
		}
	})
}
