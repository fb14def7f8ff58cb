package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/queue"
)

// openLog opens a log on a store, as another process does.
func openLog(t *testing.T, store eventlog.Store) *eventlog.Log {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store, eventlog.Config{Poll: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = log.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	synctest.Wait()
	return log
}

// beforePut calls do before a commit that puts a key with the prefix.
type beforePut struct {
	eventlog.Store
	prefix string
	do     atomic.Pointer[func()] // nil: nothing
}

func (s *beforePut) then(do func()) { s.do.Store(&do) }

func (s *beforePut) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if do := s.do.Load(); do != nil && slices.ContainsFunc(flush, func(e eventlog.Entry) bool {
		return slices.ContainsFunc(e.Puts, func(p eventlog.Put) bool { return strings.HasPrefix(p.Key, s.prefix) })
	}) {
		(*do)()
	}
	return s.Store.Commit(ctx, flush)
}

// compact makes a topic compacted, as every door does it.
func compact(t *testing.T, log *eventlog.Log, topic string) error {
	t.Helper()
	_, err := log.AlterTopic(t.Context(), topic, func(config map[string]string) error {
		config["cleanup.policy"] = "compact,delete"
		config["min.cleanable.dirty.ratio"] = "0"
		return nil
	})
	return err
}

func wantInvalid(t *testing.T, what string, err error, says string) {
	t.Helper()
	if _, is := errors.AsType[*eventlog.InvalidError](err); !is || !strings.Contains(fmt.Sprint(err), says) {
		t.Errorf("%s: %v, want it to be refused with %q", what, err, says)
	}
}

func TestNoTopicOfAQueueCanBeCompactedUntilTheQueueIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		qs := start(t, store)
		other := openLog(t, store)
		if _, err := other.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "shared", Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		create(t, qs, queue.Spec{Name: "mail", Topic: "shared", Settings: queue.Settings{KeepDone: true, Priorities: 2}})
		create(t, qs, queue.Spec{Name: "bills", Topic: "shared", Partitions: 1})
		for _, topic := range []string{"shared", "mail.p1", "mail.dlt", "mail.done", "bills.dlt"} {
			wantInvalid(t, topic, compact(t, other, topic), "needs all records of topic")
			now, err := other.TopicNow(t.Context(), topic)
			if err != nil {
				t.Fatal(err)
			}
			wantInvalid(t, "delete records of "+topic, other.CheckDeletes(t.Context(), now)[0], "needs its records")
		}
		if err := qs.Delete(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		wantInvalid(t, "shared, of which one queue is left", compact(t, other, "shared"), `queue "bills"`)
		if err := compact(t, other, "mail.dlt"); err != nil {
			t.Errorf("a topic of a deleted queue: %v", err)
		}
		if err := qs.Delete(t.Context(), "bills"); err != nil {
			t.Fatal(err)
		}
		if err := compact(t, other, "shared"); err != nil {
			t.Errorf("a topic whose queues were deleted: %v", err)
		}
		_, err := qs.Create(t.Context(), queue.Spec{Name: "mail", Topic: "shared"})
		wantInvalid(t, "a queue on a compacted topic", err, "it is compacted")
	})
}

func TestATopicAddedToAQueueLaterCannotBeCompacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		qs, other := start(t, store), openLog(t, store)
		create(t, qs, queue.Spec{Name: "mail"})
		if _, err := qs.Alter(t.Context(), "mail", func(s *queue.Settings) error {
			s.KeepDone, s.Priorities, s.Concurrency = true, 3, 5
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, topic := range []string{"mail.p2", "mail.done"} {
			wantInvalid(t, topic, compact(t, other, topic), `queue "mail" needs all records of topic`)
		}
	})
}

func TestAQueueIsNotCreatedOnATopicThatBecomesCompactedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		turn := &beforePut{Store: store, prefix: "queue/def/"}
		qs, other := start(t, turn), openLog(t, store)
		if _, err := other.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "shared", Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		var altered error
		turn.then(sync.OnceFunc(func() { altered = compact(t, other, "shared") }))
		_, err := qs.Create(t.Context(), queue.Spec{Name: "mail", Topic: "shared"})
		if altered != nil {
			t.Errorf("before the queue exists its topic cannot be changed: %v", altered)
		}
		wantUnsure(t, "create the queue, of which mail.dlt was created", err, "it is compacted")
		_, err = qs.Create(t.Context(), queue.Spec{Name: "mail", Topic: "shared"})
		wantInvalid(t, "create the queue", err, "it is compacted")
	})
}

