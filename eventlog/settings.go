package eventlog

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Setting is one of the settings that a topic may have, by Kafka's name and with Kafka's meaning and default.
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
)

// InvalidError says what a caller asked for that is not allowed, and why.
type InvalidError struct {
	What, Value, Why string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("invalid %s %q: %s", e.What, e.Value, e.Why)
}

// Settings are all settings of topics. Names, defaults and ranges are those of Apache Kafka 4.2 (TopicConfig).
var Settings = []Setting{
	{"cleanup.policy", "delete", SettingList, "What becomes of old records: delete removes them after retention.ms or beyond retention.bytes.", oneOf("delete")},
	{"compression.type", "producer", SettingString, "How batches are kept: as the producer compressed them (producer), or compressed anew with the codec named here.",
		oneOf("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")},
	{"max.message.bytes", "1048588", SettingInt, "Largest record batch accepted, in bytes, as it is sent.", within(0, math.MaxInt32)},
	{"message.timestamp.type", "CreateTime", SettingString, "Whether a record's timestamp is its producer's (CreateTime) or that of its append (LogAppendTime).", oneOf("CreateTime", "LogAppendTime")},
	{"retention.bytes", "-1", SettingLong, "How many bytes a partition keeps, at least, before its oldest batches go; -1 for no bound.", within(-1, math.MaxInt64)},
	{"retention.ms", "604800000", SettingLong, "How long records are kept, in milliseconds; -1 for ever.", within(-1, math.MaxInt64)},
}

// FindSetting returns the setting of that name.
func FindSetting(name string) (Setting, bool) {
	i := slices.IndexFunc(Settings, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		return Setting{}, false
	}
	return Settings[i], true
}

// CheckConfig says whether all settings are known and their values allowed.
func CheckConfig(config map[string]string) error {
	for name, value := range config {
		s, ok := FindSetting(name)
		if !ok {
			return &InvalidError{What: "setting", Value: name, Why: "no topic has such a setting; there are " + settingNames()}
		}
		if err := s.allow(value); err != nil {
			return &InvalidError{What: name, Value: value, Why: err.Error()}
		}
	}
	return nil
}

func settingNames() string {
	var names []string
	for _, s := range Settings {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

func oneOf(allowed ...string) func(string) error {
	return func(v string) error {
		if slices.Contains(allowed, v) {
			return nil
		}
		return fmt.Errorf("allowed: %s", strings.Join(allowed, ", "))
	}
}

func within(least, most int64) func(string) error {
	return func(v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < least || n > most {
			return fmt.Errorf("a whole number from %d to %d is needed", least, most)
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

// Retention returns how long and how much the topic keeps of each partition; negative: without bound.
func (t Topic) Retention() (age time.Duration, bytes int64) {
	ms := t.number("retention.ms")
	if ms < 0 || ms > int64(math.MaxInt64/time.Millisecond) {
		return -1, t.number("retention.bytes")
	}
	return time.Duration(ms) * time.Millisecond, t.number("retention.bytes")
}

// MaxMessageBytes is the largest record batch that the topic accepts.
func (t Topic) MaxMessageBytes() int { return int(t.number("max.message.bytes")) }

// CompressionType is how batches are kept; "producer" means as they came.
func (t Topic) CompressionType() string { return t.Setting("compression.type") }

// AppendTime reports whether records get the time of their append as their timestamp.
func (t Topic) AppendTime() bool { return t.Setting("message.timestamp.type") == "LogAppendTime" }

func (t Topic) number(name string) int64 {
	n, err := strconv.ParseInt(t.Setting(name), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("topic %q: %s was checked and is %q", t.Name, name, t.Setting(name)))
	}
	return n
}

// topicNameMax is Kafka's bound on a topic's name.
const topicNameMax = 249

// CheckTopicName holds a name to Kafka's rule: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-', but not "." or "..".
func CheckTopicName(name string) error {
	invalid := func(why string) error { return &InvalidError{What: "topic name", Value: shorten(name), Why: why} }
	switch {
	case name == "":
		return invalid("it is empty")
	case name == "." || name == "..":
		return invalid("it is reserved")
	case len(name) > topicNameMax:
		return invalid(fmt.Sprintf("it has %d bytes, the limit is %d", len(name), topicNameMax))
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
