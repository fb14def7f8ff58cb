package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// With each failed attempt the longest pause doubles, up to a bound. Each pause is random, from 0
// to that: messages that fail together come back apart.
func TestPausesDoubleUpToABoundAndAreRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settings := queue.Settings{Attempts: -1, Backoff: time.Second, BackoffMax: 6 * time.Second}
		q := create(t, start(t, newStore(t)), queue.Spec{Name: "mail", Partitions: 1, Settings: settings})
		const messages = 200
		put(t, q, numbers(messages)...)
		for attempt, longest := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 6 * time.Second, 6 * time.Second} {
			ms := claimN(t, q, messages)
			if len(ms) != messages || ms[0].Attempt != attempt+1 {
				t.Fatalf("claimed %d messages for attempt %d", len(ms), attempt+1)
			}
			nack(t, q, queue.Nack{Error: "refused"}, ms...)
			var early, late int
			for _, m := range ms {
				switch pause := time.Until(find(t, q, m.ID).Until); {
				case pause > longest+slack*time.Millisecond:
					t.Errorf("after attempt %d message %s waits %v, more than %v", attempt+1, m.Value, pause, longest)
				case pause < longest/2:
					early++
				default:
					late++
				}
			}
			if early < messages/4 || late < messages/4 { // half of each, and by chance this few once in 10^12
				t.Errorf("after attempt %d %d of the pauses are in the first half of %v, and %d in the second", attempt+1, early, longest, late)
			}
			time.Sleep(longest + time.Second)
		}
	})
}
