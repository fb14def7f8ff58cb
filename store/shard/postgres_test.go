package shard_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/keys"
)

// One of two PostgreSQL servers crashes or freezes under a running log, and comes back.
func TestAServerThatIsGoneForAWhileStopsOnlyWhatIsOnIt(t *testing.T) {
	for name, away := range map[string]func(*pgtest.Server) (back func()){
		"crash": func(s *pgtest.Server) func() {
			s.KillImmediate()
			return s.Resume
		},
		"freeze": func(s *pgtest.Server) func() { return s.Freeze() },
	} {
		t.Run(name, func(t *testing.T) {
			server := pgtest.Start(t)
			opened, err := store.Open(t.Context(), server.URL(), quiet)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { opened.Close() })
			log := run(t, openSet(t, memory.New(), opened))
			topic := create(t, log, "topic", 2)
			here, there := topic.Partitions[0], topic.Partitions[1]
			if here.Shard() != 0 {
				here, there = there, here
			}
			sequence := int32(0)
			send := func() error {
				_, err := log.Append(t.Context(), produced(t, there, 7, sequence))
				if err == nil {
					sequence++
				}
				return err
			}
			if err := send(); err != nil {
				t.Fatal(err)
			}
			back := away(server)
			lost := make(chan error)
			go func() { lost <- send() }()
			err = <-lost
			if !errors.Is(err, eventlog.ErrUnavailable) && !errors.Is(err, eventlog.ErrUnsure) {
				t.Errorf("a batch for the server that is gone: %v", err)
			}
			began, n := time.Now(), 0
			for ; n < 200; n++ {
				if _, err := log.Publish(t.Context(), here, batch.Record{Value: []byte("v"), Timestamp: 1}); err != nil {
					t.Fatalf("a record for the other shard: %v", err)
				}
				if n%20 == 0 {
					if err := send(); err == nil {
						t.Fatal("a batch for the server that is gone was acknowledged")
					}
				}
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("200 records for the other shard took %v", took)
			}
			if got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: here, From: 190, MaxBytes: 1000}}}); err != nil || len(got[0].Batches) == 0 {
				t.Errorf("%+v, %v", got, err)
			}
			back()
			for until := time.Now().Add(time.Minute); ; {
				err := send()
				if err == nil {
					break
				}
				if !errors.Is(err, eventlog.ErrUnavailable) && !errors.Is(err, eventlog.ErrUnsure) || time.Now().After(until) {
					t.Fatalf("the server is back: %v", err)
				}
			}
			if err := send(); err != nil {
				t.Error(err)
			}
			if bounds, err := log.Bounds(t.Context(), there, here); err != nil || bounds[0].Bounds.Next != eventlog.Offset(sequence) || bounds[1].Bounds.Next != 200 {
				t.Errorf("%d and 200 records were acknowledged, and the store holds %+v (%v)", sequence, bounds, err)
			}
		})
	}
}

// The contract's parts that need several processes hold on servers, too: two processes on two
// databases, which both notice an epoch.
func TestTwoProcessesOnServers(t *testing.T) {
	address := "shard:" + pgtest.URL(t) + "," + pgtest.URL(t)
	var logs []*eventlog.Log
	for range 2 {
		set, err := store.Open(t.Context(), address, quiet, keys.Rules()...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { set.Close() })
		logs = append(logs, run(t, set))
	}
	topic := create(t, logs[0], "topic", 2)
	for _, p := range topic.Partitions {
		if _, err := logs[0].Publish(t.Context(), p, batch.Record{Value: []byte("v"), Timestamp: 1}); err != nil {
			t.Fatal(err)
		}
		got, err := logs[1].Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, MaxBytes: 1000}}, MaxWait: time.Minute})
		if err != nil || len(got[0].Batches) != 1 {
			t.Errorf("the other process reads %+v, %v", got, err)
		}
	}
}
