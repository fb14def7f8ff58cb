package eventlog_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// lingerer publishes to a topic whose records wait for 500 ms, unless they are 10 KiB, and to
// others.
type lingerer struct {
	t       *testing.T
	log     *eventlog.Log
	lazy    eventlog.Partition
	lazier  eventlog.Partition // waits for 2 s
	prompt  eventlog.Partition // does not wait
	flushes *attempts
	before  int
	all     sync.WaitGroup
}

func newLingerer(t *testing.T, store eventlog.Store, cfg eventlog.Config) *lingerer {
	l := &lingerer{t: t, flushes: &attempts{}}
	cfg.Observer = l.flushes
	l.log = open(t, store, cfg)
	for name, p := range map[string]*eventlog.Partition{"lazy": &l.lazy, "lazier": &l.lazier, "prompt": &l.prompt} {
		ms := map[string]string{"lazy": "500", "lazier": "2000", "prompt": "0"}[name]
		topic, err := l.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: name, Partitions: 1, Config: map[string]string{"weir.linger.ms": ms, "weir.linger.bytes": "10240"}})
		if err != nil {
			t.Fatal(err)
		}
		*p = topic.Partitions[0]
	}
	synctest.Wait()
	l.before = len(l.flushes.since(0))
	return l
}

// attempts notes how many records each flush has, also one that failed.
type attempts struct {
	mu      sync.Mutex // guards records
	records []int64
}

func (a *attempts) Flushed(d eventlog.Flush) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records = append(a.records, d.Records)
}

func (a *attempts) since(n int) []int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.records[n:])
}

func (*attempts) Fetched(int, bool)         {}
func (*attempts) StoreFailed(string, error) {}
func (*attempts) Retried()                  {}
func (*attempts) Delivered(time.Duration)   {}

// publish begins to publish a record of so many bytes.
func (l *lingerer) publish(p eventlog.Partition, bytes int) {
	l.all.Go(func() {
		if _, err := l.log.Publish(context.Background(), p, batch.Record{Value: make([]byte, bytes)}); err != nil {
			l.t.Error(err)
		}
	})
	synctest.Wait()
}

// expect expects flushes with these numbers of records, so far.
func (l *lingerer) expect(want ...int64) {
	l.t.Helper()
	synctest.Wait()
	if got := l.flushes.since(l.before); !slices.Equal(got, want) {
		l.t.Fatalf("the flushes had %v records, want %v", got, want)
	}
}

func lingers(t *testing.T, test func(l *lingerer)) {
	synctest.Test(t, func(t *testing.T) {
		l := newLingerer(t, memory.New(), eventlog.Config{})
		defer l.all.Wait()
		test(l)
	})
}

func TestRecordsOfATopicThatLingersWait(t *testing.T) {
	lingers(t, func(l *lingerer) {
		l.publish(l.lazy, 1)
		time.Sleep(300 * time.Millisecond)
		l.publish(l.lazy, 1)
		time.Sleep(199 * time.Millisecond)
		l.expect()
		time.Sleep(time.Millisecond)
		l.expect(2) // the first one waited for 500 ms
		l.publish(l.lazy, 1)
		time.Sleep(499 * time.Millisecond)
		l.expect(2)
		time.Sleep(time.Millisecond)
		l.expect(2, 1)
	})
}

