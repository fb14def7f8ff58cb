package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// onLoss runs a test for a store that knows that it lost its end, and for one that does not.
func onLoss(t *testing.T, test func(t *testing.T, silently bool)) {
	for name, silently := range map[string]bool{"the store tells": false, "only the bounds show it": true} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, silently) }) })
	}
}

// rewound is a log whose partition ended at 6, and whose store holds what it held when it ended at
// 3.
func rewound(t *testing.T, silently bool, meanwhile func(log *eventlog.Log, p eventlog.Partition)) (*memory.Store, *eventlog.Log, eventlog.Partition) {
	t.Helper()
	store := memory.New()
	log := open(t, store, eventlog.Config{})
	p := topic(t, log, "t", 1).Partitions[0]
	for i := range 3 {
		publish(t, log, p, fmt.Sprint("kept ", i))
	}
	restore := store.Backup()
	for i := range 3 {
		publish(t, log, p, fmt.Sprint("lost ", i))
	}
	if meanwhile != nil {
		meanwhile(log, p)
	}
	restore(silently)
	return store, log, p
}

func TestALostEndIsToldToReadersAndNeverServed(t *testing.T) {
	onLoss(t, func(t *testing.T, silently bool) {
		type answer struct {
			slices []eventlog.Slice
			err    error
			took   time.Duration
		}
		waiting := make(chan answer, 1)
		_, log, p := rewound(t, silently, func(log *eventlog.Log, p eventlog.Partition) {
			go func() {
				start := time.Now()
				got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: 6, MaxBytes: 1 << 20}}, MaxWait: time.Minute})
				waiting <- answer{got, err, time.Since(start)}
			}()
			synctest.Wait()
		})
		told := <-waiting
		var outside *eventlog.RangeError
		if told.err != nil || !errors.As(told.slices[0].Err, &outside) || outside.Next != 3 || told.took > time.Second {
			t.Errorf("after %v a reader who waits at 6 is told %+v, %v; want that the partition ends at 3", told.took, told.slices, told.err)
		}
		if at := publish(t, log, p, "new"); at != 3 {
			t.Errorf("the next record is at %d, want 3", at)
		}
		if got := values(t, log, p); !slices.Equal(got, []string{"kept 0", "kept 1", "kept 2", "new"}) {
			t.Errorf("readers get %q", got)
		}
	})
}

// A reader who waited, and one who was busy while the log grew past where it stood, are both sent
// back to where its epoch ended.
func TestReadersAreSentBackToWhereTheirEpochEnded(t *testing.T) {
	onLoss(t, func(t *testing.T, silently bool) {
		fetch := func(log *eventlog.Log, p eventlog.Partition, from eventlog.Offset, epoch *int32, wait time.Duration) eventlog.Slice {
			got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: from, MaxBytes: 1 << 20}}, MaxWait: wait, Epoch: epoch})
			if err != nil {
				t.Error(err)
				return eventlog.Slice{}
			}
			return got[0]
		}
		var waited eventlog.Slice
		ended, waiting, epoch := make(chan struct{}), int32(0), int32(0)
		_, log, p := rewound(t, silently, func(log *eventlog.Log, p eventlog.Partition) {
			go func() {
				defer close(ended)
				waited = fetch(log, p, 6, &waiting, time.Minute)
				if now := log.LeaderEpoch(); waiting == 0 || waiting != now {
					t.Errorf("the answer to the reader who waited is of leader epoch %d, and it is %d", waiting, now)
				}
			}()
			synctest.Wait()
		})
		<-ended
		for i := range 10 {
			publish(t, log, p, fmt.Sprint("new ", i))
		}
		busy := fetch(log, p, 6, &epoch, time.Minute)
		for name, slice := range map[string]eventlog.Slice{"waited": waited, "was busy": busy} {
			var lost *eventlog.RangeError
			if !errors.As(slice.Err, &lost) || lost.Asked != 6 || lost.Next != 3 || len(slice.Batches) != 0 {
				t.Errorf("the reader who %s at 6 gets %+v; want that its epoch ended at 3", name, slice)
			}
		}
		if epoch != log.LeaderEpoch() {
			t.Errorf("the answer is of leader epoch %d, and it is %d", epoch, log.LeaderEpoch())
		}
		for _, from := range []eventlog.Offset{3, 6} { // in the new epoch both are there
			if s := fetch(log, p, from, &epoch, 0); s.Err != nil || len(s.Batches) == 0 || s.Batches[0].Base != from {
				t.Errorf("a reader of the new epoch at %d gets %+v", from, s)
			}
		}
		if s := fetch(log, p, 6, nil, 0); s.Err != nil || len(s.Batches) == 0 {
			t.Errorf("a reader who knows no epoch gets %+v", s)
		}
	})
}

