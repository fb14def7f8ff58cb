package kafka_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/quota"
	"github.com/weir-log/weir/use/user"
)

// replicated starts a broker that writes, with a record in topic t and an offset of group g, and
// one that only reads.
func replicated(t *testing.T) (writer, replica *broker, refused *everystore.Replica) {
	t.Helper()
	store := memory.New()
	writer = startOn(t, store, kafka.Config{})
	if _, err := writer.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "t", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "produce", writer.produce("t", 0, sealed(t, batch.None, value("one"))).ErrorCode, nil)
	wantCode(t, "commit", ask[*kmsg.OffsetCommitResponse](writer, commitOf("g", "t", 1)).Topics[0].Partitions[0].ErrorCode, nil)
	refused = &everystore.Replica{Store: store}
	users := user.New(everystore.Direct(refused), nil)
	return writer, startOn(t, refused, kafka.Config{NodeID: new(int32(7)), Users: users, ACLs: acl.New(everystore.Direct(refused), nil), Quotas: quota.New(everystore.Direct(refused), nil)}), refused
}

func commitOf(group, topic string, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 8, group, -1
	row := kmsg.NewOffsetCommitRequestTopic()
	row.Topic = topic
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = offset
	row.Partitions = append(row.Partitions, p)
	req.Topics = append(req.Topics, row)
	return req
}

// A consumer without a group reads from a replica all that comes, as from any broker; the replica
// says that it leads everything.
func TestAReplicaServesConsumersWithoutAGroup(t *testing.T) {
	writer, replica, refused := replicated(t)
	meta := ask[*kmsg.MetadataResponse](replica, metadataRequest("t"))
	if len(meta.Brokers) != 1 || meta.Brokers[0].NodeID != 7 || len(meta.Topics[0].Partitions) != 2 || meta.Topics[0].Partitions[1].Leader != 7 {
		t.Errorf("%+v", meta)
	}
	if other := ask[*kmsg.MetadataResponse](writer, metadataRequest("t")); *other.ClusterID != *meta.ClusterID {
		t.Errorf("cluster %s, the writer's is %s", *meta.ClusterID, *other.ClusterID)
	}
	wantCode(t, "a topic that is not there", ask[*kmsg.MetadataResponse](replica, metadataRequest("unknown")).Topics[0].ErrorCode, kerr.UnknownTopicOrPartition)
	cl := replica.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}))
	for _, want := range []string{"one", "two", "three"} {
		if want != "one" {
			wantCode(t, "produce", writer.produce("t", 0, sealed(t, batch.None, value(want))).ErrorCode, nil)
		}
		got := cl.PollFetches(t.Context())
		if err := got.Err(); err != nil || got.NumRecords() != 1 || string(got.Records()[0].Value) != want {
			t.Fatalf("%v, %v; want %s", got.Records(), err, want)
		}
	}
	list := kmsg.NewPtrListOffsetsRequest()
	list.Version, list.ReplicaID = 7, -1
	list.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Timestamp: -1, CurrentLeaderEpoch: -1}}}}
	if got := ask[*kmsg.ListOffsetsResponse](replica, list).Topics[0].Partitions[0]; got.Offset != 3 || got.ErrorCode != 0 {
		t.Errorf("%+v, want offset 3", got)
	}
	if n := refused.Tried.Load(); n != 0 {
		t.Errorf("%d commits and trims were tried", n)
	}
}

