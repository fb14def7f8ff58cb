package kafka_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
)

// AlterConfigs, which replaces all settings, answers for the broker and for groups as
// IncrementalAlterConfigs does, with Kafka's codes.
func TestSettingsThatBrokersAndGroupsDoNotHaveCannotBeReplaced(t *testing.T) {
	b := start(t, kafka.Config{})
	for _, c := range []struct {
		kind kmsg.ConfigResourceType
		name string
		set  string
		want *kerr.Error
		says string
	}{
		{kmsg.ConfigResourceTypeBroker, "1", "log.retention.ms", kerr.InvalidRequest, "the broker"},
		{kmsg.ConfigResourceTypeBroker, "", "log.retention.ms", kerr.InvalidRequest, "log.retention.ms"},
		{kmsg.ConfigResourceTypeBroker, "7", "log.retention.ms", kerr.InvalidRequest, "this is broker 1"},
		{kmsg.ConfigResourceTypeBroker, "broker", "log.retention.ms", kerr.InvalidRequest, `"broker"`},
		{kmsg.ConfigResourceTypeBroker, "broker", "", kerr.InvalidRequest, `"broker"`},
		{kmsg.ConfigResourceTypeBroker, "1", "", nil, "null"},
		{kmsg.ConfigResourceTypeBroker, "", "", nil, "null"},
		{kmsg.ConfigResourceTypeGroupConfig, "g", "consumer.session.timeout.ms", kerr.InvalidConfig, "from 45000 to 60000"},
		{kmsg.ConfigResourceTypeGroupConfig, "broker", "x", kerr.InvalidConfig, "groups have no such setting"},
		{kmsg.ConfigResourceTypeGroupConfig, "g", "", nil, "null"},
		{kmsg.ConfigResourceTypeBrokerLogger, "1", "kafka", kerr.InvalidRequest, "BROKER_LOGGER"},
	} {
		for version := range b.maxVersion(kmsg.AlterConfigs) + 1 {
			for _, validateOnly := range []bool{false, true} {
				req := kmsg.NewPtrAlterConfigsRequest()
				req.Version, req.ValidateOnly = version, validateOnly
				r := kmsg.NewAlterConfigsRequestResource()
				r.ResourceType, r.ResourceName = c.kind, c.name
				if c.set != "" {
					one := kmsg.NewAlterConfigsRequestResourceConfig()
					one.Name, one.Value = c.set, kmsg.StringPtr("1")
					r.Configs = append(r.Configs, one)
				}
				req.Resources = append(req.Resources, r)
				got := ask[*kmsg.AlterConfigsResponse](b, req).Resources
				if len(got) != 1 || got[0].ResourceType != c.kind || got[0].ResourceName != c.name {
					t.Fatalf("version %d, %v %q: answered for %+v", version, c.kind, c.name, got)
				}
				wantCode(t, c.kind.String()+" "+c.name, got[0].ErrorCode, c.want)
				if said := text(got[0].ErrorMessage); !strings.Contains(said, c.says) {
					t.Errorf("version %d, %v %q: %s", version, c.kind, c.name, said)
				}
			}
		}
	}
}

// A topic's id takes precedence over its name: the answer is for the id alone, and nothing is
// created by the name beside it.
func TestMetadataForANameWithAnotherTopicsIDIsThatOfTheID(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("named", 1, nil)
	id := b.createTopic("other", 2, nil).ID
	for _, version := range []int16{10, 11, 12, 13} {
		for _, name := range []string{"named", "not there", "not allowed!"} {
			req := metadataRequest(name)
			req.Version, req.Topics[0].TopicID = version, id
			got := ask[*kmsg.MetadataResponse](b, req).Topics
			if len(got) != 1 || got[0].ErrorCode != 0 || text(got[0].Topic) != "other" || got[0].TopicID != id || len(got[0].Partitions) != 2 {
				t.Errorf("version %d: %q with the id of topic other is answered with %+v", version, name, got)
			}
			req.Topics[0].TopicID = [16]byte{1}
			got = ask[*kmsg.MetadataResponse](b, req).Topics
			if len(got) != 1 || got[0].Topic != nil && version >= 12 || got[0].TopicID != [16]byte{1} {
				t.Errorf("version %d: %q with an unknown id is answered with %+v", version, name, got)
			}
			wantCode(t, name+" with an unknown id", got[0].ErrorCode, kerr.UnknownTopicID)
		}
		both := metadataRequest("named", "named")
		both.Version, both.Topics[1].TopicID = version, id
		if got := ask[*kmsg.MetadataResponse](b, both).Topics; len(got) != 2 || text(got[0].Topic) != "named" || text(got[1].Topic) != "other" {
			t.Errorf("version %d: a name, and that name with another topic's id, are answered with %+v", version, got)
		}
	}
	if n := len(b.log.Topics()); n != 2 {
		t.Errorf("there are %d topics", n)
	}
}

// As Kafka (ConfigAdminManager.preprocess): a null value, and a setting that is named twice, are no
// valid requests, whatever is asked for.
func TestSettingsThatAreNullOrNamedTwiceAreRefused(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, map[string]string{"retention.ms": "1000"})
	for what, values := range map[string][]*string{
		"null":   {nil},
		"times":  {kmsg.StringPtr("2000"), kmsg.StringPtr("3000")},
		"times ": {kmsg.StringPtr("2000"), kmsg.StringPtr("2000")},
	} {
		for version := range b.maxVersion(kmsg.AlterConfigs) + 1 {
			req := kmsg.NewPtrAlterConfigsRequest()
			req.Version = version
			r := kmsg.NewAlterConfigsRequestResource()
			r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
			for _, value := range values {
				one := kmsg.NewAlterConfigsRequestResourceConfig()
				one.Name, one.Value = "retention.ms", value
				r.Configs = append(r.Configs, one)
			}
			req.Resources = append(req.Resources, r)
			got := ask[*kmsg.AlterConfigsResponse](b, req).Resources[0]
			wantCode(t, "AlterConfigs "+what, got.ErrorCode, kerr.InvalidRequest)
			if said := text(got.ErrorMessage); !strings.Contains(said, "retention.ms") || !strings.Contains(said, strings.TrimSpace(what)) {
				t.Errorf("AlterConfigs says %s", said)
			}
		}
		for version := range b.maxVersion(kmsg.IncrementalAlterConfigs) + 1 {
			req := kmsg.NewPtrIncrementalAlterConfigsRequest()
			req.Version = version
			r := kmsg.NewIncrementalAlterConfigsRequestResource()
			r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
			for _, value := range values {
				one := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
				one.Name, one.Value = "retention.ms", value
				r.Configs = append(r.Configs, one)
			}
			req.Resources = append(req.Resources, r)
			wantCode(t, "IncrementalAlterConfigs "+what, ask[*kmsg.IncrementalAlterConfigsResponse](b, req).Resources[0].ErrorCode, kerr.InvalidRequest)
		}
	}
	topic, err := b.log.Topic(t.Context(), "t")
	if got := topic.Setting("retention.ms"); err != nil || got != "1000" {
		t.Errorf("retention.ms is %s: %v", got, err)
	}
}
