package eventlog_test

import (
	"errors"
	"fmt"
	"slices"
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

// rewound is a log whose partition ended at 6, and whose store holds what it held when it ended at 3.
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

// A mover that was on its way when the store lost its end brings the log batches of what is lost.
func TestBatchesOfALostEndDoNotLand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		log := open(t, store, eventlog.Config{})
		p := topic(t, log, "t", 1).Partitions[0]
		publish(t, log, p, "kept")
		_, mark, err := store.Moved(t.Context(), eventlog.Mark{})
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

// Whoever publishes before anybody noticed must not hear of an offset that was acknowledged for another record.
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

// A producer of whose last batches the store knows nothing goes on by the rules for one that it does not know well enough.
func TestAProducerIsJudgedByWhatTheStoreStillKnows(t *testing.T) {
	onLoss(t, func(t *testing.T, silently bool) {
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
		time.Sleep(time.Second) // of fake time: it has looked
		if out, err := send(2); !errors.Is(err, eventlog.ErrOutOfOrder) {
			t.Errorf("a batch whose predecessor is lost: %+v, %v; it is not a duplicate", out, err)
		}
		if out, err := send(1); err != nil || out.Base[0] != 1 || out.Duplicate {
			t.Errorf("the lost batch, sent again: %+v, %v", out, err)
		}
	})
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

// The list of epochs is bounded, and who slept through many of them is sent back too far rather than not far enough.
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