// held is a store whose answers are on their way for long.
type held struct {
	eventlog.Store
	list, moved atomic.Bool
	free        chan struct{} // ends it when closed
}

func (h *held) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if h.list.Load() {
		<-h.free
	}
	return h.Store.List(ctx, prefix, after, limit)
}

func (h *held) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if h.list.Load() {
		<-h.free
	}
	return h.Store.Get(ctx, keys, maxBytes)
}

func (h *held) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	bounds, mark, err := h.Store.Changes(ctx, since)
	if h.moved.Load() && since == (eventlog.Mark{}) {
		<-h.free
	}
	return bounds, mark, err
}

// Another process began the epoch, and appended. This one asks the store where it is, and has not
// entered yet: what it reads must not pass for what followed in the old epoch.
func TestNothingOfANewEpochIsReadInTheOld(t *testing.T) {
	for name, hold := range map[string]func(*held){
		"the answer is on its way": func(h *held) { h.moved.Store(true) },
		"the catalog is read":      func(h *held) { h.list.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				backing := memory.New()
				store := &held{Store: backing, free: make(chan struct{})}
				log := open(t, store, eventlog.Config{TailBytes: 1}) // so that readers ask the store
				p := topic(t, log, "t", 1).Partitions[0]
				publish(t, log, p, "kept")
				restore := backing.Backup()
				publish(t, log, p, "lost")
				time.Sleep(time.Second) // of fake time: the follower has seen it
				hold(store)
				restore(false)
				publish(t, open(t, backing, eventlog.Config{}), p, "new")
				time.Sleep(time.Second)
				time.AfterFunc(time.Second, func() { close(store.free) })
				for round, epoch := 0, log.LeaderEpoch(); ; round++ {
					got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: 1, MaxBytes: 1 << 20}}, Epoch: &epoch})
					if errors.Is(err, eventlog.ErrRewound) && round < 5 {
						time.Sleep(time.Second)
						continue
					}
					if err != nil || len(got[0].Batches) != 1 || epoch == 0 {
						t.Errorf("in epoch %d a reader gets %+v, %v; want the new record, in the new epoch", epoch, got, err)
					}
					break
				}
			})
		})
	}
}

// A mover that was on its way when the store lost its end brings the log batches of what is lost.
func TestBatchesOfALostEndDoNotLand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		log := open(t, store, eventlog.Config{})
		p := topic(t, log, "t", 1).Partitions[0]
		publish(t, log, p, "kept")
		_, mark, err := store.Changes(t.Context(), eventlog.Mark{})
		if err != nil {
			t.Fatal(err)
		}
		restore := store.Backup()
		e := sealed(t, p, 3, -1, 0, 0)
		out, err := store.Commit(t.Context(), []eventlog.Entry{e})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		changed := log.IncarnationChanged()
		restore(false)
		<-changed
		log.Committed(mark.Incarnation, []eventlog.Placed{{Base: out[0].Base[0], Batch: e.Batches[0]}})
		if got := values(t, log, p); !slices.Equal(got, []string{"kept"}) {
			t.Errorf("readers get %q of what is lost", got)
		}
		if at := publish(t, log, p, "new"); at != 1 {
			t.Errorf("the next record is at %d, want 1", at)
		}
	})
}

// Whoever publishes before anybody noticed must not hear of an offset that was acknowledged for
// another record.
func TestNoOffsetIsAcknowledgedTwiceInOneEpoch(t *testing.T) {
	onLoss(t, func(t *testing.T, silently bool) {
		_, log, p := rewound(t, silently, nil)
		before := log.LeaderEpoch()
		for range 5 {
			at, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("new")})
			switch {
			case err == nil && log.LeaderEpoch() == before:
				t.Fatalf("offset %d is acknowledged again, in the same leader epoch", at)
			case err != nil && !errors.Is(err, eventlog.ErrUnsure):
				t.Fatal(err)
			}
			time.Sleep(time.Second) // of fake time
		}
		if log.LeaderEpoch() == before {
			t.Error("the leader epoch is the same")
		}
	})
}

