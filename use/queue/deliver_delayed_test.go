package queue

import (
	"testing"
	"time"

	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/use/claims"
)

// A message is moved when the span of its slot begins. So it must reach its moment in few moves,
// and never be in a slot whose span begins after that.
func TestAMessageReachesItsMomentInAFewMoves(t *testing.T) {
	rng := seed.Random(t)
	for range 100_000 {
		now := claims.Time(rng.Int64N(4e12))
		due := now + claims.Time(rng.Int64N(1<<rng.IntN(42)))
		start, moves := now, 0
		for slotOf(now, due) >= wheelSlots {
			slot := slotOf(now, due)
			span := spanOf(slot)
			at := now/span + 1
			for at%wheelSlots != claims.Time(slot%wheelSlots) {
				at++
			}
			if now = at * span; now > due {
				t.Fatalf("due %d from %d: it is in slot %d, whose span begins at %d", due, start, slot, now)
			}
			if moves++; moves > 8 {
				t.Fatalf("due %v after %d: %d moves", time.Duration(due-start)*time.Millisecond, start, moves)
			}
		}
	}
}
