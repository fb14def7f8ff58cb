package kafka

import (
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
)

// config is one setting as DescribeConfigs returns it.
type config struct {
	name, value string
	kind        kmsg.ConfigType
	source      kmsg.ConfigSource
	doc         string
	readOnly    bool
	synonyms    []config // the possible sources of the value, highest precedence first
}

// topicsAlone are the settings for which brokers have no default.
var topicsAlone = []string{"follower.replication.throttled.replicas", "leader.replication.throttled.replicas", "remote.storage.enable", "weir.linger.bytes", "weir.linger.ms"}

// brokerNames are the broker settings in Kafka that hold the topics' defaults.
var brokerNames = map[string]string{
	"cleanup.policy":                  "log.cleanup.policy",
	"compression.type":                "compression.type",
	"max.message.bytes":               "message.max.bytes",
	"message.timestamp.type":          "log.message.timestamp.type",
	"retention.bytes":                 "log.retention.bytes",
	"retention.ms":                    "log.retention.ms",
	"compression.gzip.level":          "compression.gzip.level",
	"compression.lz4.level":           "compression.lz4.level",
	"compression.zstd.level":          "compression.zstd.level",
	"delete.retention.ms":             "log.cleaner.delete.retention.ms",
	"local.retention.bytes":           "log.local.retention.bytes",
	"local.retention.ms":              "log.local.retention.ms",
	"max.compaction.lag.ms":           "log.cleaner.max.compaction.lag.ms",
	"message.timestamp.after.max.ms":  "log.message.timestamp.after.max.ms",
	"message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
	"min.cleanable.dirty.ratio":       "log.cleaner.min.cleanable.ratio",
	"min.compaction.lag.ms":           "log.cleaner.min.compaction.lag.ms",
	"file.delete.delay.ms":            "log.segment.delete.delay.ms",
	"flush.messages":                  "log.flush.interval.messages",
	"flush.ms":                        "log.flush.interval.ms",
	"index.interval.bytes":            "log.index.interval.bytes",
	"min.insync.replicas":             "min.insync.replicas",
	"preallocate":                     "log.preallocate",
	"segment.bytes":                   "log.segment.bytes",
	"segment.index.bytes":             "log.index.size.max.bytes",
	"segment.jitter.ms":               "log.roll.jitter.ms",
	"segment.ms":                      "log.roll.ms",
	"unclean.leader.election.enable":  "unclean.leader.election.enable",
}

var configTypes = map[eventlog.SettingKind]kmsg.ConfigType{
	eventlog.SettingString: kmsg.ConfigTypeString,
	eventlog.SettingInt:    kmsg.ConfigTypeInt,
	eventlog.SettingLong:   kmsg.ConfigTypeLong,
	eventlog.SettingList:   kmsg.ConfigTypeList,
	eventlog.SettingBool:   kmsg.ConfigTypeBoolean,
	eventlog.SettingDouble: kmsg.ConfigTypeDouble,
}

// topicConfigs are all settings of a topic.
func topicConfigs(t eventlog.Topic) []config {
	var all []config
	for _, setting := range eventlog.Settings {
		c := config{name: setting.Name, value: t.Setting(setting.Name), kind: configTypes[setting.Kind], doc: setting.Doc, source: kmsg.ConfigSourceDefaultConfig}
		byDefault := config{name: brokerNames[setting.Name], value: setting.Default, source: kmsg.ConfigSourceDefaultConfig}
		if _, set := t.Config[setting.Name]; set {
			c.source = kmsg.ConfigSourceDynamicTopicConfig
			c.synonyms = []config{{name: c.name, value: c.value, source: c.source}}
		}
		if byDefault.name != "" {
			c.synonyms = append(c.synonyms, byDefault)
		}
		all = append(all, c)
	}
	return all
}

// groupConfigs are all settings of a group; own are those that it has been given.
func groupConfigs(settings []group.Setting, own map[string]string) []config {
	var all []config
	number := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	for _, s := range settings {
		c := config{name: s.Name, value: number(s.Default), kind: kmsg.ConfigTypeInt, doc: s.Doc, source: kmsg.ConfigSourceDefaultConfig}
		if s.Default != s.Usual {
			c.source = kmsg.ConfigSourceStaticBrokerConfig
			c.synonyms = []config{{name: s.Broker, value: c.value, source: c.source}}
		}
		if value, set := own[s.Name]; set {
			c.value, c.source = value, kmsg.ConfigSourceGroupConfig
			c.synonyms = append([]config{{name: s.Name, value: value, source: c.source}}, c.synonyms...)
		}
		c.synonyms = append(c.synonyms, config{name: s.Broker, value: number(s.Usual), source: kmsg.ConfigSourceDefaultConfig})
		all = append(all, c)
	}
	return all
}

// brokerConfigs are the settings of this broker that clients ask for. They are set by flags, so
// clients cannot change them.
func (s *Server) brokerConfigs() []config {
	fixed := func(name, value string, kind kmsg.ConfigType, doc string) config {
		c := config{name: name, value: value, kind: kind, doc: doc, readOnly: true, source: kmsg.ConfigSourceStaticBrokerConfig}
		c.synonyms = []config{{name: name, value: value, source: c.source}}
		return c
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	all := []config{
		fixed("auto.create.topics.enable", strconv.FormatBool(!s.cfg.NoAutoCreate), kmsg.ConfigTypeBoolean, "If true, a client that asks for a topic that does not exist creates it."),
		fixed("connections.max.idle.ms", number(idleTimeout.Milliseconds()), kmsg.ConfigTypeLong, "A connection without requests for this long is closed."),
		fixed("connections.max.reauth.ms", number(s.cfg.LoginLasts.Milliseconds()), kmsg.ConfigTypeLong, "Clients that logged in must do so again within this time; 0: never."),
		fixed("default.replication.factor", "1", kmsg.ConfigTypeInt, "The store keeps the records safe."),
		fixed("fetch.max.bytes", number(fetchMax), kmsg.ConfigTypeInt, "The most bytes of records in the answer to one fetch request."),
		fixed("max.connections", number(int64(s.cfg.limits.Conns)), kmsg.ConfigTypeInt, "The most connections at the same time."),
		fixed("max.connections.per.ip", number(int64(s.cfg.limits.ConnsPerIP)), kmsg.ConfigTypeInt, "The most connections from one address at the same time."),
		fixed("node.id", number(int64(s.view().Self())), kmsg.ConfigTypeInt, "The id of this broker."),
		fixed("num.partitions", number(int64(s.cfg.Partitions)), kmsg.ConfigTypeInt, "Number of partitions of a topic if the request that creates it gives none."),
		fixed("socket.request.max.bytes", number(int64(s.cfg.limits.FrameBytes)), kmsg.ConfigTypeInt, "The most bytes of a produce request."),
	}
	for _, setting := range eventlog.Settings {
		if slices.Contains(topicsAlone, setting.Name) {
			continue
		}
		c := fixed(brokerNames[setting.Name], setting.Default, configTypes[setting.Kind], setting.Doc)
		c.source = kmsg.ConfigSourceDefaultConfig
		c.synonyms[0].source = c.source
		all = append(all, c)
	}
	return all
}
