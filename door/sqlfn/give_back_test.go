package sqlfn_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

// stuck is a store that holds up changes of queues' states once so many more are made.
type stuck struct {
	*postgres.Store
	armed   atomic.Bool
	left    atomic.Int64
	reached chan struct{} // closed with the first that is held up
	goOn    chan struct{}
	once    sync.Once
}

func (s *stuck) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	for _, e := range flush {
		for _, put := range e.Puts {
			if s.armed.Load() && strings.HasPrefix(put.Key, "queue/state/") && s.left.Add(-1) < 0 {
				s.once.Do(func() { close(s.reached) })
				<-s.goOn
			}
		}
	}
	return s.Store.Commit(ctx, flush)
}

// A message that its session did not take is given back. While the store holds that up, others'
// claims are answered.
func TestGivingBackHoldsUpNobody(t *testing.T) {
	address := pgtest.URL(t)
	store, err := postgres.Open(t.Context(), address, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	door, err := sqlfn.Attach(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	slow := &stuck{Store: store, reached: make(chan struct{}), goOn: make(chan struct{})}
	slow.left.Store(1) // the claim
	log, err := eventlog.Open(t.Context(), slow, eventlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	qs := queue.New(log, publish.New(log, publish.Config{}), queue.Config{Beside: door})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { log.Run(ctx) })
	all.Go(func() { qs.Run(ctx) })
	all.Go(func() { sqlfn.New(log, door, sqlfn.Config{Queues: qs}).Run(ctx) })
	goOn := sync.OnceFunc(func() { close(slow.goOn) })
	t.Cleanup(func() {
		goOn()
		cancel()
		all.Wait()
		store.Close()
	})
	for _, name := range []string{"mail", "bills"} {
		if _, err := qs.Create(t.Context(), queue.Spec{Name: name, Partitions: 1}); err != nil {
			t.Fatal(err)
		}
	}
	q, err := qs.Open(t.Context(), "mail")
	if err != nil {
		t.Fatal(err)
	}
	mallory, other := connect(t, address), connect(t, address)
	if got, err := claimSQL(t.Context(), other, `'bills'`); err != nil || len(got) > 0 { // the queue's state is read
		t.Fatal(got, err)
	}
	var request int64
	if err := mallory.QueryRow(t.Context(), `SELECT weir.request_claim('mail', 1, NULL, '5 minutes', '')`).Scan(&request); err != nil {
		t.Fatal(err)
	}
	await(t, address, `SELECT count(*) = 1 FROM weir.claim_request WHERE taken_by IS NOT NULL`)
	exec(t, mallory, `BEGIN`)
	exec(t, mallory, `SELECT FROM weir.claim_request FOR UPDATE`) // so that the answer cannot be written
	slow.armed.Store(true)
	if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-slow.reached:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was given back")
	}
	if got, err := claimSQL(t.Context(), other, `'bills', wait => '1 s'`); err != nil || len(got) > 0 {
		t.Errorf("while a message is given back, another claim has %v, %v", got, err)
	}
	goOn()
	exec(t, mallory, `ROLLBACK`)
	if got, err := claimSQL(t.Context(), other, `'mail', wait => '30 s'`); err != nil || len(got) != 1 || got[0].Attempt != 1 {
		t.Errorf("then %+v is claimed, %v, want it as the first attempt", got, err)
	}
}