func TestLeaderEpochsTellWhatWasCut(t *testing.T) {
	onLoss(t, func(t *testing.T, silently bool) {
		var other *eventlog.Log
		store, log, p := rewound(t, silently, func(log *eventlog.Log, p eventlog.Partition) {
			if epoch, end, known := log.EpochEnd(p, 0, 6); log.LeaderEpoch() != 0 || epoch != 0 || end != 6 || !known {
				t.Errorf("before: epoch %d ends at %d", epoch, end)
			}
		})
		other = open(t, store, eventlog.Config{})
		time.Sleep(time.Second) // of fake time: both have looked
		publish(t, log, p, "new")
		later := open(t, store, eventlog.Config{})
		for name, l := range map[string]*eventlog.Log{"here": log, "another process": other, "one that came later": later} {
			now := l.LeaderEpoch()
			if now <= 0 || now != log.LeaderEpoch() {
				t.Errorf("%s: the leader epoch is %d, and %d here", name, now, log.LeaderEpoch())
			}
			if epoch, end, known := l.EpochEnd(p, 0, 4); epoch != 0 || end != 3 || !known {
				t.Errorf("%s: epoch 0 is epoch %d and ends at %d, %v; want 3", name, epoch, end, known)
			}
			if epoch, end, known := l.EpochEnd(p, now, 4); epoch != now || end != 4 || !known {
				t.Errorf("%s: epoch %d is epoch %d and ends at %d, %v; want 4", name, now, epoch, end, known)
			}
			if a, b := l.EpochAt(p, 2), l.EpochAt(p, 3); a != 0 || b != now {
				t.Errorf("%s: the records at 2 and 3 are of epochs %d and %d", name, a, b)
			}
		}
	})
}

func TestNumbersAreNotGivenOutAgain(t *testing.T) {
	onLoss(t, func(t *testing.T, silently bool) {
		partitions, producers := map[eventlog.Partition]bool{}, map[int64]bool{}
		take := func(log *eventlog.Log, name string) {
			for _, p := range topic(t, log, name, 2).Partitions {
				if partitions[p] {
					t.Errorf("partition %d is given out again", p)
				}
				partitions[p] = true
			}
			id, err := log.NewProducerID(t.Context())
			if err != nil || producers[id] {
				t.Errorf("producer id %d, seen before: %v; %v", id, producers[id], err)
			}
			producers[id] = true
		}
		var lost eventlog.Topic
		store, log, _ := rewound(t, silently, func(log *eventlog.Log, _ eventlog.Partition) {
			take(log, "lost")
			lost, _ = log.Topic(t.Context(), "lost")
		})
		time.Sleep(time.Second) // of fake time: it has looked
		if _, err := log.Topic(t.Context(), "lost"); !errors.Is(err, eventlog.ErrUnknownTopic) {
			t.Errorf("a topic that is lost: %v", err)
		}
		if _, err := log.Publish(t.Context(), lost.Partitions[0], batch.Record{Value: []byte("x")}); !errors.Is(err, eventlog.ErrNoPartition) {
			t.Errorf("publishing to it: %v", err)
		}
		take(log, "new")
		take(open(t, store, eventlog.Config{}), "newer")
	})
}

// The version that the caller saw may be given again, to another value.
func TestACheckFromBeforeALossIsStale(t *testing.T) {
	onLoss(t, func(t *testing.T, silently bool) {
		_, log, _ := rewound(t, silently, func(log *eventlog.Log, _ eventlog.Partition) {
			if _, err := log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: "k", Version: 1, Value: []byte("lost")}}}); err != nil {
				t.Fatal(err)
			}
		})
		changed := log.IncarnationChanged()
		_, err := log.Append(t.Context(), eventlog.Entry{
			Checks: []eventlog.Check{{Key: "k", Version: 1}}, Puts: []eventlog.Put{{Key: "k", Version: 2, Value: []byte("x")}},
		})
		if !errors.Is(err, eventlog.ErrStale) {
			t.Errorf("a change of a value that is lost: %v", err)
		}
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Error("nobody is told that keyed state may have gone back")
		}
	})
}