func TestTheTopicsOfQueuesThatAreOlderThanOwnersGetThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		create(t, idle(t, store), queue.Spec{Name: "mail", Settings: queue.Settings{KeepDone: true}})
		other := openLog(t, store)
		// What a process of an older version leaves of a topic when it changes the topic.
		for _, name := range []string{"mail", "mail.dlt", "mail.done"} {
			kv, err := other.Get(t.Context(), "topic/"+name)
			if err != nil {
				t.Fatal(err)
			}
			from, to := bytes.Index(kv.Value, []byte(`,"owners":[`)), bytes.Index(kv.Value, []byte(`}],`))
			if from < 0 || to < from {
				t.Fatalf("topic %s has no owners: %s", name, kv.Value)
			}
			old := append(bytes.Clone(kv.Value[:from]), kv.Value[to+2:]...)
			if _, err := other.Append(t.Context(), eventlog.Entry{
				Checks: []eventlog.Check{{Key: kv.Key, Version: kv.Version}},
				Puts:   []eventlog.Put{{Key: kv.Key, Version: kv.Version.Next(), Value: old}},
			}); err != nil {
				t.Fatal(err)
			}
		}
		start(t, store)
		time.Sleep(time.Minute)
		for _, topic := range []string{"mail", "mail.dlt", "mail.done"} {
			wantInvalid(t, topic, compact(t, other, topic), `queue "mail" needs all records of topic`)
		}
	})
}

func TestACompactionThatBeganBeforeTheQueueRemovesNoMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		turn := &beforePut{Store: store, prefix: "compact/"}
		log := openLog(t, turn)
		topic, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "shared", Partitions: 1, Config: map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 5 {
			if _, err := log.Publish(t.Context(), topic.Partitions[0], batch.Record{Key: []byte("k"), Value: []byte{'0' + byte(n)}}); err != nil {
				t.Fatal(err)
			}
		}
		puts, reached, release := 0, make(chan struct{}), make(chan struct{})
		turn.then(func() {
			if puts++; puts == 2 { // the first begins the pass
				close(reached)
				<-release
			}
		})
		<-reached
		other := openLog(t, store)
		if _, err := other.AlterTopic(t.Context(), "shared", func(config map[string]string) error {
			config["cleanup.policy"] = "delete"
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		qs := queuesOn(t, other)
		create(t, qs, queue.Spec{Name: "mail", Topic: "shared"})
		close(release)
		time.Sleep(2 * time.Minute)
		if got := values(claimN(t, open(t, qs, "mail"), 10)); got != "0 1 2 3 4 " {
			t.Errorf("the queue has %q, want all messages", got)
		}
	})
}

// A key's messages are in the partition that its number of partitions gives. With another number a
// second message of the key is in another partition, and would be claimed beside the first.
func TestATopicGetsNoMorePartitionsWhileAQueueKeepsTheOrderOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		qs, other := start(t, store), openLog(t, store)
		create(t, qs, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{KeyOrder: true, Priorities: 2}})
		partitions := 1
		grow := func(topic string) error {
			partitions++
			_, err := other.ChangeTopic(t.Context(), topic, eventlog.TopicChange{Partitions: partitions})
			return err
		}
		order := func(on bool) {
			t.Helper()
			if _, err := qs.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.KeyOrder = on; return nil }); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for range 2 {
			for _, topic := range []string{"mail", "mail.p1"} {
				wantInvalid(t, "more partitions of "+topic, grow(topic), `queue "mail" keeps the order of keys`)
			}
			order(false)
			for _, topic := range []string{"mail", "mail.p1"} {
				if err := grow(topic); err != nil {
					t.Errorf("more partitions without order: %v", err)
				}
				wantInvalid(t, topic, compact(t, other, topic), "needs all records of topic")
			}
			order(true)
		}
		if err := grow("mail.dlt"); err != nil {
			t.Errorf("more partitions for dead letters: %v", err)
		}
		if err := qs.Delete(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		if err := grow("mail"); err != nil {
			t.Errorf("more partitions after the queue: %v", err)
		}
	})
}

// A queue made before another one must not be where the other one puts what it gives up.
func TestAQueueMakesNoTopicThatAnotherQueueWouldTakeForItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, memory.New())
		for _, spec := range []queue.Spec{{Name: "mail.dlt"}, {Name: "mail.done"}, {Name: "mail.p7"}, {Name: "letters", Topic: "mail.dlt"}} {
			var invalid *eventlog.InvalidError
			if _, err := qs.Create(t.Context(), spec); !errors.As(err, &invalid) {
				t.Errorf("%+v: %v", spec, err)
			}
		}
		for _, spec := range []queue.Spec{{Name: "mail"}, {Name: "mail.p8"}, {Name: "letters", Topic: "mail.dlt"}} {
			create(t, qs, spec)
		}
	})
}
