package group

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/ledger"
	"github.com/weir-log/weir/use/table"
)

// The settings of a group that an administrator may change while weir runs, by Kafka's names
// (GroupConfig). They are for members of the consumer protocol, and stand above Config.
//
//	group/config/<group>   the settings, by name
const (
	SettingSession   = "consumer.session.timeout.ms"
	SettingHeartbeat = "consumer.heartbeat.interval.ms"

	configPrefix = "group/config/"
	// settingsMax bounds how many groups have settings. All are read with one store call.
	settingsMax = 1000
	// settingsFresh is how long a process may not know of a change. It takes at least as long
	// anyway until all members have sent a heartbeat, and hear of it.
	settingsFresh = consumerHeartbeat
)

// The bounds of settings are those of Kafka's brokers (group.consumer.min.session.timeout.ms and
// the like). Settings widens them to include the value that groups without the setting have.
const (
	consumerSessionMin, consumerSessionMax     = 45 * time.Second, 60 * time.Second
	consumerHeartbeatMin, consumerHeartbeatMax = 5 * time.Second, 15 * time.Second
)

// Setting is a setting that groups may have.
type Setting struct {
	Name, Broker string // Broker: the property of a broker of Kafka that has the default
	Default      time.Duration
	Usual        time.Duration // the default without Config
	Min, Max     time.Duration
	Doc          string
}

// Settings returns the settings that groups may have.
func (c *Coordinator) Settings() []Setting {
	bounded := func(s Setting) Setting {
		s.Min, s.Max = min(s.Min, s.Default), max(s.Max, s.Default)
		return s
	}
	return []Setting{
		bounded(Setting{
			Name: SettingHeartbeat, Broker: "group.consumer.heartbeat.interval.ms", Default: c.cfg.ConsumerHeartbeat, Usual: consumerHeartbeat, Min: consumerHeartbeatMin, Max: consumerHeartbeatMax,
			Doc: "How often a member of the consumer protocol sends a heartbeat.",
		}),
		bounded(Setting{
			Name: SettingSession, Broker: "group.consumer.session.timeout.ms", Default: c.cfg.ConsumerSession, Usual: consumerSession, Min: consumerSessionMin, Max: consumerSessionMax,
			Doc: "After so long without a heartbeat a member of the consumer protocol is evicted.",
		}),
	}
}

// checkSettings returns why a group cannot have these settings.
func (c *Coordinator) checkSettings(config map[string]string) error {
	settings := c.Settings()
	for _, name := range slices.Sorted(maps.Keys(config)) {
		i := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == name })
		if i < 0 {
			return &eventlog.InvalidError{What: "setting", Value: name, Why: "groups have no such setting; they have " + SettingHeartbeat + " and " + SettingSession}
		}
		s := settings[i]
		value, is := milliseconds(config[name])
		if !is || value < s.Min || value > s.Max {
			return &eventlog.InvalidError{What: name, Value: config[name], Why: fmt.Sprintf("must be a number of milliseconds from %d to %d", s.Min.Milliseconds(), s.Max.Milliseconds())}
		}
	}
	if session, heartbeat := c.timesOf(config); heartbeat >= session {
		return &eventlog.InvalidError{What: SettingHeartbeat, Value: config[SettingHeartbeat], Why: fmt.Sprintf("must be shorter than %s, which is %d", SettingSession, session.Milliseconds())}
	}
	return nil
}

func milliseconds(text string) (time.Duration, bool) {
	n, err := strconv.ParseInt(text, 10, 32)
	return time.Duration(n) * time.Millisecond, err == nil
}

// timesOf returns what settings mean for a group's members.
func (c *Coordinator) timesOf(config map[string]string) (session, heartbeat time.Duration) {
	session, heartbeat = c.cfg.ConsumerSession, c.cfg.ConsumerHeartbeat
	if own, is := milliseconds(config[SettingSession]); is {
		session = own
	}
	if own, is := milliseconds(config[SettingHeartbeat]); is {
		heartbeat = own
	}
	if heartbeat >= session { // each was set while the other had another value
		heartbeat = session / 3
	}
	return session, heartbeat
}

