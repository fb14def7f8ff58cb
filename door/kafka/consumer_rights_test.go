package kafka_test

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/acl"
)

// A member of the consumer protocol needs what one of the classic protocol needs: to read the
// group, and to see the topics. Its pattern matches no topic that its user may not see, and whoever
// may not see a topic of the group is not shown the group's members.
func TestAConsumerGetsOnlyWhatItsUserMaySee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		r := rule(t, store, true)
		defer r.stop()
		ids := make(map[string]eventlog.TopicID)
		for _, name := range []string{"orders", "secret"} {
			r.createTopic(name, 1, nil)
			topic, err := r.log.Topic(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			ids[name] = topic.ID
		}
		r.add("alice", "right password")
		w := r.knock()
		wantCode(t, "login", w.scram("alice", "right password").ErrorCode, nil)
		join := func(pattern string, topics ...string) *kmsg.ConsumerGroupHeartbeatResponse {
			req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
			req.Version, req.Group, req.MemberID, req.RebalanceTimeoutMillis = 1, "g", "one", 10_000
			req.Topics, req.SubscribedTopicNames = []kmsg.ConsumerGroupHeartbeatRequestTopic{}, topics
			if pattern != "" {
				req.SubscribedTopicRegex = &pattern
			}
			return tells[*kmsg.ConsumerGroupHeartbeatResponse](w, req)
		}
		describe := func() kmsg.ConsumerGroupDescribeResponseGroup {
			req := kmsg.NewPtrConsumerGroupDescribeRequest()
			req.Version, req.Groups, req.IncludeAuthorizedOperations = 1, []string{"g"}, true
			return tells[*kmsg.ConsumerGroupDescribeResponse](w, req).Groups[0]
		}
		wantCode(t, "join without rights", join("", "orders").ErrorCode, kerr.GroupAuthorizationFailed)
		wantCode(t, "describe without rights", describe().ErrorCode, kerr.GroupAuthorizationFailed)
		r.acls = acl.New(everystore.Direct(store), slog.New(slog.DiscardHandler)) // another process
		r.create(acl.Rule{Kind: acl.Group, Name: "g", Operation: acl.Read}, acl.Rule{Kind: acl.Topic, Name: "orders", Operation: acl.Describe})
		time.Sleep(2 * time.Second) // fake time: the rules are read again
		wantCode(t, "join for a topic of others", join("", "orders", "secret").ErrorCode, kerr.TopicAuthorizationFailed)
		got := join(".*")
		wantCode(t, "join", got.ErrorCode, nil)
		if all := got.Assignment.Topics; len(all) != 1 || all[0].TopicID != ids["orders"] {
			t.Errorf("its pattern gives it %+v", all)
		}
		if d := describe(); d.ErrorCode != 0 || len(d.Members) != 1 || !slices.Equal(d.Members[0].SubscribedTopics, []string{"orders"}) {
			t.Errorf("it is shown %+v", d)
		} else if d.AuthorizedOperations != 1<<3|1<<8 { // read, and with it describe
			t.Errorf("it may do %b to the group", d.AuthorizedOperations)
		}
		r.create(acl.Rule{Kind: acl.Topic, Name: "orders", Operation: acl.Describe, Deny: true})
		time.Sleep(2 * time.Second)
		wantCode(t, "describe a group with a topic of others", describe().ErrorCode, kerr.TopicAuthorizationFailed)
	})
}
