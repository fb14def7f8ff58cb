package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/queue"
)

// crashing is a store on a server that crashes around the next commit which changes the state of a
// queue's messages.
type crashing struct {
	eventlog.Store
	next  atomic.Bool
	crash func(commit func()) // makes the server crash before, during or after commit
}

func (s *crashing) Commit(ctx context.Context, flush []eventlog.Entry) (out []eventlog.Outcome, err error) {
	changes := slices.ContainsFunc(flush, func(e eventlog.Entry) bool {
		return slices.ContainsFunc(e.Puts, func(p eventlog.Put) bool { return strings.HasPrefix(p.Key, "queue/state/") })
	})
	commit := func() { out, err = s.Store.Commit(ctx, flush) }
	if !changes || !s.next.Swap(false) {
		commit()
		return out, err
	}
	s.crash(commit)
	if err == nil { // the connection broke before the answer was there
		err = eventlog.ErrUnsure
	}
	return nil, err
}

// PostgreSQL crashes around the commit of a claim, and comes back. The claim is repeated with its
// id, and another process claims, too: each message is given out once, as the first attempt, and
// none is left claimed by nobody.
func TestOnPostgresAClaimDuringACrashIsNeitherLostNorGivenOutTwice(t *testing.T) {
	if storeUnderTest != "memory" {
		t.Skip("it names its store itself, in one run of the tests")
	}
	t.Parallel()
	server := pgtest.Start(t)
	kill := func() {
		if err := server.Crash(); err != nil {
			t.Errorf("crash the server: %v", err)
		}
	}
	for name, crash := range map[string]func(commit func()){
		"before the commit": func(commit func()) { kill(); commit() },
		"during the commit": func(commit func()) {
			var both sync.WaitGroup
			both.Go(commit)
			both.Go(kill)
			both.Wait()
		},
		"after the commit": func(commit func()) { commit(); kill() },
	} {
		t.Run(name, func(t *testing.T) {
			url := server.URL()
			opened, err := store.Open(t.Context(), url, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = opened.Close() })
			crashed := make(chan struct{})
			under := &crashing{Store: opened, crash: func(commit func()) { crash(commit); close(crashed) }}
			q := create(t, begin(t, under, 0).Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Lease: time.Hour}})
			_, other := alsoServe(t, url)
			const total = 20
			put(t, q, numbers(total)...)

			got := make(chan []queue.Message, 2)
			claim := func(q *queue.Queue, id string) {
				for end := time.Now().Add(limit); ; {
					ms, err := q.Claim(t.Context(), queue.Claim{Max: total / 2, Worker: "w", ID: id, Wait: time.Second})
					switch {
					case err == nil && len(ms) > 0:
						got <- ms
						return
					case err != nil && !errors.Is(err, eventlog.ErrUnsure) && !errors.Is(err, eventlog.ErrUnavailable), time.Now().After(end):
						t.Errorf("claim %s: %d messages, %v", id, len(ms), err)
						got <- nil
						return
					}
				}
			}
			under.next.Store(true)
			go claim(q, "first")
			<-crashed
			if ms, err := other.Claim(t.Context(), queue.Claim{Max: total}); !errors.Is(err, eventlog.ErrUnavailable) || len(ms) > 0 {
				t.Errorf("another claim while the server is away: %d messages, %v", len(ms), err)
			}
			if err := server.Recover(); err != nil {
				t.Fatal(err)
			}
			go claim(other, "second")
			all := append(<-got, <-got...)
			if rest := total - len(all); rest > 0 {
				all = append(all, take(t, other, rest)...)
			}
			var want []string
			for n := range total {
				want = append(want, fmt.Sprintf("%d:1", n))
			}
			slices.Sort(want)
			same(t, "claimed by all", attempts(all), want)
			nothing(t, q)
			nothing(t, other)
			ack(t, q, all[:total/2]...)
			ack(t, other, all[total/2:]...)
			same(t, "the queue", stats(t, other), queue.Stats{})
		})
	}
}
