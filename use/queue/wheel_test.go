package queue

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A message is moved when the span of its slot begins. So it must reach its moment in few moves, and never be in a slot
// whose span begins after that.
func TestAMessageReachesItsMomentInAFewMoves(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 100_000 {
		now := Time(rng.Int64N(4e12))
		due := now + Time(rng.Int64N(1<<rng.IntN(42)))
		start, moves := now, 0
		for slotOf(now, due) >= wheelSlots {
			slot := slotOf(now, due)
			span := spanOf(slot)
			at := now/span + 1
			for at%wheelSlots != Time(slot%wheelSlots) {
				at++
			}
			if now = at * span; now > due {
				t.Fatalf("seed %d: due %d from %d: it is in slot %d, whose span begins at %d", seed, due, start, slot, now)
			}
			if moves++; moves > 8 {
				t.Fatalf("seed %d: due %v after %d: %d moves", seed, time.Duration(due-start)*time.Millisecond, start, moves)
			}
		}
	}
}
