package queue_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// Messages that were skipped because of their key count once they are claimed, whichever messages
// are claimed with them.
func TestWithOrderByKeyNoMoreThanAWindowIsClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window = 10
		q := create(t, start(t, newStore(t)), queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{KeyOrder: true, Window: window, Lease: time.Hour}})
		var ms []queue.NewMessage
		for i := range 10 * window { // a a b b c c …: the second of each key is skipped
			ms = append(ms, queue.NewMessage{Key: fmt.Append(nil, "k", i/2), Value: fmt.Append(nil, i)})
		}
		if _, err := q.Enqueue(t.Context(), ms...); err != nil {
			t.Fatal(err)
		}
		done := 0
		for range 10 * window {
			got := claimN(t, q, 2*window)
			if len(got) > window {
				t.Fatalf("after %d messages one claim got %d; window is %d", done, len(got), window)
			}
			if more := claimN(t, q, 2*window); len(got)+len(more) > window {
				t.Fatalf("after %d messages %d were claimed, and %d beside them; window is %d", done, len(got), len(more), window)
			} else {
				got = append(got, more...)
			}
			for _, m := range got {
				errs, err := q.Ack(t.Context(), m.Receipt)
				if err := one(t, errs, err); err != nil {
					t.Fatal(err)
				}
				done++
			}
		}
		if done != len(ms) {
			t.Errorf("%d of %d messages were claimed", done, len(ms))
		}
	})
}

// Messages that were given back count once they are claimed again.
func TestMessagesThatWereGivenBackTakeTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := create(t, start(t, newStore(t)), queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Window: 3, Lease: time.Hour}})
		enqueue(t, q, "a", "b", "c", "d", "e", "f", "g")
		q.GiveBack(claimN(t, q, 10))
		if got := values(claimN(t, q, 10)); got != "a b c " {
			t.Errorf("claimed %q, want the three that were given back; window is 3", got)
		}
		if got := values(claimN(t, q, 10)); got != "" {
			t.Errorf("claimed %q beside three others; window is 3", got)
		}
	})
}
