package queue_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// A claim goes on where all that it got had to end: with a wait it does not wait, and without one
// it does not come back with nothing.
func TestAMessageThatIsTooOldHoldsUpNoOther(t *testing.T) {
	for n := range 4 {
		drop, wait := n%2 == 1, time.Duration(n/2)*5*time.Minute
		synctest.Test(t, func(t *testing.T) {
			qs := start(t, newStore(t))
			q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{TTL: 30 * time.Minute, DropExpired: drop}})
			for range 3 {
				if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("old"), Time: time.Now().Add(-time.Hour)}); err != nil {
					t.Fatal(err)
				}
			}
			enqueue(t, q, "new")
			began := time.Now()
			got, err := q.Claim(t.Context(), queue.Claim{Wait: wait})
			if err != nil || values(got) != "new " || time.Since(began) > time.Second {
				t.Errorf("drop %v, wait %v: claimed %q after %v, %v; want new at once", drop, wait, values(got), time.Since(began), err)
			}
			dead := map[bool]int64{false: 3, true: 0}[drop]
			if s := stats(t, q); s != (queue.Stats{Claimed: 1, Dead: dead}) {
				t.Errorf("drop %v: then there are %+v, want %d dead letters", drop, s, dead)
			}
		})
	}
}

// The time to live of a delayed message is counted from when its delay was over, also where nobody
// moved it into its queue then.
func TestADelayedMessageThatComesLateMayBeTooOld(t *testing.T) {
	for late, want := range map[time.Duration]string{20 * time.Minute: "delayed ", 40 * time.Minute: ""} {
		synctest.Test(t, func(t *testing.T) {
			store := newStore(t)
			before := begin(t, store, time.Second)
			synctest.Wait()
			delayed(t, create(t, before.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{TTL: 30 * time.Minute}}), "delayed", 10*time.Minute)
			before.stop()
			time.Sleep(10*time.Minute + late)
			q := open(t, start(t, store), "mail")
			got, err := q.Claim(t.Context(), queue.Claim{Wait: 30 * time.Second})
			if err != nil || values(got) != want {
				t.Errorf("%v after its delay was over, with a ttl of 30 minutes, %q was claimed, %v; want %q", late, values(got), err, want)
			}
			if s, err := q.Stats(t.Context()); err != nil || want == "" && s.Dead != 1 {
				t.Errorf("there are %+v, %v; want it dead", s, err)
			}
		})
	}
}

// The claim that finds a message too old is no attempt: nobody got the message.
func TestTheLetterOfAnExpiredMessageTellsOfTheAttemptsThatWereMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := create(t, start(t, newStore(t)), queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{TTL: time.Minute, Delays: []time.Duration{time.Second}}})
		enqueue(t, q, "failed", "never tried")
		errs, err := q.Nack(t.Context(), queue.Nack{Error: "the mail server refused it"}, claimN(t, q, 1)[0].Receipt)
		if err := one(t, errs, err); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if got := claimN(t, q, 10); len(got) != 0 {
			t.Fatalf("claimed %v", got)
		}
		letters, err := q.DeadLetters(t.Context(), queue.MessageID{}, 10)
		if err != nil || len(letters) != 2 {
			t.Fatalf("dead letters: %v, %v", letters, err)
		}
		for _, l := range letters {
			attempts, text := "0", ""
			if string(l.Value) == "failed" {
				attempts, text = "1", "the mail server refused it"
			}
			if l.Reason != "expired" || l.Attempts != attempts || l.Worker != "" || !strings.HasSuffix(l.Error, text) {
				t.Errorf("the letter of %q says %s after %s attempts, the last by %q: %s", l.Value, l.Reason, l.Attempts, l.Worker, l.Error)
			}
		}
	})
}
