package kafka_test

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
)

func (b *broker) describeConfigs(kind kmsg.ConfigResourceType, name string, only ...string) kmsg.DescribeConfigsResponseResource {
	b.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms, req.IncludeDocumentation = 4, true, true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, only
	req.Resources = append(req.Resources, r)
	return ask[*kmsg.DescribeConfigsResponse](b, req).Resources[0]
}

func (b *broker) topicConfig(topic, name string) kmsg.DescribeConfigsResponseResourceConfig {
	b.t.Helper()
	configs := b.describeConfigs(kmsg.ConfigResourceTypeTopic, topic, name).Configs
	if len(configs) != 1 {
		b.t.Fatalf("%s of %s: %d settings", name, topic, len(configs))
	}
	return configs[0]
}

func TestConfigsSayWhereTheyComeFrom(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, map[string]string{"retention.ms": "1000"})
	all := b.describeConfigs(kmsg.ConfigResourceTypeTopic, "t")
	if all.ErrorCode != 0 || len(all.Configs) < 6 {
		t.Errorf("all: %+v", all)
	}
	set := b.topicConfig("t", "retention.ms")
	if text(set.Value) != "1000" || set.IsDefault || set.Source != kmsg.ConfigSourceDynamicTopicConfig || set.ConfigType != kmsg.ConfigTypeLong || len(set.ConfigSynonyms) != 2 ||
		set.ConfigSynonyms[0].Name != "retention.ms" || set.ConfigSynonyms[1].Name != "log.retention.ms" || text(set.ConfigSynonyms[1].Value) != "604800000" || len(text(set.Documentation)) < 10 {
		t.Errorf("what was set: %+v", set)
	}
	byDefault := b.topicConfig("t", "max.message.bytes")
	if text(byDefault.Value) != "1048588" || !byDefault.IsDefault && byDefault.Source != kmsg.ConfigSourceDefaultConfig || byDefault.ConfigType != kmsg.ConfigTypeInt {
		t.Errorf("a default: %+v", byDefault)
	}
	wantCode(t, "unknown topic", b.describeConfigs(kmsg.ConfigResourceTypeTopic, "none").ErrorCode, kerr.UnknownTopicOrPartition)
	wantCode(t, "topic that cannot be", b.describeConfigs(kmsg.ConfigResourceTypeTopic, "a/b").ErrorCode, kerr.InvalidTopicException)
	broker := b.describeConfigs(kmsg.ConfigResourceTypeBroker, "1", "num.partitions", "log.retention.ms")
	if broker.ErrorCode != 0 || len(broker.Configs) != 2 || !broker.Configs[1].ReadOnly {
		t.Errorf("broker: %+v", broker)
	}
	if none := b.describeConfigs(kmsg.ConfigResourceTypeBroker, ""); none.ErrorCode != 0 || len(none.Configs) != 0 {
		t.Errorf("what was set for all brokers: %+v", none)
	}
	wantCode(t, "another broker", b.describeConfigs(kmsg.ConfigResourceTypeBroker, "2").ErrorCode, kerr.InvalidRequest)
	wantCode(t, "loggers", b.describeConfigs(kmsg.ConfigResourceTypeBrokerLogger, "1").ErrorCode, kerr.InvalidRequest)
}

func (b *broker) alter(validateOnly bool, topic string, changes ...kmsg.IncrementalAlterConfigsRequestResourceConfig) *kmsg.IncrementalAlterConfigsResponseResource {
	b.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version, req.ValidateOnly = 1, validateOnly
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.Configs = kmsg.ConfigResourceTypeTopic, topic, changes
	req.Resources = append(req.Resources, r)
	return &ask[*kmsg.IncrementalAlterConfigsResponse](b, req).Resources[0]
}