// newSettings is the table of what groups have been given: settings by name, of groups by name.
func newSettings(log *eventlog.Log, logger *slog.Logger) *table.Table[groupSettings, map[string]map[string]string] {
	return table.New(log, logger, nil, table.Rules[groupSettings, map[string]map[string]string]{
		Name: "settings of groups", Prefix: configPrefix, Max: settingsMax,
		Full: fmt.Errorf("%w: %d groups have settings, which is the limit; delete those of others first", ErrTooMany, settingsMax),
		Decode: func(key string, value []byte) (groupSettings, error) {
			return parseSettings(eventlog.KeyValue{Key: key, Value: value})
		},
		View:   byGroup,
		Repair: "the group has none; set them again",
	})
}

// groupSettings are what one group has been given.
type groupSettings struct {
	group  string
	config map[string]string
}

func byGroup(rows table.Rows[groupSettings]) map[string]map[string]string {
	all := make(map[string]map[string]string, len(rows))
	for _, r := range rows {
		if r.Err == nil {
			all[r.Value.group] = r.Value.config
		}
	}
	return all
}

// times returns the session time-out and the heartbeat interval of a group's members, as they were
// within settingsFresh. All groups cost a store call every settingsFresh.
func (c *Coordinator) times(ctx context.Context, group string) (session, heartbeat time.Duration, err error) {
	last, err := c.settings.Recent(ctx, settingsFresh)
	if err != nil {
		return 0, 0, fmt.Errorf("group %q: %w (%w)", group, ErrUnavailable, err)
	}
	session, heartbeat = c.timesOf(last.Value[group])
	return session, heartbeat, nil
}

// GroupConfigs reads the settings of all groups that have been given some: one store call.
func (c *Coordinator) GroupConfigs(ctx context.Context) (map[string]map[string]string, error) {
	rows, err := c.settings.Read(ctx)
	return byGroup(rows), err
}

// GroupConfig reads the settings that a group has been given: one store call.
func (c *Coordinator) GroupConfig(ctx context.Context, group string) (map[string]string, error) {
	kv, err := c.log.Get(ctx, configKey(group))
	if err != nil || kv.Version == 0 {
		return nil, err
	}
	s, err := parseSettings(kv)
	return s.config, err
}

// ChangeGroupConfig changes the settings of a group, durably; the group need not exist, as in
// Kafka. Processes obey them within settingsFresh. With try it only returns what the change would
// return, as far as that can be known. It costs a few store calls.
//
// eventlog.ErrUnsure: the change may have been made.
func (c *Coordinator) ChangeGroupConfig(ctx context.Context, group string, change func(config map[string]string) error, try bool) error {
	if group == "" || len(group) > nameMax {
		return fmt.Errorf("%w: it has %d bytes, 1 to %d are allowed", ErrInvalidGroup, len(group), nameMax)
	}
	edit := table.Edit[groupSettings]{Key: configKey(group), What: fmt.Sprintf("change the settings of group %q", group), Decide: func(old table.Row[groupSettings]) ([]byte, error) {
		next := maps.Clone(old.Value.config)
		if next == nil {
			next = make(map[string]string)
		}
		if err := change(next); err != nil {
			return nil, err
		}
		if old.Err == nil && maps.Equal(next, old.Value.config) {
			return nil, ledger.ErrUnchanged
		}
		return encodeConfig(next), c.checkSettings(next)
	}}
	if try {
		return c.settings.Try(ctx, edit)[0]
	}
	return c.settings.Edit(ctx, edit)[0]
}

func configKey(group string) string { return configPrefix + url.PathEscape(group) }

// encodeConfig is nil, which deletes the key, for no settings.
func encodeConfig(config map[string]string) []byte {
	if len(config) == 0 {
		return nil
	}
	value, err := json.Marshal(config)
	if err != nil {
		panic(fmt.Sprintf("encode the settings %v: %v", config, err)) // strings
	}
	return value
}

func parseSettings(kv eventlog.KeyValue) (s groupSettings, err error) {
	if s.group, err = url.PathUnescape(strings.TrimPrefix(kv.Key, configPrefix)); err == nil {
		err = json.Unmarshal(kv.Value, &s.config)
	}
	if err != nil {
		return groupSettings{}, fmt.Errorf("key %s holds %.100q: %w", kv.Key, kv.Value, err)
	}
	return s, nil
}
