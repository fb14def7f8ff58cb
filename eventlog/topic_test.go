package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

func TestTopicSurvivesReopen(t *testing.T) {
	store := memory.New()
	log := open(t, store, eventlog.Config{})
	made, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 3, Config: map[string]string{"retention.ms": "1000"}, Writer: "streams"})
	if err != nil {
		t.Fatal(err)
	}
	if made, err = log.ChangeTopic(t.Context(), "orders", eventlog.TopicChange{Partitions: 4}); err != nil || made.Writer != "streams" {
		t.Fatalf("with a partition more: %+v, %v", made, err)
	}
	found, err := open(t, store, eventlog.Config{}).Topic(t.Context(), "orders")
	if err != nil || fmt.Sprint(found) != fmt.Sprint(made) {
		t.Errorf("found %v, %v, want %v", found, err, made)
	}
}

func TestTopicsOfOtherProcessesAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		here, there := open(t, store, eventlog.Config{}), open(t, store, eventlog.Config{})
		made := topic(t, there, "orders", 1)
		if found, err := here.Topic(t.Context(), "orders"); err != nil || found.ID != made.ID {
			t.Errorf("by name at once: %v, %v", found, err)
		}
		if _, err := there.AlterTopic(t.Context(), "orders", func(c map[string]string) error {
			c["retention.ms"] = "7"
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // fake time
		if found := here.Topics(); len(found) != 1 || found[0].Config["retention.ms"] != "7" {
			t.Errorf("after a poll: %v", found)
		}
		if err := there.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if found := here.Topics(); len(found) != 0 {
			t.Errorf("after it was deleted: %v", found)
		}
		if _, err := here.Publish(t.Context(), made.Partitions[0], batch.Record{}); !errors.Is(err, eventlog.ErrNoPartition) {
			t.Errorf("publish to the deleted topic: %v, want ErrNoPartition", err)
		}
	})
}

func TestTopicIsCreatedByOneOfMany(t *testing.T) {
	store := memory.New()
	logs := []*eventlog.Log{open(t, store, eventlog.Config{}), open(t, store, eventlog.Config{})}
	var (
		all     sync.WaitGroup
		mu      sync.Mutex // guards created and seen
		created int
		seen    = make(map[eventlog.Partition]string)
	)
	for i := range 20 {
		all.Go(func() {
			name := fmt.Sprintf("topic-%d", i/4) // four processes' worth of callers for each name
			made, err := logs[i%2].CreateTopic(t.Context(), eventlog.TopicSpec{Name: name, Partitions: 3})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				created++
				for _, p := range made.Partitions {
					if other, taken := seen[p]; taken || p == 0 {
						t.Errorf("partition %d belongs to %s and %s", p, other, name)
					}
					seen[p] = name
				}
			case !errors.Is(err, eventlog.ErrTopicExists):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if created != 5 {
		t.Errorf("%d topics were created, want 5", created)
	}
}

func TestRecreatedTopicIsAnother(t *testing.T) {
	log := open(t, memory.New(), eventlog.Config{})
	old := topic(t, log, "orders", 1)
	if _, err := log.Publish(t.Context(), old.Partitions[0], batch.Record{Value: []byte("old")}); err != nil {
		t.Fatal(err)
	}
	if err := log.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	again := topic(t, log, "orders", 1)
	if again.ID == old.ID || again.Partitions[0] == old.Partitions[0] || again.Version <= old.Version {
		t.Errorf("%v became %v", old, again)
	}
	if got := values(t, log, again.Partitions[0]); len(got) != 0 {
		t.Errorf("it holds %q, want nothing", got)
	}
	got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: old.Partitions[0], MaxBytes: 1}}})
	if err != nil || !errors.Is(got[0].Err, eventlog.ErrNoPartition) {
		t.Errorf("the old partition: %v, %v, want ErrNoPartition", got, err)
	}
}

// twins is a store that lets another process change topics between a log's look at one and its
// commit.
type twins struct {
	eventlog.Store
	between func()
}

func (s *twins) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if f := s.between; f != nil {
		s.between = nil
		f()
	}
	return s.Store.Commit(ctx, flush)
}

