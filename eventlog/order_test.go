package eventlog_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// never is a poll that does not come within a test: what a log knows, it knows from its own calls.
const never = 24 * time.Hour

// publish appends one record and says where it is.
func publish(t *testing.T, log *eventlog.Log, p eventlog.Partition, value string) eventlog.Offset {
	t.Helper()
	at, err := log.Publish(t.Context(), p, batch.Record{Value: []byte(value)})
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// A appends, B appends, A appends: what A keeps in memory has a gap where B's record is.
func TestAReaderInMemorySeesWhatAnotherProcessWroteInBetween(t *testing.T) {
	store := memory.New()
	a := open(t, store, eventlog.Config{Poll: never})
	p := topic(t, a, "t", 1).Partitions[0]
	b := open(t, store, eventlog.Config{Poll: never})
	publish(t, a, p, "a0")
	publish(t, b, p, "b1")
	publish(t, a, p, "a2")
	for from := range eventlog.Offset(3) {
		got := one(t, a, p, from)
		if len(got.Batches) == 0 || got.Batches[0].Base != from {
			t.Errorf("a reader at %d gets %+v", from, got.Batches)
		}
	}
	if got := values(t, a, p); len(got) != 3 {
		t.Errorf("%v, want a0, b1 and a2", got)
	}
}

// reading is a store that calls back while a read is under way.
type reading struct {
	eventlog.Store
	meanwhile func()
}

func (r *reading) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	if do := r.meanwhile; do != nil {
		r.meanwhile = nil
		do()
	}
	return r.Store.Read(ctx, spans, maxBytes)
}

// The append comes when the reader has seen that there is nothing, and does not watch yet.
func TestAnAppendBetweenLookingAndWaitingWakesTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &reading{Store: memory.New()}
		log, far := history(t, store, 1)
		near := topic(t, log, "near", 1).Partitions[0]
		publish(t, log, near, "seen")
		store.meanwhile = func() { publish(t, log, near, "news") }
		start := time.Now()
		got, err := log.Fetch(t.Context(), eventlog.Want{
			Spans:    []eventlog.Span{{Partition: near, From: 1, MaxBytes: 1 << 20}, {Partition: far, MaxBytes: 1 << 20}},
			MinBytes: 1100, // more than the far partition has
			MaxWait:  time.Minute,
		})
		if err != nil || len(got[0].Batches) != 1 || time.Since(start) > 0 {
			t.Errorf("after %v, the partition that was appended to brings %d batches; %v", time.Since(start), len(got[0].Batches), err)
		}
	})
}

// listing is a store that calls back before each List.
type listing struct {
	eventlog.Store
	before func()
}

func (l *listing) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if do := l.before; do != nil {
		do()
	}
	return l.Store.List(ctx, prefix, after, limit)
}

func (l *listing) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if do := l.before; do != nil {
		do()
	}
	return l.Store.Get(ctx, keys, maxBytes)
}

// One flush holds a record and a producer's batch that another process has appended already. The
// first caller has the answer while the log reads what the store knows of the producer: by then, a
// reader finds the record.
func TestWhoHasTheAnswerCanReadTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.New()
		gate := &gate{Store: shared, open: make(chan struct{})}
		store := &listing{Store: gate}
		gate.pass()
		a := open(t, store, eventlog.Config{Poll: never})
		p := topic(t, a, "t", 1).Partitions[0]
		b := open(t, shared, eventlog.Config{Poll: never})
		for _, step := range []struct {
			log      *eventlog.Log
			sequence int32
		}{{a, 0}, {b, 1}} {
			if _, err := step.log.Append(t.Context(), sealed(t, p, 1, 7, 0, step.sequence)); err != nil {
				t.Fatal(err)
			}
		}

		gate.shut()
		first := a.Submit(t.Context(), sealed(t, p, 1, -1, 0, 0))
		synctest.Wait() // it travels, and the next two gather
		second := a.Submit(t.Context(), sealed(t, p, 1, -1, 0, 0))
		repeated := a.Submit(t.Context(), sealed(t, p, 1, 7, 0, 1))
		looked := false
		store.before = func() {
			done, cancel := context.WithCancel(t.Context())
			cancel()
			out, err := second.Wait(done)
			if err != nil {
				return // not answered yet
			}
			looked = true
			if known, _ := a.Known(p); known.Next <= out.Base[0] {
				t.Errorf("a record at %d is acknowledged, and its readers see %+v", out.Base[0], known)
			}
		}
		gate.pass()
		for _, ticket := range []*eventlog.Ticket{first, second, repeated} {
			if _, err := ticket.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !looked {
			t.Error("no caller was answered before the log asked for the producer: the test shows nothing")
		}
	})
}

// A deletion takes the records and wakes who waits for more of them.
func TestAWaiterOnADeletedPartitionIsToldAtOnce(t *testing.T) {
	for name, deleter := range map[string]func(t *testing.T, here *eventlog.Log, store eventlog.Store) *eventlog.Log{
		"deleted by this process": func(_ *testing.T, here *eventlog.Log, _ eventlog.Store) *eventlog.Log { return here },
		"deleted by another": func(t *testing.T, _ *eventlog.Log, store eventlog.Store) *eventlog.Log {
			return open(t, store, eventlog.Config{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory.New()
				log := open(t, store, eventlog.Config{})
				other := deleter(t, log, store)
				p := topic(t, log, "t", 1).Partitions[0]
				publish(t, log, p, "old")
				deleted := make(chan error, 1)
				go func() {
					time.Sleep(time.Second) // of fake time: the fetch waits by then
					deleted <- other.DeleteTopic(t.Context(), "t")
				}()
				start := time.Now()
				got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: 1, MaxBytes: 1}}, MaxWait: time.Minute})
				if err != nil || !errors.Is(got[0].Err, eventlog.ErrNoPartition) || time.Since(start) > 2*time.Second {
					t.Errorf("after %v a reader of a deleted topic gets %+v, %v", time.Since(start), got, err)
				}
				if err := <-deleted; err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
