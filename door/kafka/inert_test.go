package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
)

func TestSettingsThatChangeNothingAreTakenAndShown(t *testing.T) {
	b := start(t, kafka.Config{})
	set := map[string]string{
		"delete.retention.ms": "1", "min.cleanable.dirty.ratio": "0.25", "min.compaction.lag.ms": "5", "max.compaction.lag.ms": "6",
		"message.timestamp.before.max.ms": "7", "message.timestamp.after.max.ms": "8", "compression.gzip.level": "9", "remote.storage.enable": "false",
		"local.retention.ms": "-2", "local.retention.bytes": "10", "leader.replication.throttled.replicas": "*", "follower.replication.throttled.replicas": "0:1",
		"min.insync.replicas": "2",
	}
	req := createRequest("t", 1, 1)
	for name, value := range set {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = name, &value
		req.Topics[0].Configs = append(req.Topics[0].Configs, c)
	}
	made := b.create(req)
	wantCode(t, "create: "+text(made.ErrorMessage), made.ErrorCode, nil)
	describe := kmsg.NewPtrDescribeConfigsRequest()
	describe.Version = 4
	of := kmsg.NewDescribeConfigsRequestResource()
	of.ResourceType, of.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
	describe.Resources = append(describe.Resources, of)
	seen := make(map[string]string)
	for _, c := range ask[*kmsg.DescribeConfigsResponse](b, describe).Resources[0].Configs {
		seen[c.Name] = text(c.Value)
	}
	for name, value := range set {
		if seen[name] != value {
			t.Errorf("%s is shown as %q, was set to %q", name, seen[name], value)
		}
	}
	for name, value := range map[string]string{"remote.storage.enable": "true", "min.cleanable.dirty.ratio": "2", "compression.gzip.level": "10", "cleanup.policy": "compress"} {
		bad := createRequest("bad", 1, 1)
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = name, &value
		bad.Topics[0].Configs = append(bad.Topics[0].Configs, c)
		wantCode(t, name+"="+value, b.create(bad).ErrorCode, kerr.InvalidConfig)
	}
}

func TestSettingsOfBrokersAndGroupsAnswerAsKafkas(t *testing.T) {
	b := start(t, kafka.Config{})
	for _, c := range []struct {
		kind kmsg.ConfigResourceType
		name string
		set  string // to set in one request, and to delete in another
		want *kerr.Error
		says string
	}{
		{kmsg.ConfigResourceTypeBroker, "1", "log.retention.ms", kerr.InvalidRequest, "the broker"},
		{kmsg.ConfigResourceTypeBroker, "", "log.retention.ms", kerr.InvalidRequest, "log.retention.ms"},
		{kmsg.ConfigResourceTypeBroker, "7", "log.retention.ms", kerr.InvalidRequest, "this is broker 1"},
		{kmsg.ConfigResourceTypeBroker, "1", "", nil, "null"},
		{kmsg.ConfigResourceTypeGroupConfig, "g", "consumer.session.timeout.ms", kerr.InvalidConfig, "from 45000 to 60000"},
	} {
		for _, op := range []kmsg.IncrementalAlterConfigOp{kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete} {
			req := kmsg.NewPtrIncrementalAlterConfigsRequest()
			req.Version = 1
			r := kmsg.NewIncrementalAlterConfigsRequestResource()
			r.ResourceType, r.ResourceName = c.kind, c.name
			if c.set != "" {
				one := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
				one.Name, one.Op = c.set, op
				if op == kmsg.IncrementalAlterConfigOpSet {
					one.Value = kmsg.StringPtr("1")
				}
				r.Configs = append(r.Configs, one)
			}
			req.Resources = append(req.Resources, r)
			got := ask[*kmsg.IncrementalAlterConfigsResponse](b, req).Resources[0]
			if op == kmsg.IncrementalAlterConfigOpDelete && c.name != "7" { // what is not set is deleted, as with Apache Kafka 4.4
				wantCode(t, fmt.Sprint(op, " of ", c.kind, " ", c.name), got.ErrorCode, nil)
				continue
			}
			wantCode(t, fmt.Sprint(op, " of ", c.kind, " ", c.name), got.ErrorCode, c.want)
			if said := text(got.ErrorMessage); !strings.Contains(said, c.says) || strings.Contains(said, "type 4") {
				t.Errorf("%v of %v %q: %s", op, c.kind, c.name, said)
			}
		}
	}
}

// A client that wants a group protocol which weir does not have hears an error at once. librdkafka
// would wait for ever if the key were not advertised.
func TestMembersOfOtherGroupProtocolsAreRefused(t *testing.T) {
	b := start(t, kafka.Config{})
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.Version, req.GroupID, req.MemberID = b.maxVersion(kmsg.ShareGroupHeartbeat), "g", "m"
	got := ask[*kmsg.ShareGroupHeartbeatResponse](b, req)
	wantCode(t, "share", got.ErrorCode, kerr.UnsupportedVersion)
	if said := text(got.ErrorMessage); !strings.Contains(said, "share groups") {
		t.Errorf("share consumers are told %q", said)
	}
	b.said.await(t, "kind=\"share groups\"", 1)
}

func TestABrokerShowsWhenClientsMustLogInAgain(t *testing.T) {
	for lasts, want := range map[time.Duration]string{0: "0", time.Hour: "3600000"} {
		b := start(t, kafka.Config{LoginLasts: lasts})
		req := kmsg.NewPtrDescribeConfigsRequest()
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeBroker, "1", []string{"connections.max.reauth.ms"}
		req.Version, req.Resources = 4, append(req.Resources, r)
		got := ask[*kmsg.DescribeConfigsResponse](b, req).Resources[0].Configs
		if len(got) != 1 || text(got[0].Value) != want || !got[0].ReadOnly {
			t.Errorf("with %v it shows %+v", lasts, got)
		}
	}
}

func TestATransactionalProducerFailsAtOnce(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	cl := b.client(kgo.TransactionalID("x"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := cl.BeginTransaction() // asks for the coordinator and a producer id
	if err == nil {
		err = cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr()
	}
	if err == nil || !strings.Contains(err.Error(), kerr.ClusterAuthorizationFailed.Message) { // franz-go keeps the text alone
		t.Errorf("franz-go is told %v", err)
	}
}

// Clients that look for the coordinator in older versions are told the same, with the text where
// the version has one.
func TestATransactionalProducerIsToldWhyInEachVersion(t *testing.T) {
	b := start(t, kafka.Config{})
	for version := int16(1); version <= b.maxVersion(kmsg.FindCoordinator); version++ { // version 0 knows only groups
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.Version, find.CoordinatorType, find.CoordinatorKey, find.CoordinatorKeys = version, 1, "x", []string{"x"}
		got := ask[*kmsg.FindCoordinatorResponse](b, find)
		code, said := got.ErrorCode, text(got.ErrorMessage)
		if version >= 4 {
			code, said = got.Coordinators[0].ErrorCode, text(got.Coordinators[0].ErrorMessage)
		}
		wantCode(t, "FindCoordinator", code, kerr.ClusterAuthorizationFailed) // after it Kafka's own client shows the text
		if !strings.Contains(said, "unset transactional.id") {
			t.Errorf("version %d says %s", version, said)
		}
	}
	for version := range b.maxVersion(kmsg.InitProducerID) + 1 {
		init := kmsg.NewPtrInitProducerIDRequest()
		init.Version, init.TransactionalID = version, kmsg.StringPtr("x")
		wantCode(t, "InitProducerId", ask[*kmsg.InitProducerIDResponse](b, init).ErrorCode, kerr.TransactionalIDAuthorizationFailed)
	}
}
