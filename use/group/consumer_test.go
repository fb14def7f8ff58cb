package group

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What clients send is read without trust in its counts, and well-formed bytes are read as Kafka
// means them.
func FuzzConsumerProtocol(f *testing.F) {
	subscription := kmsg.ConsumerMemberMetadata{
		Version: 3, Topics: []string{"a", "b"}, UserData: []byte("x"),
		OwnedPartitions: []kmsg.ConsumerMemberMetadataOwnedPartition{{Topic: "b", Partitions: []int32{1, 9}}},
	}
	assignment := kmsg.ConsumerMemberAssignment{Topics: []kmsg.ConsumerMemberAssignmentTopic{{Topic: "a", Partitions: []int32{0, 7}}}}
	f.Add(subscription.AppendTo(nil))
	f.Add(assignment.AppendTo(nil))
	f.Add([]byte{0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		read, ok := readSubscription(raw)
		if len(read.topics) > len(raw) {
			t.Fatalf("%d bytes gave %d topics", len(raw), len(read.topics))
		}
		want := kmsg.ConsumerMemberMetadata{}
		if err := want.ReadFrom(raw); err == nil {
			owned := reading{}
			for _, o := range want.OwnedPartitions {
				if len(o.Partitions) > 0 {
					owned[o.Topic] = append(owned[o.Topic], o.Partitions...)
				}
			}
			if !ok || !slices.Equal(read.topics, want.Topics) || len(owned) > 0 && !maps.EqualFunc(read.owned, owned, slices.Equal) {
				t.Fatalf("read %v (%v), want %v", read, ok, want)
			}
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

// A stored heartbeat interval may be longer than the session of a broker with other defaults: then
// its members would be evicted before they speak.
func TestTheHeartbeatIntervalIsShorterThanTheSession(t *testing.T) {
	c := &Coordinator{cfg: Config{ConsumerSession: 10 * time.Second, ConsumerHeartbeat: 3 * time.Second}}
	for heartbeat, want := range map[string]time.Duration{"": 3 * time.Second, "9000": 9 * time.Second, "10000": 10 * time.Second / 3, "15000": 10 * time.Second / 3} {
		if _, got := c.timesOf(map[string]string{SettingHeartbeat: heartbeat}); got != want {
			t.Errorf("with %q: %v, want %v", heartbeat, got, want)
		}
	}
}
