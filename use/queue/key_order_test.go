package queue

import (
	"bytes"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/use/claims"
)

// The first message of each key that is not done may be claimed, and each that has no key; none
// beyond those whose keys are known.
func TestOfEachKeyTheFirstMessageThatIsNotDoneIsNext(t *testing.T) {
	rng := seed.Random(t)
	for range 500 {
		from := eventlog.Offset(rng.IntN(10))
		floor, letters := from+eventlog.Offset(rng.IntN(5)), make([]byte, 5+rng.IntN(40)) // of from and those after it
		k := &keys{from: from}
		for i := range letters {
			letters[i] = ".abcde"[rng.IntN(6)]
			before := bytes.LastIndexByte(letters[:i], letters[i])
			if letters[i] == '.' || before < 0 {
				k.before = append(k.before, -1)
			} else {
				k.before = append(k.before, from+eventlog.Offset(before))
			}
		}
		end := from + eventlog.Offset(len(letters)+rng.IntN(3))
		order, known := k.order(&claims.Part{Floor: floor, Next: floor}, end)
		if known != min(end, k.end()) {
			t.Fatalf("keys up to %d of %d are known, it says %d", k.end(), end, known)
		}
		open := make(map[byte]bool)
		for at := floor; at < end; at++ {
			done := rng.IntN(3) == 0
			want := false
			if at < known {
				key := letters[at-from]
				want = !done && !open[key]
				open[key] = key != '.' && (open[key] || !done)
			}
			if got := order.First(at, done); got != want {
				t.Fatalf("keys %q from %d, floor %d: message %d, done %v, is first: %v", letters, from, floor, at, done, got)
			}
		}
	}
	if _, known := (*keys)(nil).order(&claims.Part{Next: 7}, 9); known != 7 {
		t.Errorf("without keys the messages from 7 on are not known, it says %d", known)
	}
}