// A producer, idempotent or not, is told at once, and does not try again until its records time
// out.
func TestAReplicaRefusesProducersAtOnce(t *testing.T) {
	_, replica, refused := replicated(t)
	got := replica.produce("t", 0, sealed(t, batch.None, value("x")))
	wantCode(t, "produce", got.ErrorCode, kerr.PolicyViolation)
	if got.ErrorMessage == nil || !strings.Contains(*got.ErrorMessage, "without --read-only") {
		t.Errorf("the text is %v", text(got.ErrorMessage))
	}
	began := time.Now()
	for want, opts := range map[*kerr.Error][]kgo.Opt{
		kerr.ClusterAuthorizationFailed: nil,
		kerr.PolicyViolation:            {kgo.DisableIdempotentWrite()},
	} {
		cl := replica.client(opts...)
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr(); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
	if n := refused.Tried.Load(); n != 0 {
		t.Errorf("%d commits and trims were tried", n)
	}
}

// Nobody joins a group at a replica or commits there, and a member is told so. What others
// committed can be read.
func TestAReplicaHasNoMembersAndReadsOffsets(t *testing.T) {
	writer, replica, _ := replicated(t)
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorKeys = 4, []string{"g"}
	if got := ask[*kmsg.FindCoordinatorResponse](replica, find).Coordinators[0]; got.ErrorCode != 0 || got.NodeID != 7 {
		t.Errorf("%+v", got)
	}
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Version, fetch.Groups = 8, []kmsg.OffsetFetchRequestGroup{{Group: "g"}}
	for offset := int64(1); offset <= 2; offset++ {
		got := ask[*kmsg.OffsetFetchResponse](replica, fetch).Groups[0]
		if got.ErrorCode != 0 || len(got.Topics) != 1 || got.Topics[0].Partitions[0].Offset != offset {
			t.Errorf("%+v, want offset %d", got, offset)
		}
		wantCode(t, "the writer's commit", ask[*kmsg.OffsetCommitResponse](writer, commitOf("g", "t", 2)).Topics[0].Partitions[0].ErrorCode, nil)
	}
	wantCode(t, "commit", ask[*kmsg.OffsetCommitResponse](replica, commitOf("g", "t", 5)).Topics[0].Partitions[0].ErrorCode, kerr.GroupAuthorizationFailed)
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Version, beat.Group, beat.MemberID = 4, "g", "member"
	wantCode(t, "heartbeat", ask[*kmsg.HeartbeatResponse](replica, beat).ErrorCode, kerr.GroupAuthorizationFailed)
	remove := kmsg.NewPtrDeleteGroupsRequest()
	remove.Version, remove.Groups = 2, []string{"g"}
	wantCode(t, "delete", ask[*kmsg.DeleteGroupsResponse](replica, remove).Groups[0].ErrorCode, kerr.GroupAuthorizationFailed)
	cl := replica.client(kgo.ConsumerGroup("other"), kgo.ConsumeTopics("t"))
	if err := cl.PollFetches(t.Context()).Err(); !errors.Is(err, kerr.GroupAuthorizationFailed) {
		t.Errorf("a member is told %v", err)
	}
}

// What an administrator changes is refused with a text, wherever the answer has one.
func TestAReplicaRefusesAdministrators(t *testing.T) {
	_, replica, _ := replicated(t)
	said := func(what string, code int16, message *string) {
		t.Helper()
		wantCode(t, what, code, kerr.PolicyViolation)
		if message == nil || !strings.Contains(*message, "--read-only") {
			t.Errorf("%s: the text is %q", what, text(message))
		}
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version = 7
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "new", 1, 1
	create.Topics = append(create.Topics, topic)
	created := ask[*kmsg.CreateTopicsResponse](replica, create).Topics[0]
	said("create", created.ErrorCode, created.ErrorMessage)

	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.Version, remove.TopicNames = 5, []string{"t"}
	removed := ask[*kmsg.DeleteTopicsResponse](replica, remove).Topics[0]
	said("delete", removed.ErrorCode, removed.ErrorMessage)

	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.Version = 3
	more := kmsg.NewCreatePartitionsRequestTopic()
	more.Topic, more.Count = "t", 5
	grow.Topics = append(grow.Topics, more)
	grown := ask[*kmsg.CreatePartitionsResponse](replica, grow).Topics[0]
	said("more partitions", grown.ErrorCode, grown.ErrorMessage)

	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	alter.Version = 1
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
	resource.Configs = append(resource.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: "retention.ms", Value: new("1000")})
	alter.Resources = append(alter.Resources, resource)
	altered := ask[*kmsg.IncrementalAlterConfigsResponse](replica, alter).Resources[0]
	said("settings", altered.ErrorCode, altered.ErrorMessage)

	allow := kmsg.NewPtrCreateACLsRequest()
	allow.Version = 3
	allow.Creations = append(allow.Creations, kmsg.CreateACLsRequestCreation{
		ResourceType: kmsg.ACLResourceTypeTopic, ResourceName: "t", ResourcePatternType: kmsg.ACLResourcePatternTypeLiteral,
		Principal: "User:a", Host: "*", Operation: kmsg.ACLOperationRead, PermissionType: kmsg.ACLPermissionTypeAllow,
	})
	allowed := ask[*kmsg.CreateACLsResponse](replica, allow).Results[0]
	said("ACL", allowed.ErrorCode, allowed.ErrorMessage)

	trim := kmsg.NewPtrDeleteRecordsRequest()
	trim.Version = 2
	trim.Topics = append(trim.Topics, kmsg.DeleteRecordsRequestTopic{Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 0, Offset: 1}}})
	wantCode(t, "delete records", ask[*kmsg.DeleteRecordsResponse](replica, trim).Topics[0].Partitions[0].ErrorCode, kerr.PolicyViolation)
}