func TestAChangeNeverGoesOnWithTheNamesake(t *testing.T) {
	for name, change := range map[string]func(context.Context, *eventlog.Log) error{
		"delete": func(ctx context.Context, l *eventlog.Log) error { return l.DeleteTopic(ctx, "orders") },
		"alter": func(ctx context.Context, l *eventlog.Log) error {
			_, err := l.AlterTopic(ctx, "orders", func(c map[string]string) error { c["retention.ms"] = "1"; return nil })
			return err
		},
		"add partitions": func(ctx context.Context, l *eventlog.Log) error {
			_, err := l.ChangeTopic(ctx, "orders", eventlog.TopicChange{Partitions: 9})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				there := open(t, store, eventlog.Config{})
				seam := &twins{Store: store}
				here := open(t, seam, eventlog.Config{})
				topic(t, there, "orders", 1)
				var made eventlog.Topic
				seam.between = func() {
					if err := there.DeleteTopic(t.Context(), "orders"); err != nil {
						t.Error(err)
					}
					made = topic(t, there, "orders", 2)
				}
				if err := change(t.Context(), here); !errors.Is(err, eventlog.ErrUnknownTopic) {
					t.Errorf("%v, want ErrUnknownTopic", err)
				}
				if now, err := there.TopicNow(t.Context(), "orders"); err != nil || fmt.Sprint(now) != fmt.Sprint(made) {
					t.Errorf("the namesake became %v, %v; it was %v", now, err, made)
				}
			})
		})
	}
}

// topicLists is a store that lets others act right before it lists the topics, or after that before
// anybody hears the answer. Each function is called once.
type topicLists struct {
	eventlog.Store
	mu            sync.Mutex // guards what follows
	before, after func()
}

func (s *topicLists) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if prefix != "topic/" {
		return s.Store.List(ctx, prefix, after, limit)
	}
	s.mu.Lock()
	first, last := s.before, s.after
	s.before, s.after = nil, nil
	s.mu.Unlock()
	if first != nil {
		first()
	}
	list, err := s.Store.List(ctx, prefix, after, limit)
	if last != nil {
		last()
	}
	return list, err
}

// Two callers read the topics at the same time, as after a suspension, and what one read earlier
// comes last: it must not take the place of what the other has found.
func TestADeletedTopicDoesNotComeBackToAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		there := open(t, store, eventlog.Config{})
		seam := &topicLists{Store: store}
		here := open(t, seam, eventlog.Config{})
		topic(t, there, "orders", 1)
		held, release, late := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		seam.after = func() { close(held); <-release }
		go func() { late <- here.RefreshTopics(t.Context()) }()
		<-held
		var made eventlog.Topic
		seam.mu.Lock()
		seam.before = func() {
			if err := there.DeleteTopic(t.Context(), "orders"); err != nil {
				t.Error(err)
			}
			made = topic(t, there, "orders", 1)
		}
		seam.mu.Unlock()
		if err := here.RefreshTopics(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(release)
		if err := <-late; err != nil {
			t.Fatal(err)
		}
		if found, err := here.Topic(t.Context(), "orders"); err != nil || found.ID != made.ID {
			t.Errorf("the process knows %v, %v, want %v", found, err, made)
		}
	})
}

func TestATopicThatIsMeantByIDIsNoOther(t *testing.T) {
	log := open(t, memory.New(), eventlog.Config{})
	old := topic(t, log, "orders", 1)
	if err := log.DeleteTopics(t.Context(), old)[0]; err != nil {
		t.Fatal(err)
	}
	made := topic(t, log, "orders", 1)
	if err := log.DeleteTopics(t.Context(), old)[0]; !errors.Is(err, eventlog.ErrUnknownTopic) {
		t.Errorf("delete the old one: %v, want ErrUnknownTopic", err)
	}
	if _, err := log.ChangeTopic(t.Context(), "orders", eventlog.TopicChange{ID: old.ID, Partitions: 2}); !errors.Is(err, eventlog.ErrUnknownTopic) {
		t.Errorf("change the old one: %v, want ErrUnknownTopic", err)
	}
	if now, err := log.TopicNow(t.Context(), "orders"); err != nil || fmt.Sprint(now) != fmt.Sprint(made) {
		t.Errorf("the namesake became %v, %v; it was %v", now, err, made)
	}
}

