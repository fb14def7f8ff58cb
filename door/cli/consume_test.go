package cli

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Brokers that have just started may hand a group to one another while a member joins. The member
// is then told that it is none, and joins again. What it may not do ends the command.
func TestConsumeJoinsAgainWhenItsMembershipIsLost(t *testing.T) {
	for _, test := range []struct {
		answer *kerr.Error
		code   int
	}{{kerr.UnknownMemberID, exitOK}, {kerr.IllegalGeneration, exitOK}, {kerr.NotCoordinator, exitOK}, {kerr.GroupAuthorizationFailed, exitFailed}} {
		t.Run(test.answer.Message, func(t *testing.T) {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(cluster.Close)
			t.Setenv("WEIR_BOOTSTRAP", cluster.ListenAddrs()[0])
			weir(t, "a\n", "produce", "orders").want(t, exitOK)
			cluster.ControlKey(int16(kmsg.SyncGroup), func(req kmsg.Request) (kmsg.Response, error, bool) { // once
				r := req.ResponseKind().(*kmsg.SyncGroupResponse)
				r.ErrorCode = test.answer.Code
				return r, nil, true
			})
			weir(t, "", "consume", "orders", "--group", "g", "--max", "1").want(t, test.code)
		})
	}
}

// What is left to read is not known while the command is no member: it must not end as if it had
// read all.
func TestConsumeHasNotReadAllWhenItsMembershipIsLost(t *testing.T) {
	p := &plan{topic: "orders", next: map[int32]int64{0: 3}, until: map[int32]int64{0: 10}, ours: map[int32]bool{0: true}, dealt: true}
	if got := p.rest(); got != 7 {
		t.Fatalf("%d are left", got)
	}
	if p.lost(t.Context(), nil, map[string][]int32{"orders": {0}}); p.rest() != -1 {
		t.Errorf("%d are left after the membership is lost", p.rest())
	}
}
