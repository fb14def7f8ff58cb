package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// A claim that the store took only after its lease had ended is nobody's: the next one has the
// message, as the first attempt.
func TestAClaimThatWaitedOutAnOutageHandsOutNoLeaseThatIsOver(t *testing.T) {
	for name, c := range map[string]queue.Claim{"no wait": {}, "wait": {Wait: 5 * time.Minute}, "repeatable": {Worker: "w", ID: "1", Wait: 5 * time.Minute}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &jumping{Store: newStore(t)}
				p := begin(t, store, time.Hour)
				synctest.Wait()
				q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Lease: 5 * time.Second, Attempts: 1}})
				enqueue(t, q, "a")
				ack(t, q, claimN(t, q, 1)...) // the store's clock was read
				enqueue(t, q, "b")
				store.away.Store(true)
				time.AfterFunc(20*time.Second, func() { store.away.Store(false) })
				got, err := q.Claim(t.Context(), c)
				for _, m := range got {
					if left := time.Until(m.Until); left < 4*time.Second {
						t.Errorf("%s is handed out with a lease that has %v left", m.Value, left)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if len(got) == 0 {
					got = claimN(t, q, 1)
				}
				if values(got) != "b " || got[0].Attempt != 1 {
					t.Errorf("claimed %v, want b for the first time", got)
				}
			})
		})
	}
}

// The process's clock is wrong by an hour; letters and copies have the store's time.
func TestDeadLettersAndDoneMessagesHaveTheStoresTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &jumping{Store: newStore(t)}
		store.by.Store(int64(time.Hour))
		qs := start(t, store)
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{KeepDone: true}})
		enqueue(t, q, "good", "bad")
		got := claimN(t, q, 2)
		ack(t, q, got[0])
		nack(t, q, queue.Nack{Reject: true}, got[1])
		for _, suffix := range []string{".done", ".dlt"} {
			copies := create(t, qs, queue.Spec{Name: "of" + suffix, Topic: "mail" + suffix, Settings: queue.Settings{TTL: 30 * time.Minute}})
			if got := claimN(t, copies, 10); len(got) != 1 {
				t.Errorf("%s has %v that are less than half an hour old, want one", suffix, got)
			}
		}
		letters, err := q.DeadLetters(t.Context(), queue.MessageID{}, 10)
		if err != nil || len(letters) != 1 || letters[0].Died.Sub(store.now()).Abs() > time.Minute {
			t.Errorf("dead letters %+v, %v; it is %v by the store's clock", letters, err, store.now())
		}
	})
}
