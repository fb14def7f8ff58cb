package group

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What clients send is read without trust in its counts, and well-formed bytes are read as Kafka
// means them.
func FuzzConsumerProtocol(f *testing.F) {
	subscription := kmsg.ConsumerMemberMetadata{Version: 3, Topics: []string{"a", "b"}, UserData: []byte("x")}
	assignment := kmsg.ConsumerMemberAssignment{Topics: []kmsg.ConsumerMemberAssignmentTopic{{Topic: "a", Partitions: []int32{0, 7}}}}
	f.Add(subscription.AppendTo(nil))
	f.Add(assignment.AppendTo(nil))
	f.Add([]byte{0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		topics, ok := subscribed(raw)
		if len(topics) > len(raw) {
			t.Fatalf("%d bytes gave %d topics", len(raw), len(topics))
		}
		if err := subscription.ReadFrom(raw); err == nil && (!ok || !slices.Equal(topics, subscription.Topics)) {
			t.Fatalf("read %q (%v), want %q", topics, ok, subscription.Topics)
		}
		n := 0
		for _, partitions := range assigned(raw) {
			n += len(partitions)
		}
		if n > len(raw) {
			t.Fatalf("%d bytes gave %d partitions", len(raw), n)
		}
	})
}
