package kafka_test

import (
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/quota"
	"github.com/weir-log/weir/use/user"
)

// A key for one topic and one group is not for those whose names begin so.
func TestAKeyForOneTopicReachesNoOtherOverKafka(t *testing.T) {
	g := guard(t, memory.New(), kafka.Config{NoAutoCreate: true}, false)
	defer g.stop()
	for _, name := range []string{"orders", "orders2"} {
		g.createTopic(name, 1, nil)
	}
	_, secret := g.key(apikey.Spec{Name: "one", Access: []apikey.Access{apikey.Read}, TopicNames: []string{"orders"}, GroupNames: []string{"billing"}})
	w := g.enter("one", secret)
	for topic, want := range map[string]*kerr.Error{"orders": nil, "orders2": kerr.TopicAuthorizationFailed} {
		wantCode(t, topic, tells[*kmsg.MetadataResponse](w, metadataRequest(topic)).Topics[0].ErrorCode, want)
		wantCode(t, "offsets of "+topic, tells[*kmsg.ListOffsetsResponse](w, listRequest(topic, 0, -1)).Topics[0].Partitions[0].ErrorCode, want)
	}
	for group, want := range map[string]*kerr.Error{"billing": nil, "billing2": kerr.GroupAuthorizationFailed} {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Version, req.Groups = 5, []string{group}
		wantCode(t, group, tells[*kmsg.DescribeGroupsResponse](w, req).Groups[0].ErrorCode, want)
	}
	all := metadataRequest()
	all.Topics = nil
	if got := tells[*kmsg.MetadataResponse](w, all).Topics; len(got) != 1 || *got[0].Topic != "orders" {
		t.Errorf("it sees %+v", got)
	}
}

// Who may do what, how much, and who changed what, is for administrators, as over HTTP. A user
// needs what it needs in Kafka.
func TestKeysOfAdministratorsAloneSeeWhoMayDoWhat(t *testing.T) {
	store, quiet := memory.New(), slog.New(slog.DiscardHandler)
	log := everystore.Direct(store)
	g := guard(t, store, kafka.Config{NoAutoCreate: true, Users: user.New(log, quiet), ACLs: acl.New(log, quiet), Quotas: quota.New(log, quiet)}, false)
	defer g.stop()
	reads, admins := []apikey.Access{apikey.Read}, []apikey.Access{apikey.Admin}
	for name, c := range map[string]struct {
		spec apikey.Spec
		want *kerr.Error
	}{
		"reads all":               {apikey.Spec{Access: reads, AllTopics: true, AllGroups: true}, kerr.ClusterAuthorizationFailed},
		"administers some queues": {apikey.Spec{Access: admins, AllTopics: true, AllGroups: true, Queues: []string{"mail"}}, kerr.ClusterAuthorizationFailed},
		"administers all":         {apikey.Spec{Access: admins, AllTopics: true, AllGroups: true}, nil},
	} {
		c.spec.Name = name
		_, secret := g.key(c.spec)
		w := g.enter(name, secret)
		acls := kmsg.NewPtrDescribeACLsRequest()
		acls.Version, acls.ResourceType, acls.ResourcePatternType, acls.Operation, acls.PermissionType = 3, 1, 1, 1, 1 // any
		wantCode(t, name+": ACLs", tells[*kmsg.DescribeACLsResponse](w, acls).ErrorCode, c.want)
		users := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
		wantCode(t, name+": users", tells[*kmsg.DescribeUserSCRAMCredentialsResponse](w, users).ErrorCode, c.want)
		quotas := kmsg.NewPtrDescribeClientQuotasRequest()
		quotas.Version = 1
		wantCode(t, name+": quotas", tells[*kmsg.DescribeClientQuotasResponse](w, quotas).ErrorCode, c.want)
		alter, alice := kmsg.NewPtrAlterClientQuotasRequest(), "alice"
		alter.Version = 1
		alter.Entries = append(alter.Entries, alterQuotas([]kmsg.AlterClientQuotasRequestEntryEntity{{Type: "user", Name: &alice}}, kmsg.AlterClientQuotasRequestEntryOp{Key: "producer_byte_rate", Value: 1000}))
		wantCode(t, name+": a change of quotas", tells[*kmsg.AlterClientQuotasResponse](w, alter).Entries[0].ErrorCode, c.want)

		audit := kerr.TopicAuthorizationFailed
		if c.want == nil {
			audit = kerr.UnknownTopicOrPartition // this log has none
		}
		wantCode(t, name+": the audit", tells[*kmsg.MetadataResponse](w, metadataRequest(eventlog.AuditTopic)).Topics[0].ErrorCode, audit)
	}
}