func TestTheShortestLingerTakesAlongWhatWaits(t *testing.T) {
	for name, c := range map[string]struct {
		more func(l *lingerer)
		at   time.Duration
		want int64
	}{
		"a topic that waits less": {func(l *lingerer) { l.publish(l.lazy, 1) }, 500 * time.Millisecond, 2},
		"an entry for several topics that wait": {func(l *lingerer) {
			e := sealed(l.t, l.lazier, 1, -1, 0, 0)
			e.Batches = append(e.Batches, sealed(l.t, l.lazy, 1, -1, 0, 0).Batches...)
			l.all.Go(func() {
				if _, err := l.log.Append(context.Background(), e); err != nil {
					l.t.Error(err)
				}
			})
			synctest.Wait()
		}, 500 * time.Millisecond, 3},
		"a topic that does not wait": {func(l *lingerer) { l.publish(l.prompt, 1) }, 0, 2},
		"a key": {func(l *lingerer) {
			if _, err := l.log.Append(l.t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: "k", Version: 1, Value: []byte("v")}}}); err != nil {
				l.t.Fatal(err)
			}
		}, 0, 1},
		"a batch with a key": {func(l *lingerer) {
			e := sealed(l.t, l.lazy, 1, -1, 0, 0)
			e.Puts = []eventlog.Put{{Key: "k", Version: 1, Value: []byte("v")}}
			if _, err := l.log.Append(l.t.Context(), e); err != nil {
				l.t.Fatal(err)
			}
		}, 0, 2},
		"an entry for several topics, of which one does not wait": {func(l *lingerer) {
			e := sealed(l.t, l.lazy, 1, -1, 0, 0)
			e.Batches = append(e.Batches, sealed(l.t, l.prompt, 1, -1, 0, 0).Batches...)
			if _, err := l.log.Append(l.t.Context(), e); err != nil {
				l.t.Fatal(err)
			}
		}, 0, 3},
		"an entry that is built late": {func(l *lingerer) {
			if _, err := l.log.SubmitLate(l.t.Context(), 1, func() (eventlog.Entry, bool) { return sealed(l.t, l.lazy, 1, -1, 0, 0), true }).Wait(l.t.Context()); err != nil {
				l.t.Fatal(err)
			}
		}, 0, 2},
		"a topic that has ceased to wait": {func(l *lingerer) {
			if _, err := l.log.AlterTopic(l.t.Context(), "lazy", func(config map[string]string) error { delete(config, "weir.linger.ms"); return nil }); err != nil {
				l.t.Fatal(err)
			}
			l.before++ // the change was a flush, and took the record along
			l.publish(l.lazy, 1)
		}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			lingers(t, func(l *lingerer) {
				l.publish(l.lazier, 1)
				l.expect()
				c.more(l)
				if c.at > 0 {
					time.Sleep(c.at - time.Nanosecond)
					l.expect()
					time.Sleep(time.Nanosecond)
				}
				l.expect(c.want)
			})
		})
	}
}

func TestBatchesOfIdempotentProducersLinger(t *testing.T) {
	lingers(t, func(l *lingerer) {
		for sequence := range int32(3) {
			ticket := l.log.Submit(l.t.Context(), sealed(l.t, l.lazy, 1, 7, 0, sequence))
			l.all.Go(func() {
				if _, err := ticket.Wait(context.Background()); err != nil {
					l.t.Error(err)
				}
			})
		}
		time.Sleep(500*time.Millisecond - time.Nanosecond)
		l.expect()
		time.Sleep(time.Nanosecond)
		l.expect(3)
	})
}

func TestManyBytesDoNotLinger(t *testing.T) {
	t.Run("of a topic", func(t *testing.T) {
		lingers(t, func(l *lingerer) {
			l.publish(l.lazy, 6<<10)
			l.publish(l.lazier, 6<<10)
			l.expect()
			l.publish(l.lazy, 6<<10)
			l.expect(3)
			l.publish(l.lazy, 6<<10) // counting begins again
			l.expect(3)
		})
	})
	t.Run("of all topics", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newLingerer(t, memory.New(), eventlog.Config{}.With(eventlog.Limits{FlushBytes: 12 << 10}))
			defer l.all.Wait()
			l.publish(l.lazy, 6<<10)
			l.expect()
			l.publish(l.lazier, 6<<10)
			l.expect(2)
		})
	})
}

// slow is a store whose commits take a moment.
type slow struct{ eventlog.Store }

func (s slow) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	time.Sleep(10 * time.Millisecond)
	return s.Store.Commit(ctx, flush)
}

// Who waits for room in the queue does not wait for what lingers there.
func TestAFullQueueDoesNotLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLingerer(t, memory.New(), eventlog.Config{}.With(eventlog.Limits{FlushBytes: 1 << 20, QueueBytes: 10 << 10}))
		defer l.all.Wait()
		l.publish(l.lazier, 6<<10)
		l.expect()
		l.publish(l.lazier, 6<<10)
		l.expect(1)
	})
}

// What did not fit into a flush has waited.
func TestWhatAFlushLeavesGoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLingerer(t, slow{memory.New()}, eventlog.Config{})
		defer l.all.Wait()
		l.publish(l.lazier, 1)
		began := time.Now()
		put := func(version eventlog.Version) *eventlog.Ticket {
			return l.log.Submit(l.t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: "k", Version: version, Value: []byte("v")}}})
		}
		first, second := put(1), put(2) // one key cannot be put twice in a flush
		synctest.Wait()                 // the first is being committed
		l.publish(l.lazier, 1)
		for _, ticket := range []*eventlog.Ticket{first, second} {
			if _, err := ticket.Wait(l.t.Context()); err != nil {
				l.t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		l.expect(1, 1)
	})
}

func TestALogThatStopsDoesNotLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		log, err := eventlog.Open(ctx, memory.New(), eventlog.Config{})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- log.Run(ctx) }()
		lazy, err := log.CreateTopic(ctx, eventlog.TopicSpec{Name: "lazy", Partitions: 1, Config: map[string]string{"weir.linger.ms": "2000"}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		ticket := log.Submit(ctx, sealed(t, lazy.Partitions[0], 1, -1, 0, 0))
		stop()
		if _, err := ticket.Wait(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took >= 2*time.Second {
			t.Errorf("it took %v", took)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// unavailable refuses so many commits.
type unavailable struct {
	eventlog.Store
	left int
}

func (s *unavailable) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if s.left > 0 {
		s.left--
		return nil, fmt.Errorf("commit: %w", eventlog.ErrUnavailable)
	}
	return s.Store.Commit(ctx, flush)
}

func TestAFlushThatIsRepeatedDoesNotLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &unavailable{Store: memory.New()}
		l := newLingerer(t, store, eventlog.Config{})
		defer l.all.Wait()
		store.left = 2
		l.publish(l.lazier, 1)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		l.publish(l.lazier, 1) // while the first is repeated
		time.Sleep(200 * time.Millisecond)
		l.expect(1, 2, 2)
	})
}

// publishNow publishes a record.
func (l *lingerer) publishNow(p eventlog.Partition) {
	if _, err := l.log.Publish(context.Background(), p, batch.Record{Value: []byte("v")}); err != nil {
		l.t.Error(err)
	}
}

// submit submits an entry, and expects that it is committed in the end.
func (l *lingerer) submit(e eventlog.Entry) {
	ticket := l.log.Submit(l.t.Context(), e)
	l.all.Go(func() {
		if _, err := ticket.Wait(context.Background()); err != nil {
			l.t.Error(err)
		}
	})
	synctest.Wait()
}

// One call that publishes to ten partitions has its bytes once.
func TestBytesOfSeveralPartitionsCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLingerer(t, memory.New(), eventlog.Config{})
		defer l.all.Wait()
		wide, err := l.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "wide", Partitions: 10, Config: map[string]string{"weir.linger.ms": "500", "weir.linger.bytes": "102400"}})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		l.before++
		var e eventlog.Entry
		for _, p := range wide.Partitions {
			e.Batches = append(e.Batches, sealed(t, p, 1, -1, 0, 0).Batches...)
		}
		l.submit(e)
		l.expect()
	})
}

// weir.linger.bytes counts bytes of records, not what weir adds to them in memory.
func TestBytesOfSmallBatchesAreCountedAsTheyAre(t *testing.T) {
	lingers(t, func(l *lingerer) {
		for range 20 {
			l.submit(sealed(t, l.lazy, 1, -1, 0, 0)) // less than 100 bytes
		}
		l.expect()
	})
}

// A record that comes while a flush is gathered has not waited yet.
func TestWhatComesWhileAFlushIsGatheredLingers(t *testing.T) {
	lingers(t, func(l *lingerer) {
		came := make(chan struct{})
		l.all.Go(func() {
			<-came
			l.publishNow(l.lazy)
		})
		ticket := l.log.SubmitLate(l.t.Context(), 1, func() (eventlog.Entry, bool) {
			close(came)
			synctest.Wait()
			return sealed(t, l.prompt, 1, -1, 0, 0), true
		})
		if _, err := ticket.Wait(l.t.Context()); err != nil {
			l.t.Fatal(err)
		}
		time.Sleep(500*time.Millisecond - time.Nanosecond)
		l.expect(1)
		time.Sleep(time.Nanosecond)
		l.expect(1, 1)
	})
}

func TestNothingLingersAfterEndLinger(t *testing.T) {
	lingers(t, func(l *lingerer) {
		l.publish(l.lazier, 1)
		l.expect()
		l.log.EndLinger()
		l.expect(1)
		l.publish(l.lazier, 1)
		l.expect(1, 1)
	})
}

func TestFlushNowEndsTheWaitOfWhatWasSubmitted(t *testing.T) {
	lingers(t, func(l *lingerer) {
		l.publish(l.lazier, 1)
		l.expect()
		l.log.FlushNow()
		l.expect(1)
		l.publish(l.lazy, 1)
		l.expect(1)
		time.Sleep(500 * time.Millisecond)
		l.expect(1, 1)
	})
	lingers(t, func(l *lingerer) { // also if a flush was being gathered
		came := make(chan struct{})
		l.all.Go(func() {
			<-came
			l.publishNow(l.lazy)
		})
		ticket := l.log.SubmitLate(l.t.Context(), 1, func() (eventlog.Entry, bool) {
			close(came)
			synctest.Wait()
			l.log.FlushNow()
			return sealed(l.t, l.prompt, 1, -1, 0, 0), true
		})
		if _, err := ticket.Wait(l.t.Context()); err != nil {
			l.t.Fatal(err)
		}
		l.expect(1, 1)
	})
}
