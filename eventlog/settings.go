package eventlog

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog/batch"
)

// Setting is one of the settings that a topic may have: by Kafka's name, with Kafka's meaning and
// default, or weir's own.
type Setting struct {
	Name    string
	Default string
	Kind    SettingKind
	Doc     string
	allow   func(string) error
}

// SettingKind is the type of a setting's value.
type SettingKind int

// The kinds of settings.
const (
	SettingString SettingKind = iota
	SettingInt                // 32 bits
	SettingLong               // 64 bits
	SettingList               // comma separated
	SettingBool
	SettingDouble
)

// InvalidError reports a value that is not allowed, and why.
type InvalidError struct {
	What, Value, Why string
}

// As lets errors.As find an InvalidError as a type of another package with the same fields: the Go
// library has such a type of its own.
func (e *InvalidError) As(target any) bool {
	to := reflect.ValueOf(target).Elem()
	is := to.Kind() == reflect.Pointer && reflect.TypeOf(e).ConvertibleTo(to.Type())
	if is {
		to.Set(reflect.ValueOf(e).Convert(to.Type()))
	}
	return is
}

func (e *InvalidError) Error() string {
	if e.Value == "" { // there is none to show
		return fmt.Sprintf("invalid %s: %s", e.What, e.Why)
	}
	return fmt.Sprintf("invalid %s %q: %s", e.What, e.Value, e.Why)
}

// Settings are all settings of topics. Names, defaults and ranges are those of Apache Kafka 4.4
// (LogConfig), but for names that begin with "weir.". Kafka's settings for tiered storage that are
// not here, max.decompressed.message.bytes and those for dead letters of share groups are refused.
var Settings = []Setting{
	{"cleanup.policy", "delete", SettingList, "What happens to old records: delete removes them after retention.ms or beyond retention.bytes; compact removes records that have a newer record with the same key; compact,delete does both.", policies},
	{"compression.type", "producer", SettingString, "How batches are stored: as the producer compressed them (producer), or recompressed with the codec named here.",
		oneOf("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")},
	{"max.message.bytes", "1048588", SettingInt, "Largest record batch, in bytes: as sent, and as stored if compression.type changes it.", within(0, math.MaxInt32)},
	{"message.timestamp.type", "CreateTime", SettingString, "Whether a record has the timestamp of its producer (CreateTime) or of its append (LogAppendTime).", oneOf("CreateTime", "LogAppendTime")},
	{"retention.bytes", "-1", SettingLong, "How many bytes a partition keeps at least; older batches are deleted. -1: no limit.", within(-1, math.MaxInt64)},
	{"retention.ms", "604800000", SettingLong, "How long records are kept, in milliseconds. -1: forever.", within(-1, math.MaxInt64)},

	// weir's own.
	{"weir.linger.bytes", "1048576", SettingLong, "With weir.linger.ms: when so many bytes of the topic wait, they are written at once.", within(1, math.MaxInt64)},
	{"weir.linger.ms", "0", SettingLong, "The longest time that records wait to be written and acknowledged together, in milliseconds. An earlier write of any topic takes them along. 0: no wait. A client's request time-out must be longer.", within(0, lingerMax)},

	// Most of these are for Kafka's own files and replicas, and change nothing here; tools set
	// them. A value is refused if it asks for what weir does not do, such as remote storage.
	{"compression.gzip.level", "-1", SettingInt, idle + "weir recompresses batches at one fixed level.", within(-1, 9)},
	{"compression.lz4.level", "9", SettingInt, idle + "weir recompresses batches at one fixed level.", within(1, 17)},
	{"compression.zstd.level", "3", SettingInt, idle + "weir recompresses batches at one fixed level.", within(-131072, 22)},
	{"delete.retention.ms", "86400000", SettingLong, "How long a compacted topic keeps tombstones (records without a value) after a pass has found them, in milliseconds.", within(0, math.MaxInt64)},
	{"file.delete.delay.ms", "60000", SettingLong, idle + "the store decides when it deletes.", within(0, math.MaxInt64)},
	{"flush.messages", "9223372036854775807", SettingLong, idle + "every record is on disk before it is acknowledged.", within(1, math.MaxInt64)},
	{"flush.ms", "9223372036854775807", SettingLong, idle + "every record is on disk before it is acknowledged.", within(0, math.MaxInt64)},
	{"index.interval.bytes", "4096", SettingInt, idle + "the store keeps its own index.", within(0, math.MaxInt32)},
	{"follower.replication.throttled.replicas", "", SettingList, idle + "weir copies to no replicas.", anything},
	{"leader.replication.throttled.replicas", "", SettingList, idle + "weir copies to no replicas.", anything},
	{"local.retention.bytes", "-2", SettingLong, idle + "there is no remote storage.", within(-2, math.MaxInt64)},
	{"local.retention.ms", "-2", SettingLong, idle + "there is no remote storage.", within(-2, math.MaxInt64)},
	{"max.compaction.lag.ms", "9223372036854775807", SettingLong, "After this time, in milliseconds, records are compacted even below min.cleanable.dirty.ratio.", within(1, math.MaxInt64)},
	{"message.timestamp.after.max.ms", "9223372036854775807", SettingLong, idle + "any time up to the year 9999 is accepted.", within(0, math.MaxInt64)},
	{"message.timestamp.before.max.ms", "9223372036854775807", SettingLong, idle + "any time is accepted.", within(0, math.MaxInt64)},
	{"min.cleanable.dirty.ratio", "0.5", SettingDouble, "Compaction begins when this share of a partition's bytes was not compacted yet.", ratio},
	{"min.compaction.lag.ms", "0", SettingLong, "How old a record must be before it is compacted, in milliseconds.", within(0, math.MaxInt64)},
	{"min.insync.replicas", "1", SettingInt, idle + "every record is in the store before it is acknowledged; the store may have replicas.", within(1, math.MaxInt32)},
	{"preallocate", "false", SettingBool, idle + "the store allocates its own space.", oneOf("true", "false")},
	{"remote.storage.enable", "false", SettingBool, "Whether old records are moved to remote storage. There is none.", oneOf("false")},
	{"segment.bytes", "1073741824", SettingInt, idle + "the store divides the log into segments in its own way.", within(1<<20, math.MaxInt32)},
	{"segment.index.bytes", "10485760", SettingInt, idle + "the store keeps its own index.", within(4, math.MaxInt32)},
	{"segment.jitter.ms", "0", SettingLong, idle + "the store divides the log into segments in its own way.", within(0, math.MaxInt64)},
	{"segment.ms", "604800000", SettingLong, idle + "the store divides the log into segments in its own way.", within(1, math.MaxInt64)},
	{"unclean.leader.election.enable", "false", SettingBool, "Whether a replica that missed records may become the leader. In weir none does.", oneOf("false")},
}

