package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
)

// Everything that a log does by itself is due within three hours. A log that only reads does none
// of it, and serves all that others do meanwhile.
func TestALogThatOnlyReadsFollowsAndWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		writer := open(t, store, eventlog.Config{})
		before := topic(t, writer, "before", 1).Partitions[0]
		publish(t, writer, before, "one")
		replica := &everystore.Replica{Store: store}
		reader := open(t, replica, eventlog.Config{})
		if !reader.ReadOnly() || writer.ReadOnly() {
			t.Errorf("the reader is read-only: %v, the writer: %v", reader.ReadOnly(), writer.ReadOnly())
		}
		compacted, err := writer.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "compacted", Partitions: 1, Config: map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}})
		if err != nil {
			t.Fatal(err)
		}
		short, err := writer.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "short", Partitions: 1, Config: map[string]string{"retention.ms": "60000"}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			for _, p := range []eventlog.Partition{compacted.Partitions[0], short.Partitions[0]} {
				if _, err := writer.Publish(t.Context(), p, batch.Record{Timestamp: time.Now().UnixMilli(), Key: []byte("key"), Value: fmt.Append(nil, i)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		publish(t, writer, before, "two")
		time.Sleep(time.Second)
		synctest.Wait()
		if got := values(t, reader, before); !slices.Equal(got, []string{"one", "two"}) {
			t.Errorf("the reader has %q", got)
		}
		found, err := reader.Topic(t.Context(), "short")
		if err != nil || len(values(t, reader, found.Partitions[0])) != 3 {
			t.Errorf("the reader has no topic that was created later, or too few records: %v", err)
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if bounds, known := reader.Known(short.Partitions[0]); !known || bounds.First != 3 {
			t.Errorf("the writer's retention is not seen: %+v", bounds)
		}
		if n := replica.Tried.Load(); n != 0 {
			t.Errorf("a log that only reads tried %d commits and trims by itself", n)
		}
		if err := reader.Healthy(); err != nil {
			t.Errorf("it is not healthy: %v", err)
		}
	})
}

// Changes are refused at once: what ErrUnavailable allows, waiting and trying again, would be in
// vain.
func TestALogThatOnlyReadsRefusesChangesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		p := topic(t, open(t, store, eventlog.Config{}), "t", 1).Partitions[0]
		log := open(t, &everystore.Replica{Store: store}, eventlog.Config{})
		for name, change := range map[string]func(context.Context) error{
			"publish": func(ctx context.Context) error {
				_, err := log.Publish(ctx, p, batch.Record{Value: []byte("x")})
				return err
			},
			"append": func(ctx context.Context) error {
				_, err := log.Append(ctx, eventlog.Entry{Puts: []eventlog.Put{{Key: "a", Version: 1}}})
				return err
			},
			"late": func(ctx context.Context) error {
				_, err := log.SubmitLate(ctx, 10, func() (eventlog.Entry, bool) { t.Error("it was built"); return eventlog.Entry{}, true }).Wait(ctx)
				return err
			},
			"trim": func(ctx context.Context) error { return log.Trim(ctx, p, 1) },
			"create topic": func(ctx context.Context) error {
				_, err := log.CreateTopic(ctx, eventlog.TopicSpec{Name: "u", Partitions: 1})
				return err
			},
			"producer id": func(ctx context.Context) error { _, err := log.NewProducerID(ctx); return err },
		} {
			began := time.Now()
			err := change(t.Context())
			if !errors.Is(err, eventlog.ErrReadOnly) || errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure) || time.Since(began) > 0 {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
		}
	})
}

// A store is rewound, and no process that writes has noticed: the readers of a log that only reads
// are told all the same, in an epoch of its own. The epoch that a writer begins afterwards is above
// it.
func TestALogThatOnlyReadsTellsOfARewind(t *testing.T) {
	onLoss(t, func(t *testing.T, silently bool) {
		time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))) // epochs are numbered by the clock
		store := memory.New()
		replica := &everystore.Replica{Store: store}
		var log *eventlog.Log
		var first int32
		ctx, stop := context.WithCancel(t.Context())
		old, err := eventlog.Open(ctx, store, eventlog.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- old.Run(ctx) }()
		p := topic(t, old, "t", 1).Partitions[0]
		publish(t, old, p, "kept")
		restore := store.Backup()
		publish(t, old, p, "lost")
		log = open(t, replica, eventlog.Config{})
		first = log.LeaderEpoch()
		if got := values(t, log, p); !slices.Equal(got, []string{"kept", "lost"}) {
			t.Fatalf("readers get %q", got)
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		changed := log.IncarnationChanged()
		restore(silently)
		<-changed
		mine := log.LeaderEpoch()
		if _, end, known := log.EpochEnd(p, first, 1); mine != first+1 || !known || end != 1 {
			t.Errorf("epoch %d after %d, which ends at %d, %v; want the next one, and 1", mine, first, end, known)
		}
		if got := values(t, log, p); !slices.Equal(got, []string{"kept"}) {
			t.Errorf("readers get %q", got)
		}
		changed = log.IncarnationChanged()
		writer := open(t, store, eventlog.Config{}) // of the silent rewind it knows nothing
		publish(t, writer, p, "new")
		if !silently {
			<-changed
			if log.LeaderEpoch() != writer.LeaderEpoch() || writer.LeaderEpoch() <= mine {
				t.Errorf("epoch %d, the writer has %d; it was %d", log.LeaderEpoch(), writer.LeaderEpoch(), mine)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := values(t, log, p); !slices.Equal(got, []string{"kept", "new"}) {
			t.Errorf("readers get %q", got)
		}
		if n := replica.Tried.Load(); n != 0 {
			t.Errorf("%d commits and trims were tried", n)
		}
	})
}

// A log that only reads may be the first one on a store.
func TestALogThatOnlyReadsWaitsForTheFirstWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		log := open(t, &everystore.Replica{Store: store}, eventlog.Config{})
		writer := open(t, store, eventlog.Config{})
		p := topic(t, writer, "t", 1).Partitions[0]
		publish(t, writer, p, "one")
		time.Sleep(time.Second)
		synctest.Wait()
		if got := values(t, log, p); !slices.Equal(got, []string{"one"}) || log.LeaderEpoch() != writer.LeaderEpoch() {
			t.Errorf("readers get %q in epoch %d, the writer is in %d", got, log.LeaderEpoch(), writer.LeaderEpoch())
		}
	})
}