// A deletion whose answer is lost is whole: a process that has not heard of it cannot append to
// what goes.
func TestADeletionIsOneEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		seam := &failing{Store: store}
		here, stale := open(t, seam, eventlog.Config{}), open(t, store, eventlog.Config{Poll: time.Hour})
		old := topic(t, here, "orders", 3)
		if _, err := stale.Topic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		seam.fail(nil, []error{eventlog.ErrUnsure})
		if err := here.DeleteTopic(t.Context(), "orders"); !errors.Is(err, eventlog.ErrUnsure) {
			t.Errorf("%v, want ErrUnsure", err)
		}
		if _, err := stale.TopicNow(t.Context(), "orders"); !errors.Is(err, eventlog.ErrUnknownTopic) {
			t.Errorf("its name is still there: %v", err)
		}
		for _, p := range old.Partitions {
			if _, err := stale.Publish(t.Context(), p, batch.Record{}); !errors.Is(err, eventlog.ErrNoPartition) {
				t.Errorf("a record for partition %d of a topic whose name is gone: %v, want ErrNoPartition", p, err)
			}
		}
	})
}

// Stores judge the entries of a flush side by side: records that wait beside a deletion come before
// it or are refused.
func TestADeletionIsAloneInItsFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := &gate{Store: &strict{memory.New(), t}, open: make(chan struct{})}
		door.pass()
		log := open(t, door, eventlog.Config{})
		p := topic(t, log, "orders", 1).Partitions[0]
		door.shut()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if out, err := log.Publish(t.Context(), p, batch.Record{}); err != nil && !errors.Is(err, eventlog.ErrNoPartition) {
					t.Errorf("%v, %v", out, err)
				}
			})
			all.Go(func() {
				if _, err := log.Append(t.Context(), eventlog.Entry{Forgets: []eventlog.Partition{p}}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		door.pass()
		all.Wait()
	})
}

func TestPartitionsAreOnlyAdded(t *testing.T) {
	log := open(t, memory.New(), eventlog.Config{})
	old := topic(t, log, "orders", 2)
	grown, err := log.ChangeTopic(t.Context(), "orders", eventlog.TopicChange{Partitions: 4})
	if err != nil || len(grown.Partitions) != 4 || grown.Partitions[1] != old.Partitions[1] || grown.ID != old.ID {
		t.Errorf("%v became %v, %v", old, grown, err)
	}
	if _, err := log.Publish(t.Context(), grown.Partitions[3], batch.Record{}); err != nil {
		t.Error(err)
	}
	for _, n := range []int{1, -1, eventlog.PartitionsMax + 1} {
		var invalid *eventlog.InvalidError
		if _, err := log.ChangeTopic(t.Context(), "orders", eventlog.TopicChange{Partitions: n}); !errors.As(err, &invalid) {
			t.Errorf("to %d: %v, want an *InvalidError", n, err)
		}
	}
}

func TestAChangeOfATopicIsWholeOrNone(t *testing.T) {
	log := open(t, memory.New(), eventlog.Config{})
	old := topic(t, log, "orders", 2)
	keep := func(config map[string]string) error { config["retention.ms"] = "60000"; return nil }
	for name, change := range map[string]eventlog.TopicChange{
		"fewer partitions": {Partitions: 1, Config: keep},
		"too many":         {Partitions: eventlog.PartitionsMax + 1, Config: keep},
		"a wrong setting":  {Partitions: 4, Config: func(config map[string]string) error { config["retention.ms"] = "x"; return nil }},
	} {
		var invalid *eventlog.InvalidError
		if _, err := log.ChangeTopic(t.Context(), "orders", change); !errors.As(err, &invalid) {
			t.Errorf("%s: %v, want an *InvalidError", name, err)
		}
		if now, err := log.Topic(t.Context(), "orders"); err != nil || fmt.Sprint(now) != fmt.Sprint(old) {
			t.Errorf("%s: %v became %v, %v", name, old, now, err)
		}
	}
	now, err := log.ChangeTopic(t.Context(), "orders", eventlog.TopicChange{Partitions: 3, Config: keep})
	if err != nil || len(now.Partitions) != 3 || now.Config["retention.ms"] != "60000" || now.Version != old.Version+1 {
		t.Errorf("%v, %v", now, err)
	}
	if now, err = log.ChangeTopic(t.Context(), "orders", eventlog.TopicChange{Partitions: 3}); err != nil || len(now.Partitions) != 3 {
		t.Errorf("as many as there are: %v, %v", now, err)
	}
	if _, err := log.ChangeTopic(t.Context(), "nowhere", eventlog.TopicChange{Partitions: 3}); !errors.Is(err, eventlog.ErrUnknownTopic) {
		t.Errorf("of no topic: %v", err)
	}
}

