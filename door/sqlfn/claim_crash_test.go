package sqlfn_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

// After a crash of the server requests have the numbers of earlier ones again, and claims for those
// may still go on. Found by chaos, seed 1286010643 on PostgreSQL: the server crashed twice within
// two seconds, and a session got messages of another queue.
func TestAClaimFromBeforeACrashAnswersNoRequestFromAfterIt(t *testing.T) {
	srv := pgtest.Start(t)
	address := srv.URL()
	startQueuesWith(t, address, true, queue.Settings{})
	p, _ := startQueuesWith(t, address, false, queue.Settings{})
	qs := queue.New(p.log, publish.New(p.log, publish.Config{}), queue.Config{})
	create := func(name string) *queue.Queue {
		_, err := qs.Create(t.Context(), queue.Spec{Name: name})
		q, err2 := qs.Open(t.Context(), name)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return q
	}
	create("other")
	for round := range 3 {
		name := fmt.Sprint("mail", round)
		mail := create(name)
		before := connect(t, address)
		go func() { _, _ = claimSQL(context.Background(), before, `'`+name+`', 1, '1 minute', '1 minute'`) }()
		await(t, address, `SELECT count(*) = 1 FROM weir.claim_request WHERE taken_by IS NOT NULL`)
		srv.KillImmediate()
		srv.Resume()
		after := connect(t, address)
		waits := make(chan []claimedBySQL)
		go func() {
			got, err := claimSQL(context.Background(), after, `'other', 1, '1 minute', '3 s'`)
			if err != nil {
				t.Error(err)
			}
			waits <- got
		}()
		await(t, address, `SELECT count(*) = 1 FROM weir.claim_request WHERE queue = 'other' AND taken_by IS NOT NULL`)
		for {
			if _, err := mail.Enqueue(t.Context(), queue.NewMessage{Value: []byte("mail")}); err == nil {
				break
			}
		}
		if got := <-waits; len(got) > 0 {
			t.Fatalf("a session that claims from an empty queue got %q", *got[0].Value)
		}
	}
}
