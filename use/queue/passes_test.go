package queue

import (
	"slices"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/claims"
)

// One key has stood still for 100,000 messages: claims pass over them, and acks do not, so that
// many acks share a change.
func TestAcksShareAChangeHoweverFarAKeyIsBehind(t *testing.T) {
	q := &Queue{}
	q.def.Store(&definition{settings: Settings{KeyOrder: true}})
	for claim, want := range map[bool]int{false: 1000, true: workMax / 100_000} {
		s, st := &shard{q: q}, &claims.State{Parts: []claims.Part{{Partition: 1, Next: eventlog.Offset(100_000)}}}
		ops := slices.Repeat([]*op{{claims: claim, messages: 1}}, 1000)
		if got := s.take(st, slices.Values(ops)); got != want {
			t.Errorf("claims %v: %d operations share a change, want %d", claim, got, want)
		}
	}
}
