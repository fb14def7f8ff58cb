package sqlfn_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

// hurried is a store that does something before it commits a purge: others were faster.
type hurried struct {
	*postgres.Store
	before func()
}

func (s *hurried) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	purges := slices.ContainsFunc(flush, func(e eventlog.Entry) bool {
		return slices.ContainsFunc(e.Puts, func(p eventlog.Put) bool { return strings.HasPrefix(p.Key, "queue/gone/") && p.Value != nil })
	})
	if before := s.before; purges && before != nil {
		s.before = nil
		before()
	}
	return s.Store.Commit(ctx, flush)
}

// A message comes while a queue is purged, so it stays. A transaction has acknowledged it, and
// commits after the purge: the message does not come back.
func TestAnAckOfAMessageThatAPurgeLeavesHolds(t *testing.T) {
	for _, commit := range []string{"before", "after"} {
		t.Run("committed "+commit, func(t *testing.T) {
			t.Parallel()
			address := pgtest.URL(t)
			store, err := postgres.Open(t.Context(), address, postgres.Options{})
			if err != nil {
				t.Fatal(err)
			}
			door, err := sqlfn.Attach(t.Context(), store)
			if err != nil {
				t.Fatal(err)
			}
			slow := &hurried{Store: store}
			log, err := eventlog.Open(t.Context(), slow, eventlog.Config{})
			if err != nil {
				t.Fatal(err)
			}
			qs := queue.New(log, publish.New(log, publish.Config{}), queue.Config{Beside: door})
			ctx, cancel := context.WithCancel(context.Background())
			var all sync.WaitGroup
			all.Go(func() { log.Run(ctx) })
			all.Go(func() { qs.Run(ctx) })
			t.Cleanup(func() {
				cancel()
				all.Wait()
				store.Close()
			})
			_, q := startQueuesWith(t, address, true, queue.Settings{Lease: 2 * time.Second})
			conn := connect(t, address)
			slow.before = func() {
				if _, err := q.Enqueue(context.Background(), queue.NewMessage{Value: []byte("acked")}, queue.NewMessage{Value: []byte("kept")}); err != nil {
					t.Error(err)
				}
				got, err := q.Claim(context.Background(), queue.Claim{Wait: 10 * time.Second, Lease: 3 * time.Second})
				if err != nil || len(got) != 1 || string(got[0].Value) != "acked" {
					t.Error(got, err)
					return
				}
				exec(t, conn, `BEGIN`)
				exec(t, conn, `SELECT weir.ack($1)`, got[0].Receipt)
				if commit == "before" {
					exec(t, conn, `COMMIT`)
				}
			}
			if err := qs.Purge(t.Context(), "mail"); err != nil {
				t.Fatal(err)
			}
			if commit == "after" {
				exec(t, conn, `COMMIT`)
			}
			next, err := qs.Open(t.Context(), "mail")
			if err != nil {
				t.Fatal(err)
			}
			if m := claim(t, next); string(m.Value) != "kept" {
				t.Fatalf("claimed %q", m.Value)
			} else if errs, err := next.Ack(t.Context(), m.Receipt); err != nil || errs[0] != nil {
				t.Fatal(errs, err)
			}
			got, err := next.Claim(t.Context(), queue.Claim{Wait: 5 * time.Second}) // longer than the lease
			if err != nil || len(got) > 0 {
				t.Errorf("claimed %+v, %v: a transaction has acknowledged it", got, err)
			}
			await(t, address, `SELECT count(*) = 0 FROM weir.acked`) // the mover has carried the ack
			if s, err := next.Stats(t.Context()); err != nil || s.Ready+s.Claimed+s.Waiting > 0 {
				t.Errorf("in the end there are %+v, %v", s, err)
			}
		})
	}
}
