package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// A claim goes on where all that it got had to end: with a wait it does not wait, and without one it does not come back with nothing.
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
		})
	}
}
