package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/queue"
)

func TestAMessageThatIsTooOldHoldsUpNoOther(t *testing.T) {
	for _, drop := range []bool{false, true} {
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
			got, err := q.Claim(t.Context(), queue.Claim{Wait: 5 * time.Minute})
			if err != nil || values(got) != "new " || time.Since(began) > time.Second {
				t.Errorf("drop %v: claimed %q after %v, %v; want new at once", drop, values(got), time.Since(began), err)
			}
		})
	}
}