// A producer of whose last batches the store knows nothing goes on by the rules for one that it
// does not know well enough.
func TestAProducerIsJudgedByWhatTheStoreStillKnows(t *testing.T) {
	for name, noticed := range map[string]bool{"the log has noticed": true, "nobody has noticed": false} {
		t.Run(name, func(t *testing.T) {
			onLoss(t, func(t *testing.T, silently bool) { judgedByWhatTheStoreStillKnows(t, silently, noticed) })
		})
	}
}

func judgedByWhatTheStoreStillKnows(t *testing.T, silently, noticed bool) {
	store := memory.New()
	log := open(t, store, eventlog.Config{})
	p := topic(t, log, "t", 1).Partitions[0]
	send := func(sequence int32) (eventlog.Outcome, error) {
		return log.Append(t.Context(), sealed(t, p, 1, 7, 0, sequence))
	}
	if _, err := send(0); err != nil {
		t.Fatal(err)
	}
	restore := store.Backup()
	for _, s := range []int32{1, 2} {
		if _, err := send(s); err != nil {
			t.Fatal(err)
		}
	}
	restore(silently)
	if noticed {
		time.Sleep(time.Second) // of fake time: it has looked
	}
	if out, err := send(2); !errors.Is(err, eventlog.ErrOutOfOrder) {
		t.Errorf("a batch whose predecessor is lost: %+v, %v; it is not a duplicate", out, err)
	}
	out, err := send(1)
	if unknown := errors.Is(err, eventlog.ErrUnsure); unknown && silently && !noticed {
		return // this commit was the first to show that the end is lost
	}
	if err != nil || out.Base[0] != 1 || out.Duplicate {
		t.Errorf("the lost batch, sent again: %+v, %v", out, err)
	}
}

// Whoever comes back to a store, or joins others there, begins no epoch.
func TestOpeningBeginsNoEpochWhereNothingChanged(t *testing.T) {
	store := memory.New()
	for range 3 {
		if log := open(t, store, eventlog.Config{}); log.LeaderEpoch() != 0 {
			t.Errorf("leader epoch %d", log.LeaderEpoch())
		}
	}
}

// The list of epochs is bounded, and who slept through many of them is sent back too far rather
// than not far enough.
func TestEpochsAreFoldedTowardsSafety(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		log := open(t, store, eventlog.Config{})
		p := topic(t, log, "t", 1).Partitions[0]
		publish(t, log, p, "kept")
		empty := store.Backup()
		publish(t, log, p, "lost")
		empty(false)
		time.Sleep(time.Second) // of fake time
		first := log.LeaderEpoch()
		for range 20 {
			publish(t, log, p, "more")
			store.Backup()(false)
			time.Sleep(time.Second)
		}
		if epoch, end, known := log.EpochEnd(p, 0, 21); epoch != 0 || end != 1 || !known {
			t.Errorf("epoch 0 is epoch %d and ends at %d, %v; want 1", epoch, end, known)
		}
		if _, end, known := log.EpochEnd(p, first, 21); end > 2 || !known {
			t.Errorf("the first epoch after it ends at %d, %v; want 2 at most", end, known)
		}
		kv, err := log.Get(t.Context(), eventlog.EpochKey)
		if err != nil || len(kv.Value) > 1000 {
			t.Errorf("after 21 epochs the key holds %d bytes, %v", len(kv.Value), err)
		}
	})
}

// Where the records of merged epochs end is not known exactly, and the log says so of these alone.
func TestMergedEpochsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 1024 // epochs that the key keeps
		store := memory.New()
		log := open(t, store, eventlog.Config{})
		var numbers []int32
		for range most + 5 {
			numbers = append(numbers, log.LeaderEpoch())
			changed := log.IncarnationChanged()
			store.Backup()(false)
			<-changed
		}
		for i, n := range append(numbers, log.LeaderEpoch(), log.LeaderEpoch()+1) {
			if is, want := log.EpochForgotten(n), 0 < i && i <= 6; is != want {
				t.Errorf("epoch %d of %d is forgotten: %v, want %v", i, len(numbers)+1, is, want)
			}
		}
	})
}