// lingerMax is below the times after which clients give a request up: 10 s for weir's tools, sarama
// and franz-go, 30 s for the Java client (request.timeout.ms).
const lingerMax = 5_000

// idle begins the description of a setting that is stored and listed but changes nothing.
const idle = "Changes nothing: "

// FindSetting returns the setting of that name.
func FindSetting(name string) (Setting, bool) {
	i := slices.IndexFunc(Settings, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		return Setting{}, false
	}
	return Settings[i], true
}

// SettingBytesMax is the longest value of a setting, in bytes. As in Apache Kafka 4.3
// (Short.MAX_VALUE in ConfigurationControlManager).
const SettingBytesMax = 1<<15 - 1

// CheckSettingLength returns an error for a value longer than SettingBytesMax.
func CheckSettingLength(name, value string) error {
	if len(value) > SettingBytesMax {
		return &InvalidError{What: shorten(name), Value: shorten(value), Why: fmt.Sprintf("it has %d bytes, the limit is %d; set a shorter value", len(value), SettingBytesMax)}
	}
	return nil
}

// CheckConfig returns an error for an unknown setting or a value that is not allowed.
func CheckConfig(config map[string]string) error {
	for name, value := range config {
		s, ok := FindSetting(name)
		if !ok {
			return &InvalidError{What: "setting", Value: shorten(name), Why: "topics have no such setting; `weir topic describe --all` lists the settings"}
		}
		if err := CheckSettingLength(name, value); err != nil {
			return err
		}
		if err := s.allow(value); err != nil {
			return &InvalidError{What: name, Value: shorten(value), Why: err.Error()}
		}
	}
	return nil
}

func oneOf(allowed ...string) func(string) error {
	return func(v string) error {
		if slices.Contains(allowed, v) {
			return nil
		}
		return fmt.Errorf("allowed: %s", strings.Join(allowed, ", "))
	}
}

func policies(v string) error {
	for _, one := range strings.Split(v, ",") {
		if one != "compact" && one != "delete" {
			return errors.New("allowed: compact, delete, or both, separated by a comma")
		}
	}
	return nil
}

func anything(string) error { return nil }

func ratio(v string) error {
	if f, err := strconv.ParseFloat(v, 64); err != nil || !(f >= 0 && f <= 1) {
		return errors.New("it must be a number from 0 to 1")
	}
	return nil
}

func within(least, most int64) func(string) error {
	return func(v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < least || n > most {
			return fmt.Errorf("it must be a whole number from %d to %d", least, most)
		}
		return nil
	}
}

// Setting returns what was set for the topic, or the default.
func (t Topic) Setting(name string) string {
	if v, ok := t.Config[name]; ok {
		return v
	}
	s, ok := FindSetting(name)
	if !ok {
		panic(fmt.Sprintf("no topic has a setting %q", name))
	}
	return s.Default
}

