package main

import (
	"maps"
	"slices"
	"strings"
)

// kafkaFlags are the properties of a broker of Kafka that weir serve has as flags.
var kafkaFlags = map[string]func(value string) []string{
	"auto.create.topics.enable": func(value string) []string {
		return []string{map[string]string{"true": "--auto-create", "false": "--no-auto-create"}[value]}
	},
	"num.partitions":                       func(value string) []string { return []string{"--partitions=" + value} },
	"group.consumer.heartbeat.interval.ms": milliseconds("--group-consumer-heartbeat-interval"),
	"group.consumer.session.timeout.ms":    milliseconds("--group-consumer-session-timeout"),
	"group.initial.rebalance.delay.ms":     milliseconds("--group-initial-rebalance-delay"),
	"group.max.session.timeout.ms":         milliseconds("--group-max-session-timeout"),
	"group.max.size":                       func(value string) []string { return []string{"--group-max-size=" + value} },
	"group.consumer.max.size":              func(value string) []string { return []string{"--group-max-size=" + value} },
	"group.min.session.timeout.ms":         milliseconds("--group-min-session-timeout"),
	"broker.rack":                          func(value string) []string { return []string{"--rack=" + value} },
}

func milliseconds(flag string) func(value string) []string {
	return func(value string) []string { return []string{flag + "=" + value + "ms"} }
}

// kafkaNoMatter are the properties of which weir has no counterpart, and that say only how a broker
// of Kafka works inside: how it keeps its own topics, elects leaders, replicates, shuts down and
// deletes files, and how soon it does so. A test sets them to be fast, not to see their effect.
var kafkaNoMatter = []string{
	"auto.leader.rebalance.enable",
	"broker.heartbeat.interval.ms",
	"broker.session.timeout.ms",
	"controlled.shutdown.enable",
	"default.replication.factor",
	"file.delete.delay.ms",
	"group.consumer.assignment.interval.ms",
	"group.consumer.min.heartbeat.interval.ms",
	"group.coordinator.append.linger.ms",
	"group.coordinator.rebalance.protocols",
	"group.streams.assignment.interval.ms",
	"group.streams.heartbeat.interval.ms",
	"group.streams.initial.rebalance.delay.ms",
	"group.streams.min.heartbeat.interval.ms",
	"group.streams.min.session.timeout.ms",
	"group.streams.num.standby.replicas",
	"group.streams.session.timeout.ms",
	"log.cleaner.backoff.ms",
	"log.cleaner.dedupe.buffer.size",
	"log.cleaner.enable",
	"log.initial.task.delay.ms",
	"log.retention.check.interval.ms",
	"log.retention.ms",
	"log.segment.delete.delay.ms",
	"log.unclean.leader.election.enable",
	"offsets.topic.num.partitions",
	"offsets.topic.replication.factor",
	"replica.fetch.max.bytes",
	"replica.lag.time.max.ms",
	"sasl.enabled.mechanisms",
	"sasl.mechanism.inter.broker.protocol",
	"transaction.max.timeout.ms",
	"transaction.state.log.min.isr",
	"transaction.state.log.num.partitions",
	"transaction.state.log.replication.factor",
	"unclean.leader.election.enable",
	"unclean.leader.election.interval.ms",
}

// kafkaSame are properties with the value that weir always has.
var kafkaSame = map[string]string{
	"delete.topic.enable":                "true",
	"log.message.timestamp.after.max.ms": "9223372036854775807",
	"log.retention.bytes":                "-1",
}

// kafkaAside are properties that a class sets for all its cases, although they matter only to those
// that kafkaNeeds names.
var kafkaAside = map[string][]string{
	"clients.producer.ProducerFailureHandlingTest": {"message.max.bytes"},
}

// translate returns the flags of each broker, or what weir lacks for such a cluster. A name with a
// space in it is none: one class gives a property's description for its name.
func translate(class string, q question) (flags [][]string, lacks string) {
	if q.Security != "PLAINTEXT" && q.Security != saslPlaintext {
		return nil, "a listener with " + q.Security
	}
	for _, name := range slices.Sorted(maps.Keys(q.Features)) {
		return nil, "the feature level " + name + "=" + q.Features[name]
	}
	for n := range q.Brokers {
		properties := maps.Clone(q.Properties)
		if properties == nil {
			properties = map[string]string{}
		}
		maps.Copy(properties, q.PerBroker[n])
		var args []string
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			value := properties[name]
			switch flag := kafkaFlags[name]; {
			case flag != nil:
				args = append(args, flag(value)...)
			case slices.Contains(kafkaNoMatter, name), slices.Contains(kafkaAside[class], name), strings.Contains(name, " "), kafkaSame[name] == value && value != "":
			default:
				return nil, "the broker's property " + name + "=" + value
			}
		}
		flags = append(flags, args)
	}
	return flags, ""
}