// While the log enters another incarnation, nobody concludes from the topics that it knew that one
// was deleted: the deletion may be lost.
func TestTopicsAreNotReadBetweenTwoIncarnations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		seam := &asked{Store: store}
		log := open(t, seam, eventlog.Config{})
		kept := topic(t, log, "orders", 1)
		restore := store.Backup()
		if err := log.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		changed := log.IncarnationChanged()
		told := make(chan error, 1)
		seam.onceBefore("topic/", func() { told <- log.RefreshTopics(t.Context()) }) // it reads the topics anew, and they are asked for meanwhile
		restore(false)
		<-changed
		if err := <-told; !errors.Is(err, eventlog.ErrRewound) {
			t.Errorf("meanwhile: %v, want ErrRewound", err)
		}
		if now, err := log.TopicByID(kept.ID); err != nil || now.Name != "orders" {
			t.Errorf("afterwards: %v, %v", now, err)
		}
	})
}

// A server is restarted, or another process is the first on a new store: whoever asks for a key
// meanwhile is not refused.
func TestKeysAreReadWhenTheLogHasEnteredTheIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		log := open(t, store, eventlog.Config{Poll: time.Hour})
		topic(t, log, "orders", 1)
		store.Backup()(false)
		if kv, err := log.Get(t.Context(), "topic/orders"); err != nil || kv.Version == 0 {
			t.Errorf("%+v, %v", kv, err)
		}
	})
}

// Each process warns that what it knew is lost: the one that began the epoch may not have known it.
func TestEachProcessThatKnowsOfALossLogsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said [2]strings.Builder // each is written by its log's follower, and read while that waits
		store := memory.New()
		var logs [2]*eventlog.Log
		for i := range logs {
			logs[i] = open(t, store, eventlog.Config{Logger: slog.New(slog.NewTextHandler(&said[i], nil))})
		}
		p := topic(t, logs[0], "t", 1).Partitions[0]
		restore := store.Backup()
		publish(t, logs[0], p, "lost")
		time.Sleep(time.Second) // both know of it
		changed := [2]<-chan struct{}{logs[0].IncarnationChanged(), logs[1].IncarnationChanged()}
		restore(false)
		<-changed[0]
		<-changed[1]
		synctest.Wait()
		for i := range said {
			if strings.Count(said[i].String(), "level=WARN msg=\"the store has lost acknowledged records") != 1 {
				t.Errorf("process %d logs %s", i, said[i].String())
			}
		}
	})
}

// A clean restart of the store's server is no warning, and no line or error shows how weir keeps
// what it names.
func TestOnlyALossIsLoggedAsALoss(t *testing.T) {
	for lost, says := range map[bool]string{
		false: "level=INFO msg=\"the store was restarted or restored, or another server took over; it has all that this process knows; a new leader epoch begins\"",
		true:  "level=WARN msg=\"the store has lost acknowledged records: it was restored, or another server took over; a new leader epoch begins\"",
	} {
		t.Run(fmt.Sprint("lost ", lost), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said strings.Builder // written by the log's follower, and read while that waits
				store := memory.New()
				log := open(t, store, eventlog.Config{Logger: slog.New(slog.NewTextHandler(&said, nil))})
				p := topic(t, log, "t", 1).Partitions[0]
				restore := store.Backup()
				if lost {
					publish(t, log, p, "lost")
				}
				changed := log.IncarnationChanged()
				restore(false)
				<-changed
				synctest.Wait()
				if !strings.Contains(said.String(), says) || strings.Count(said.String(), "\n") != 1 {
					t.Errorf("the log has %s", said.String())
				}
			})
		})
	}
	for _, err := range []error{
		fmt.Errorf("moved since %+v: %w", eventlog.Mark{Incarnation: eventlog.Incarnation{Store: "file 1", Epoch: 5}, Place: `{"seq":3}`}, eventlog.ErrRewound),
		fmt.Errorf("moved since %v: %w", eventlog.Mark{}, eventlog.ErrRewound),
		fmt.Errorf("%+v: %w", eventlog.Incarnation{Store: "file 1", Epoch: 5}, eventlog.ErrRewound),
	} {
		if strings.ContainsAny(err.Error(), "{}") {
			t.Error(err)
		}
	}
}