func TestConfigsChangeOneByOne(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	change := func(op kmsg.IncrementalAlterConfigOp, name, value string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		if c.Op, c.Name = op, name; value != "null" {
			c.Value = &value
		}
		return c
	}
	const (
		set      = kmsg.IncrementalAlterConfigOpSet
		del      = kmsg.IncrementalAlterConfigOpDelete
		push     = kmsg.IncrementalAlterConfigOpAppend
		subtract = kmsg.IncrementalAlterConfigOpSubtract
	)
	for _, c := range []struct {
		topic   string
		change  kmsg.IncrementalAlterConfigsRequestResourceConfig
		want    *kerr.Error
		name    string
		becomes string
	}{
		{"t", change(set, "retention.ms", "5"), nil, "retention.ms", "5"},
		{"t", change(set, "retention.ms", "never"), kerr.InvalidConfig, "retention.ms", "5"},
		{"t", change(set, "retention.ms", "null"), kerr.InvalidConfig, "retention.ms", "5"},
		{"t", change(set, "max.message.bytes", "77"), nil, "retention.ms", "5"},
		{"t", change(del, "retention.ms", "null"), nil, "retention.ms", "604800000"},
		{"t", change(push, "retention.ms", "5"), kerr.InvalidConfig, "retention.ms", "604800000"},
		{"t", change(push, "cleanup.policy", "delete"), nil, "cleanup.policy", "delete"},
		{"t", change(subtract, "cleanup.policy", "compact"), nil, "cleanup.policy", "delete"},
		{"t", change(set, "no.such", "1"), kerr.InvalidConfig, "max.message.bytes", "77"},
		{"t", change(9, "cleanup.policy", "delete"), kerr.InvalidRequest, "cleanup.policy", "delete"},
	} {
		what := fmt.Sprintf("operation %d of %q on %s", c.change.Op, text(c.change.Value), c.change.Name)
		r := b.alter(false, c.topic, c.change)
		wantCode(t, what, r.ErrorCode, c.want)
		if got := text(b.topicConfig("t", c.name).Value); got != c.becomes {
			t.Errorf("%s: %s becomes %s, expected %s", what, c.name, got, c.becomes)
		}
	}
	wantCode(t, "one setting twice", b.alter(false, "t", change(set, "retention.ms", "1"), change(set, "retention.ms", "2")).ErrorCode, kerr.InvalidRequest)
	wantCode(t, "unknown topic", b.alter(false, "none", change(set, "retention.ms", "1")).ErrorCode, kerr.UnknownTopicOrPartition)
	wantCode(t, "validate only", b.alter(true, "t", change(set, "retention.ms", "1")).ErrorCode, nil)
	wantCode(t, "validate only what is wrong", b.alter(true, "t", change(set, "retention.ms", "x")).ErrorCode, kerr.InvalidConfig)
	if got := text(b.topicConfig("t", "retention.ms").Value); got != "604800000" {
		t.Errorf("retention.ms is %s after requests that were refused or validate only", got)
	}
}

func TestAlterConfigsReplacesAll(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, map[string]string{"retention.ms": "1000"})
	req := kmsg.NewPtrAlterConfigsRequest()
	req.Version = 2
	r := kmsg.NewAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
	c := kmsg.NewAlterConfigsRequestResourceConfig()
	c.Name, c.Value = "max.message.bytes", kmsg.StringPtr("77")
	r.Configs = append(r.Configs, c)
	broker := kmsg.NewAlterConfigsRequestResource()
	broker.ResourceType, broker.ResourceName = kmsg.ConfigResourceTypeBroker, "1"
	req.Resources = append(req.Resources, r, broker)
	resp := ask[*kmsg.AlterConfigsResponse](b, req)
	wantCode(t, "topic", resp.Resources[0].ErrorCode, nil)
	wantCode(t, "broker", resp.Resources[1].ErrorCode, kerr.InvalidRequest)
	if set := b.topicConfig("t", "max.message.bytes"); text(set.Value) != "77" {
		t.Errorf("max.message.bytes: %+v", set)
	}
	if gone := b.topicConfig("t", "retention.ms"); text(gone.Value) != "604800000" || gone.Source != kmsg.ConfigSourceDefaultConfig {
		t.Errorf("retention.ms: %+v", gone)
	}
}

func TestListConfigResources(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	for kinds, want := range map[string]int{"": 2, "\x02": 1, "\x04": 1, "\x10": 0} {
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.Version = 1
		for _, k := range []byte(kinds) {
			req.ResourceTypes = append(req.ResourceTypes, int8(k))
		}
		if n := len(ask[*kmsg.ListConfigResourcesResponse](b, req).ConfigResources); n != want {
			t.Errorf("%q: %d resources, expected %d", kinds, n, want)
		}
	}
}