// Retention returns how long and how much the topic keeps of each partition; negative: without
// bound.
func (t Topic) Retention() (age time.Duration, bytes int64) {
	if !t.has("delete") {
		return -1, -1
	}
	ms := t.number("retention.ms")
	if ms < 0 || ms > int64(math.MaxInt64/time.Millisecond) {
		return -1, t.number("retention.bytes")
	}
	return time.Duration(ms) * time.Millisecond, t.number("retention.bytes")
}

// Compacted reports whether old records of a key are removed once there is a newer one. Then every
// new record needs a key.
func (t Topic) Compacted() bool { return t.has("compact") }

// Deletes reports whether records are deleted by age and size, and whether clients may delete
// records: false if the topic is only Compacted.
func (t Topic) Deletes() bool { return t.has("delete") }

func (t Topic) has(policy string) bool {
	return slices.Contains(strings.Split(t.Setting("cleanup.policy"), ","), policy)
}

func (t Topic) dirtyRatio() float64 {
	f, err := strconv.ParseFloat(t.Setting("min.cleanable.dirty.ratio"), 64)
	if err != nil {
		panic(fmt.Sprintf("topic %q: min.cleanable.dirty.ratio was checked and is %q", t.Name, t.Setting("min.cleanable.dirty.ratio")))
	}
	return f
}

// CheckKey refuses a record without a key for a compacted topic, as Kafka does.
func (t Topic) CheckKey(rec *batch.Record) error {
	if rec.Key == nil && t.Compacted() {
		return &InvalidError{What: "record", Why: fmt.Sprintf("it has no key. Topic %q is compacted (cleanup.policy), so every record needs one", t.Name)}
	}
	return nil
}

// MaxMessageBytes is the largest record batch that the topic accepts.
func (t Topic) MaxMessageBytes() int { return int(t.number("max.message.bytes")) }

// CompressionType is how batches are stored; "producer" means as they were sent.
func (t Topic) CompressionType() string { return t.Setting("compression.type") }

// Codec is the codec that compression.type requires; false if that is the producer's choice.
func (t Topic) Codec() (batch.Codec, bool) {
	switch t.CompressionType() {
	case "uncompressed":
		return batch.None, true
	case "gzip":
		return batch.Gzip, true
	case "snappy":
		return batch.Snappy, true
	case "lz4":
		return batch.LZ4, true
	case "zstd":
		return batch.Zstd, true
	default:
		return batch.None, false
	}
}

// AppendTime reports whether records get the time of their append as their timestamp.
func (t Topic) AppendTime() bool { return t.Setting("message.timestamp.type") == "LogAppendTime" }

func (t Topic) number(name string) int64 {
	n, err := strconv.ParseInt(t.Setting(name), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("topic %q: %s was checked and is %q", t.Name, name, t.Setting(name)))
	}
	return n
}

// TopicNameMax is Kafka's bound on a topic's name.
const TopicNameMax = 249 // bytes

// OffsetsTopic is where Kafka keeps committed offsets. weir keeps them as keys, so here the topic
// is empty.
const OffsetsTopic = "__consumer_offsets"

// AuditTopic is where use/audit records who changed what (TopicAudit).
const AuditTopic = "weir.audit"

// InternalTopic reports whether a topic is weir's own: clients may read it, and not publish to it.
// Names that begin with __weir_ are reserved.
func InternalTopic(name string) bool {
	return name == OffsetsTopic || strings.HasPrefix(name, reservedPrefix)
}

const reservedPrefix = "__weir_"

// checkReserved refuses to create, change or delete a topic with a reserved name: __weir_later, for
// example, holds the delayed messages of all queues.
func checkReserved(name string) error {
	if strings.HasPrefix(name, reservedPrefix) {
		return &InvalidError{What: "topic name", Value: shorten(name), Why: "names that begin with " + reservedPrefix + " belong to weir: clients may read such a topic, but not create, change or delete it"}
	}
	return nil
}

// CheckTopicName applies Kafka's rule: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-',
// but not "." or "..".
func CheckTopicName(name string) error {
	invalid := func(why string) error { return &InvalidError{What: "topic name", Value: shorten(name), Why: why} }
	switch {
	case name == "":
		return invalid("it is empty")
	case name == "." || name == "..":
		return invalid("it is reserved")
	case len(name) > TopicNameMax:
		return invalid(fmt.Sprintf("it has %d bytes, the limit is %d", len(name), TopicNameMax))
	}
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-' {
			return invalid(fmt.Sprintf("it contains %q; allowed are a-z, A-Z, 0-9, '.', '_' and '-'", r))
		}
	}
	return nil
}

func shorten(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
