package publish_test

import (
	"context"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/everystore"
)

// onStores runs a test on every store. Each has one store to itself, which reopen opens once more,
// as another process would.
func onStores(t *testing.T, test func(t *testing.T, reopen func(t *testing.T) eventlog.Store)) {
	t.Helper()
	everystore.Run(t, test)
}

func opened(t *testing.T, s eventlog.Store, err error) eventlog.Store {
	t.Helper()
	check(t, err)
	t.Cleanup(func() { check(t, s.Close()) })
	return s
}

// run opens a log on a store and runs it until the test ends.
func run(t *testing.T, store eventlog.Store, cfg eventlog.Config) *eventlog.Log {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store, cfg)
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- log.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		check(t, <-done)
	})
	return log
}

func topic(t *testing.T, log *eventlog.Log, name string, partitions int, settings ...string) eventlog.Topic {
	t.Helper()
	spec := eventlog.TopicSpec{Name: name, Partitions: partitions, Config: map[string]string{}, Internal: eventlog.InternalTopic(name)}
	for i := 0; i < len(settings); i += 2 {
		spec.Config[settings[i]] = settings[i+1]
	}
	made, err := log.CreateTopic(t.Context(), spec)
	check(t, err)
	return made
}

// held is everything that a partition of a topic holds.
type held struct {
	batches []eventlog.Placed
	records []batch.Record // with their offsets in the log
}

func read(t *testing.T, log *eventlog.Log, p eventlog.Partition) (h held) {
	t.Helper()
	for from := eventlog.Offset(0); ; {
		got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: from, MaxBytes: 1 << 30}}})
		check(t, err)
		check(t, got[0].Err)
		for _, b := range got[0].Batches {
			if b.Base != from {
				t.Fatalf("partition %d goes on at %d after %d", p, b.Base, from)
			}
			h.batches = append(h.batches, b)
			for r, err := range batch.Records(b.Bytes, 1<<30) {
				check(t, err)
				r.Offset = int64(from)
				h.records = append(h.records, r)
				from++
			}
		}
		if from == got[0].Bounds.Next {
			return h
		}
	}
}

// total is how many records a topic holds.
func total(t *testing.T, log *eventlog.Log, topic eventlog.Topic) (n int) {
	t.Helper()
	slices, err := log.Bounds(t.Context(), topic.Partitions...)
	check(t, err)
	for _, s := range slices {
		n += int(s.Bounds.Next)
	}
	return n
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func number(n int32) *int32 { return &n }
