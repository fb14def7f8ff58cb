package queue

import (
	"testing"

	"github.com/weir-log/weir/eventlog"
)

// One key has stood still for 100,000 messages: claims pass over them, and acks do not, so that
// many acks share a change.
func TestAcksShareAChangeHoweverFarAKeyIsBehind(t *testing.T) {
	q := &Queue{}
	q.def.Store(&definition{settings: Settings{KeyOrder: true}})
	for claims, want := range map[bool]int{false: 1000, true: workMax / 100_000} {
		s := &shard{q: q, state: &state{parts: []part{{partition: 1, next: eventlog.Offset(100_000)}}}}
		for range 1000 {
			s.queued = append(s.queued, &op{claims: claims, messages: 1})
		}
		if got := len(s.take(nil)); got != want {
			t.Errorf("claims %v: %d operations share a change, want %d", claims, got, want)
		}
	}
}
