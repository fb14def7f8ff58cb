package console_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/use/group"
)

// A group's page shows members of Kafka's consumer protocol beside those of other kinds.
func TestAGroupsPageShowsMembersOfEveryKind(t *testing.T) {
	s := serve(t)
	s.fill()
	beat := func(b group.ConsumerBeat) group.ConsumerBeaten {
		t.Helper()
		b.Group, b.Member, b.ClientID, b.ClientHost, b.Rebalance, b.Topics = "readers", "kafka-1", "shop", "/10.0.0.7", time.Minute, []string{"orders"}
		got, err := s.groups.ConsumerHeartbeat(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	shows := func(path string, all ...string) {
		t.Helper()
		p := s.browser().get(path)
		for _, has := range all {
			if p.status != http.StatusOK || !strings.Contains(p.text, has) {
				t.Errorf("%s: %d, lacks %q: %s", path, p.status, has, p.text)
			}
		}
	}
	got := beat(group.ConsumerBeat{Owned: []group.TopicPartition{}})
	shows("/console/groups", "readers")
	shows("/console/groups/readers", "<code>kafka-1</code><td>shop<td>/10.0.0.7<td>orders: 0 1 </tbody>")
	s.api("POST", "/v1/groups/readers/members", `{"topics": ["orders"], "client": "till"}`)
	for late := time.After(20 * time.Second); len(got.Assigned) == 2; { // until it is told to give up one
		select {
		case <-late:
			t.Fatal("the Kafka member is not asked for a partition")
		case <-time.After(10 * time.Millisecond):
			got = beat(group.ConsumerBeat{Epoch: got.Epoch, Owned: got.Assigned})
		}
	}
	beat(group.ConsumerBeat{Epoch: got.Epoch, Owned: got.Assigned}) // and gives it up
	shows("/console/groups/readers", "<code>kafka-1</code><td>shop<td>/10.0.0.7<td>orders: 0 <tr>", "<td>till<td>", "<td>orders: 1 </tbody>")
}
