package stream_test

import (
	"context"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/use/stream"
)

// onStores runs a test on every store. Each has one store to itself, which reopen opens once more,
// as another process would.
func onStores(t *testing.T, test func(t *testing.T, reopen func(t *testing.T) eventlog.Store)) {
	t.Helper()
	everystore.Run(t, test)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// process is a log on a store with its streams, as one process has them.
type process struct {
	*stream.Streams
	log *eventlog.Log
}

const idAge = 3 * time.Minute

func begin(t *testing.T, store eventlog.Store) process {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store, eventlog.Config{Poll: 10 * time.Millisecond})
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- log.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		check(t, <-done)
	})
	return process{stream.New(log, stream.Config{}.With(stream.Limits{IDAge: idAge})), log}
}

// orders is a process with a category of that name.
func orders(t *testing.T, reopen func(*testing.T) eventlog.Store) (process, *stream.Category) {
	t.Helper()
	p := begin(t, reopen(t))
	c, err := p.CreateCategory(t.Context(), stream.Spec{Name: "orders", Partitions: 3})
	check(t, err)
	return p, c
}

// another is the category in another process.
func another(t *testing.T, reopen func(*testing.T) eventlog.Store) (process, *stream.Category) {
	t.Helper()
	p := begin(t, reopen(t))
	c, err := p.Category(t.Context(), "orders")
	check(t, err)
	return p, c
}

// named are events with ids, whose data are their names.
func named(names ...string) (events []stream.NewEvent) {
	for _, n := range names {
		events = append(events, stream.NewEvent{ID: "id of " + n, Type: "named", Data: []byte(n)})
	}
	return events
}

// plain are events without ids.
func plain(names ...string) []stream.NewEvent {
	events := named(names...)
	for i := range events {
		events[i].ID = ""
	}
	return events
}

// read returns the data of events, after it has seen that their versions follow one another.
func read(t *testing.T, c *stream.Category, name string, r stream.Range) (all []string) {
	t.Helper()
	last := int64(-1)
	for e, err := range c.Events(t.Context(), name, r) {
		check(t, err)
		step := int64(1)
		if r.Backward {
			step = -1
		}
		if last >= 0 && len(r.Types) == 0 && e.Version != last+step {
			t.Errorf("stream %s goes on with version %d after %d", name, e.Version, last)
		}
		last = e.Version
		all = append(all, string(e.Data))
	}
	return all
}

// records are the records of the category's topic, partition by partition.
func records(t *testing.T, log *eventlog.Log, name string) (all [][]batch.Record) {
	t.Helper()
	topic, err := log.TopicNow(t.Context(), name)
	check(t, err)
	bounds, err := log.Bounds(t.Context(), topic.Partitions...)
	check(t, err)
	for n, p := range topic.Partitions {
		var in []batch.Record
		for from := eventlog.Offset(0); from < bounds[n].Bounds.Next; {
			want := eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: from, MaxBytes: 1 << 20}}, MaxWait: time.Minute} // the last may be of another process
			got, err := log.Fetch(t.Context(), want)
			check(t, err)
			check(t, got[0].Err)
			for _, b := range got[0].Batches {
				for r, err := range batch.Records(b.Bytes, 1<<30) {
					check(t, err)
					in = append(in, r)
					from++
				}
			}
		}
		all = append(all, in)
	}
	return all
}
