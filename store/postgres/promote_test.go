package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	records "github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/pgtest"
)

// An asynchronous standby that lacks the last commits is promoted under load. What it lacks is
// lost; but everybody can tell what that is, and no offset that was acknowledged is given to
// another record unnoticed.
func TestAPromotedStandbyThatLagsBeginsALeaderEpoch(t *testing.T) {
	const publishers, each = 4, 30
	primary := pgtest.Start(t)
	address := primary.URL()
	standby := primary.Standby()
	name := pgtest.NewAlias(t, address)
	store := at(t, name.At(address))
	log, err := eventlog.Open(t.Context(), store, eventlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- log.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ran; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	topic, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "t", Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := topic.Partitions[0]

	type ack struct {
		phase string
		value string
		at    eventlog.Offset
	}
	var mu sync.Mutex // guards the next three
	phase, acks, inPhase := "before", []ack(nil), 0
	progress := make(chan struct{}, 1)
	var all sync.WaitGroup
	load, quiet := context.WithCancel(context.Background())
	defer all.Wait()
	defer quiet()
	for i := range publishers {
		all.Go(func() {
			for n := 0; load.Err() == nil; n++ {
				mu.Lock()
				began := phase
				mu.Unlock()
				value := fmt.Sprintf("%d-%d", i, n)
				at, err := log.Publish(load, p, records.Record{Value: []byte(value)})
				if err != nil {
					continue
				}
				mu.Lock()
				acks = append(acks, ack{began, value, at})
				if began == phase {
					inPhase++
				}
				mu.Unlock()
				select {
				case progress <- struct{}{}:
				default:
				}
			}
		})
	}
	enter := func(next string) {
		mu.Lock()
		defer mu.Unlock()
		phase, inPhase = next, 0
	}
	await := func() {
		t.Helper()
		deadline := time.After(time.Minute)
		for {
			mu.Lock()
			n, in := inPhase, phase
			mu.Unlock()
			if n >= each {
				return
			}
			select {
			case <-progress:
			case <-deadline:
				t.Fatalf("only %d records were acknowledged in phase %q; the log says: %v", n, in, log.Healthy())
			}
		}
	}
	await()
	// The standby stops receiving: all that is acknowledged from here on, it never hears of.
	pgtest.Exec(t, standby.Admin(), `ALTER SYSTEM SET primary_conninfo = ''`)
	pgtest.Exec(t, standby.Admin(), `SELECT pg_reload_conf()`)
	for pgtest.Value(t, standby.Admin(), `SELECT count(*) FROM pg_stat_wal_receiver`) != "0" {
	}
	enter("lost")
	await()
	primary.KillImmediate()
	// For a moment the name leads to a standby that shows an older log and takes no writes.
	name.Point(standby.At(address))
	changed := log.IncarnationChanged()
	if log.LeaderEpoch() != 0 {
		t.Fatalf("leader epoch %d before anything was promoted", log.LeaderEpoch())
	}
	pgtest.Value(t, standby.Admin(), `SELECT pg_promote()`)
	enter("after")
	await()
	quiet()
	all.Wait()
	select {
	case <-changed:
	default:
		t.Error("records are acknowledged again, and the log believes to be in the same incarnation")
	}

	later, err := eventlog.Open(t.Context(), at(t, standby.At(address)), eventlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if log.LeaderEpoch() == 0 || later.LeaderEpoch() != log.LeaderEpoch() {
		t.Errorf("the leader epoch is %d, and %d for another process", log.LeaderEpoch(), later.LeaderEpoch())
	}
	there := map[eventlog.Offset]string{}
	bounds, err := later.Bounds(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	end := bounds[0].Bounds.Next
	_, cut, known := log.EpochEnd(p, 0, end)
	for from := eventlog.Offset(0); from < end; {
		got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: from, MaxBytes: 1 << 20}}})
		if err != nil || got[0].Err != nil || len(got[0].Batches) == 0 {
			t.Fatal(from, end, got, err)
		}
		for _, b := range got[0].Batches {
			for r, err := range records.Records(b.Bytes, 1<<20) {
				if err != nil {
					t.Fatal(err)
				}
				there[from] = string(r.Value)
				from++
			}
		}
	}
	lost, high := 0, eventlog.Offset(0)
	mu.Lock()
	defer mu.Unlock()
	for _, a := range acks {
		if there[a.at] == a.value {
			continue
		}
		lost, high = lost+1, max(high, a.at)
		if a.phase == "after" {
			t.Errorf("record %s was acknowledged at %d after the promotion, and there is %q", a.value, a.at, there[a.at])
		} else if a.at < cut {
			t.Errorf("record %s was acknowledged at %d, and there is %q; epoch 0 is said to end at %d", a.value, a.at, there[a.at], cut)
		}
	}
	if !known || lost == 0 || lost < each/2 {
		t.Errorf("%d of %d records are lost, epoch 0 ends at %d (%v): the test shows nothing", lost, len(acks), cut, known)
	}
	t.Logf("%d of %d acknowledged records are lost; epoch 0 ends at %d, the highest lost one was at %d, the log ends at %d", lost, len(acks), cut, high, end)
}