func TestTopicNamesFollowKafkasRule(t *testing.T) {
	for name, ok := range map[string]bool{
		"orders": true, "a.b_c-D9": true, strings.Repeat("x", 249): true, "Foo": true, "...": true,
		"": false, ".": false, "..": false, strings.Repeat("x", 250): false, "a/b": false, "../../etc/passwd": false, "a\x00b": false, "a\nb": false,
		"\x1b[31m": false, "'; DROP TABLE x;--": false, `"`: false, "`": false, "%": false, "ü": false, "😀": false, "\xff\xfe": false, "a b": false,
	} {
		if err := eventlog.CheckTopicName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	for _, c := range []struct {
		name, value string
		ok          bool
	}{
		{"retention.ms", "-1", true},
		{"retention.ms", "-2", false},
		{"retention.ms", "9223372036854775807", true},
		{"retention.ms", "1e3", false},
		{"max.message.bytes", "2147483648", false},
		{"cleanup.policy", "delete", true},
		{"cleanup.policy", "compress", false},
		{"compression.type", "zstd", true},
		{"compression.type", "brotli", false},
		{"message.timestamp.type", "LogAppendTime", true},
		{"segment.bytes", "104857600", true},
		{"flush.ms", "1000", true},
		{"min.insync.replicas", "1", true},
		{"min.insync.replicas", "2", true}, // changes nothing
		{"min.insync.replicas", "0", false},
		{"unclean.leader.election.enable", "true", false},
		{"no.such.setting", "1", false},
	} {
		if err := eventlog.CheckConfig(map[string]string{c.name: c.value}); (err == nil) != c.ok {
			t.Errorf("%s=%s: %v", c.name, c.value, err)
		}
	}
}

func TestRetentionByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, memory.New(), eventlog.Config{})
		made, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 1, Config: map[string]string{"retention.ms": "60000"}})
		if err != nil {
			t.Fatal(err)
		}
		p := made.Partitions[0]
		for range 120 { // two minutes, a record a second
			if _, err := log.Publish(t.Context(), p, batch.Record{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // fake time
		}
		got, err := log.Bounds(t.Context(), p)
		if kept := got[0].Bounds.Next - got[0].Bounds.First; err != nil || kept < 60 || kept > 66 {
			t.Errorf("%d records are kept, %v, want those of the last minute and no more than one check's worth beside", kept, err)
		}
	})
}

func TestRecordsOfUnknownAgeAreNotTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, memory.New(), eventlog.Config{})
		made, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 1, Config: map[string]string{"retention.ms": "60000"}})
		if err != nil {
			t.Fatal(err)
		}
		p := made.Partitions[0]
		for _, step := range []struct {
			time  int64
			first eventlog.Offset // an hour later
		}{{batch.NoTimestamp, 0}, {batch.NoTimestamp, 0}, {0, 3}, {batch.NoTimestamp, 3}} {
			if _, err := log.Publish(t.Context(), p, batch.Record{Timestamp: step.time}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour) // fake time
			if got, err := log.Bounds(t.Context(), p); err != nil || got[0].Bounds.First != step.first {
				t.Errorf("%+v, %v: want the first at %d", got[0].Bounds, err, step.first)
			}
		}
	})
}

func TestRetentionBySizeNeverKeepsLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, memory.New(), eventlog.Config{})
		made, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 1, Config: map[string]string{"retention.bytes": "10000"}})
		if err != nil {
			t.Fatal(err)
		}
		p := made.Partitions[0]
		for range 100 {
			if _, err := log.Publish(t.Context(), p, batch.Record{Value: make([]byte, 1000)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute) // fake time
		got, err := log.Bounds(t.Context(), p)
		if kept := got[0].Bounds.Bytes; err != nil || kept < 10000 || kept > 11200 {
			t.Errorf("%d bytes are kept, %v, want 10000 and no more than a batch beside", kept, err)
		}
	})
}

// slowCommits takes a while for each commit, and counts them.
type slowCommits struct {
	eventlog.Store
	n *atomic.Int64
}

func (s slowCommits) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	s.n.Add(1)
	time.Sleep(10 * time.Millisecond)
	return s.Store.Commit(ctx, flush)
}

// Many clients create topics at the same time: all succeed. Those of one process are not in each
// other's way.
func TestManyCreateTopicsAtTheSameTime(t *testing.T) {
	for _, processes := range []int{1, 3} {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, n := memory.New(), new(atomic.Int64)
				var logs []*eventlog.Log
				for range processes {
					logs = append(logs, open(t, slowCommits{store, n}, eventlog.Config{}))
				}
				const topics = 100
				before := n.Load()
				var all sync.WaitGroup
				for i := range topics {
					all.Go(func() {
						if _, err := logs[i%processes].CreateTopic(t.Context(), eventlog.TopicSpec{Name: fmt.Sprint("t", i), Partitions: 1}); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				if commits := n.Load() - before; processes == 1 && commits != topics {
					t.Errorf("%d topics took %d commits", topics, commits)
				}
			})
		})
	}
}

// A change that waits for others of its process ends with its caller, and says why. The store is
// not to blame.
func TestAChangeOfATopicThatWaitsTooLongSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &gate{Store: memory.New(), open: make(chan struct{})}
		store.pass()
		log := open(t, store, eventlog.Config{})
		store.shut()
		first := make(chan error, 1)
		go func() {
			_, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "first", Partitions: 1})
			first <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := log.CreateTopic(ctx, eventlog.TopicSpec{Name: "second", Partitions: 1}); !errors.Is(err, eventlog.ErrBusy) || !errors.Is(err, eventlog.ErrUnavailable) || strings.Contains(err.Error(), "unavailable") {
			t.Error(err)
		}
		store.pass()
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

// All topics together have a bound on their partitions, which a topic that is deleted gives back.
func TestAllTopicsTogetherHaveABoundOnPartitions(t *testing.T) {
	log := open(t, memory.New(), eventlog.Config{TotalPartitions: 10})
	topic(t, log, "six", 6)
	refused := func(err error) {
		t.Helper()
		var invalid *eventlog.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "have 6 partitions already, and may have 10") {
			t.Errorf("%v, want an *InvalidError with both numbers", err)
		}
	}
	_, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "five", Partitions: 5})
	refused(err)
	_, err = log.ChangeTopic(t.Context(), "six", eventlog.TopicChange{Partitions: 11})
	refused(err)
	if _, err = log.ChangeTopic(t.Context(), "six", eventlog.TopicChange{Partitions: 10}); err != nil {
		t.Fatal(err)
	}
	if _, err = log.AlterTopic(t.Context(), "six", func(config map[string]string) error { config["retention.ms"] = "1"; return nil }); err != nil {
		t.Errorf("a change that adds no partition: %v", err)
	}
	if err := log.DeleteTopic(t.Context(), "six"); err != nil {
		t.Fatal(err)
	}
	topic(t, log, "ten", 10)
	if err := log.DeleteTopic(t.Context(), "ten"); err != nil {
		t.Fatal(err)
	}
	topic(t, log, "three", 3)
	topic(t, log, "also-three", 3)
	_, errs := log.ChangeTopics(t.Context(), eventlog.TopicChange{Name: "three", Partitions: 6}, eventlog.TopicChange{Name: "also-three", Partitions: 6})
	var invalid *eventlog.InvalidError
	if errs[0] != nil || !errors.As(errs[1], &invalid) {
		t.Errorf("two topics that grow together past the bound: %v, want that the second is refused", errs)
	}
}
