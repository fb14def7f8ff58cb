package queue

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/claims"
)

// Schedule enqueues a message again and again: once at each tick of a cron expression, however many
// processes run.
type Schedule struct {
	Name string // 1 to 100 of a-z, A-Z, 0-9, '.', '_' and '-'
	// Cron says when: minute, hour, day of the month, month and day of the week, as in "30 8 * *
	// MON-FRI"; or @hourly, @daily, @weekly, @monthly, @yearly.
	Cron string
	// Zone is the IANA time zone in which Cron is read, as "Europe/Berlin". Default UTC.
	Zone string
	// Message is what is enqueued. It has neither Time, Delay nor At, and at most 64 KiB.
	// HeaderSchedule and HeaderTick are added to it.
	Message NewMessage
	// Paused: nothing is enqueued. Ticks that pass meanwhile are skipped.
	Paused bool
	// Next is the next tick; zero: there is none any more, or the schedule is paused. SetSchedule
	// does not read it.
	Next time.Time
	// Err, in a list, says why the schedule cannot be read: then other fields may be empty. Set the
	// schedule again, or delete it. SetSchedule does not read Err.
	Err error
}

// Headers of a message that a schedule enqueued.
const (
	HeaderSchedule = "weir.queue.schedule" // the schedule's name
	HeaderTick     = "weir.queue.tick"     // the tick's time, RFC 3339 in UTC
)

const (
	schedulePrefix = "queue/schedule/"
	// messagePrefix begins the keys of the schedules' messages. These have keys of their own
	// because every process lists all schedules each minute.
	messagePrefix = "queue/scheduled/"
	// schedulesMax bounds the schedules of a queue, and scheduleBytes the message of a schedule.
	schedulesMax    = 100
	scheduleBytes   = 64 << 10
	scheduleNameMax = 100
)

// schedulesOf begins the keys of a queue's schedules. id is definition.schedules, not the queue's
// id: a purge changes that.
func schedulesOf(id string) string { return schedulePrefix + id + "/" }

// messagesOf begins the keys of the messages of a queue's schedules.
func messagesOf(id string) string { return messagePrefix + id + "/" }

// messageKey is the key of a schedule's message. Whenever the message changes, the version of the
// schedule's own key changes, too.
func messageKey(key string) string { return messagePrefix + strings.TrimPrefix(key, schedulePrefix) }

// schedule is a Schedule as the store has it.
type schedule struct {
	Schedule
	queue  string
	next   claims.Time // the next tick; 0: none
	last   claims.Time // the tick of the last message; 0: there was none
	writer string      // the process that enqueued its last message or, if later, changed its ticks
	key    string
	now    eventlog.Version // the key's version
}

// The value of a schedule's key.
type storedSchedule struct {
	Queue  string      `json:"queue"`
	Cron   string      `json:"cron"`
	Zone   string      `json:"zone,omitempty"`
	Paused bool        `json:"paused,omitempty"`
	Next   claims.Time `json:"next,omitempty"`
	Last   claims.Time `json:"last,omitempty"`
	Writer string      `json:"writer"`
}

// The value of the key of a schedule's message.
type storedMessage struct {
	Key      []byte         `json:"key"` // null: none
	Value    []byte         `json:"value"`
	Headers  []storedHeader `json:"headers,omitempty"`
	Priority int            `json:"priority,omitempty"`
	Unique   string         `json:"unique,omitempty"`
}

type storedHeader struct {
	Key   string `json:"key"`
	Value []byte `json:"value"` // null: none
}

func (s schedule) value() []byte {
	return s.encode(storedSchedule{Queue: s.queue, Cron: s.Cron, Zone: s.Zone, Paused: s.Paused, Next: s.next, Last: s.last, Writer: s.writer})
}

func (s schedule) messageValue() []byte {
	m := storedMessage{Key: s.Message.Key, Value: s.Message.Value, Priority: s.Message.Priority, Unique: s.Message.Unique}
	for _, h := range s.Message.Headers {
		m.Headers = append(m.Headers, storedHeader{h.Key, h.Value})
	}
	return s.encode(m)
}

func (s schedule) encode(stored any) []byte {
	value, err := json.Marshal(stored)
	if err != nil {
		panic(fmt.Sprintf("queue %q: encode schedule %q: %v", s.queue, s.Name, err)) // JSON can encode all its fields
	}
	return value
}

// parseSchedule reads all of a schedule but its message.
func parseSchedule(kv eventlog.KeyValue) (s schedule, err error) {
	_, name, _ := strings.Cut(strings.TrimPrefix(kv.Key, schedulePrefix), "/")
	var stored storedSchedule
	if err := json.Unmarshal(kv.Value, &stored); err != nil {
		return schedule{Schedule: Schedule{Name: name}, key: kv.Key, now: kv.Version}, fmt.Errorf("%w: key %s: %w", errBroken, kv.Key, err)
	}
	s = schedule{
		Schedule: Schedule{Name: name, Cron: stored.Cron, Zone: stored.Zone, Paused: stored.Paused},
		queue:    stored.Queue, next: stored.Next, last: stored.Last, writer: stored.Writer, key: kv.Key, now: kv.Version,
	}
	if s.next > 0 && !s.Paused {
		s.Next = time.UnixMilli(int64(s.next)).UTC()
	}
	return s, nil
}

func parseMessage(kv eventlog.KeyValue) (m NewMessage, err error) {
	var stored storedMessage
	if err := json.Unmarshal(kv.Value, &stored); err != nil {
		return m, fmt.Errorf("%w: key %s: %w", errBroken, kv.Key, err)
	}
	m = NewMessage{Key: stored.Key, Value: stored.Value, Priority: stored.Priority, Unique: stored.Unique}
	for _, h := range stored.Headers {
		m.Headers = append(m.Headers, batch.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return m, nil
}

// errBroken: the value in the store is no schedule, or its message is missing.
var errBroken = errors.New("the schedule cannot be read; set it again, or delete it")

// readSchedule reads a schedule and its message: two trips. The version (now) is 0 if there is no
// schedule, and is set with errBroken, too. Whoever changes the schedule checks that version, so
// that schedule and message belong together.
func (qs *Queues) readSchedule(ctx context.Context, key string) (s schedule, err error) {
	for range changesMax {
		kv, err := qs.log.Get(ctx, key)
		if err != nil || kv.Version == 0 {
			return schedule{}, err
		}
		if s, err = parseSchedule(kv); err != nil {
			return s, err
		}
		if kv, err = qs.log.Get(ctx, messageKey(key)); err != nil {
			return s, err
		}
		if kv.Version > 0 { // at version 0 the schedule was deleted between the two reads
			s.Message, err = parseMessage(kv)
			return s, err
		}
	}
	return s, fmt.Errorf("%w: key %s does not exist", errBroken, messageKey(key))
}

// SetSchedule creates a schedule of the queue, durably, or replaces the one that has its name, and
// returns it with its next tick. Every process may call it when it starts. *eventlog.InvalidError
// if something in it is not allowed. The first tick is after now; but if Cron and Zone stay as they
// are, a tick that is due is not lost. It costs about six trips, and four if nothing changes.
func (q *Queue) SetSchedule(ctx context.Context, s Schedule) (Schedule, error) {
	fail := func(err error) (Schedule, error) {
		return Schedule{}, fmt.Errorf("set schedule %q of queue %q: %w", shorten(s.Name, 64), q.name, err)
	}
	s.Next, s.Err = time.Time{}, nil
	if err := checkScheduleName(s.Name); err != nil {
		return fail(err)
	}
	c, err := parseCron(s.Cron, s.Zone)
	if err != nil {
		return fail(err)
	}
	for range changesMax {
		set, err := q.setSchedule(ctx, s, c)
		if isStale(err) {
			continue
		}
		if err != nil {
			return fail(err)
		}
		q.owner.scheduler.ask()
		return set, nil
	}
	return fail(fmt.Errorf("%w: other changes of it came first, %d times", eventlog.ErrUnavailable, changesMax))
}

func (q *Queue) setSchedule(ctx context.Context, s Schedule, c cron) (Schedule, error) {
	if err := q.redefine(ctx); err != nil {
		return s, err
	}
	if err := q.checkScheduled(ctx, s.Message); err != nil {
		return s, err
	}
	// The clock's later bound: by the earlier bound, a tick that another process has enqueued
	// already may not be due yet.
	_, now, err := q.owner.clock.Now(ctx)
	if err != nil {
		return s, err
	}
	d := *q.def.Load()
	e := eventlog.Entry{Checks: []eventlog.Check{{Key: defKey(q.name), Version: d.version}}}
	var old schedule
	broken := false
	if d.schedules != "" {
		old, err = q.owner.readSchedule(ctx, schedulesOf(d.schedules)+s.Name)
		if broken = errors.Is(err, errBroken); err != nil && !broken {
			return s, err
		}
	}
	next := schedule{Schedule: s, queue: q.name, next: c.next(max(now, old.last)), last: old.last, writer: q.owner.process}
	if next.next == 0 {
		return s, &eventlog.InvalidError{What: "cron expression", Value: shorten(s.Cron, 64), Why: "it never matches: no such day exists"}
	}
	if old.now == 0 {
		// Each new schedule changes the definition, so that two processes cannot both create the
		// last one that is allowed.
		if err := q.mayAddSchedule(ctx, d); err != nil {
			return s, err
		}
		if d.schedules == "" {
			d.schedules = newID()
		}
		e.Puts = append(e.Puts, eventlog.Put{Key: defKey(q.name), Version: d.version.Next(), Value: d.value()})
	} else if old.Cron == s.Cron && old.Zone == s.Zone && !old.Paused && !s.Paused {
		next.next, next.writer = old.next, old.writer
	}
	next.key = schedulesOf(d.schedules) + s.Name
	value, message := next.value(), next.messageValue()
	set, err := parseSchedule(eventlog.KeyValue{Key: next.key, Version: old.now.Next(), Value: value})
	set.Message = s.Message
	if err != nil || old.now > 0 && !broken && bytes.Equal(value, old.value()) && bytes.Equal(message, old.messageValue()) {
		return set.Schedule, err
	}
	e.Checks = append(e.Checks, eventlog.Check{Key: next.key, Version: old.now})
	e.Puts = append(e.Puts, eventlog.Put{Key: next.key, Version: old.now.Next(), Value: value}, eventlog.Put{Key: messageKey(next.key), Version: 1, Value: message})
	was := any(nil)
	if old.now > 0 && !broken {
		was = old.shown()
	}
	if err := q.owner.tell(ctx, &e, audit.ScheduleSet, q.name+"/"+s.Name, was, next.shown()); err != nil {
		return s, err
	}
	if old.now == 0 {
		err = q.owner.define(ctx, q.name, e)
	} else {
		_, err = q.log.Append(ctx, e)
	}
	if err != nil {
		return s, err
	}
	return set.Schedule, nil
}

// shown is what the audit shows of a schedule.
func (s schedule) shown() any {
	return map[string]any{"cron": s.Cron, "timezone": s.Zone, "paused": s.Paused}
}

func (q *Queue) mayAddSchedule(ctx context.Context, d definition) error {
	if d.schedules == "" {
		return nil
	}
	had, err := q.log.List(ctx, schedulesOf(d.schedules), "", schedulesMax)
	if err == nil && len(had) >= schedulesMax {
		err = &eventlog.InvalidError{What: "number of schedules", Value: fmt.Sprint(len(had) + 1), Why: fmt.Sprintf("a queue has at most %d", schedulesMax)}
	}
	return err
}

// checkScheduled refuses a message that could not be enqueued at a tick.
func (q *Queue) checkScheduled(ctx context.Context, m NewMessage) error {
	size := len(m.Key) + len(m.Value) + len(m.Unique)
	for _, h := range m.Headers {
		size += len(h.Key) + len(h.Value)
	}
	if size > scheduleBytes {
		return fmt.Errorf("%w: key, value and headers have %d bytes; a message of a schedule may have at most %d", eventlog.ErrTooLarge, size, scheduleBytes)
	}
	if m.Delay != 0 || !m.At.IsZero() || !m.Time.IsZero() {
		return &eventlog.InvalidError{What: "message of a schedule", Value: "with a time", Why: "the schedule decides when it is enqueued; remove time, delay and at"}
	}
	if _, err := q.event(ctx, m, 0); err != nil {
		return err
	}
	return q.checkSize(ctx, ticked("", m, 0))
}

// Schedules lists the queue's schedules, by name: three trips, and two more for each whose message
// is missing. A schedule that cannot be read has an Err.
func (q *Queue) Schedules(ctx context.Context) (list []Schedule, err error) {
	if err := q.redefine(ctx); err != nil {
		return nil, err
	}
	id := q.def.Load().schedules
	if id == "" {
		return nil, nil
	}
	err = q.log.ListAll(ctx, schedulesOf(id), func(kv eventlog.KeyValue) error {
		s, err := parseSchedule(kv)
		s.Err = err
		list = append(list, s.Schedule)
		return nil
	})
	type message struct {
		NewMessage
		err error
	}
	messages := make(map[string]message)
	if err == nil && len(list) > 0 {
		err = q.log.ListAll(ctx, messagesOf(id), func(kv eventlog.KeyValue) error {
			m, err := parseMessage(kv)
			messages[strings.TrimPrefix(kv.Key, messagesOf(id))] = message{m, err}
			return nil
		})
	}
	has := list[:0]
	for _, s := range list {
		if m, there := messages[s.Name]; there {
			s.Message, s.Err = m.NewMessage, cmp.Or(s.Err, m.err)
		} else if err == nil && s.Err == nil { // the schedule was deleted between the two reads, or its message is missing
			var again schedule
			if again, err = q.owner.readSchedule(ctx, schedulesOf(id)+s.Name); errors.Is(err, errBroken) {
				again.Err, err = err, nil
			}
			if again.now == 0 {
				continue
			}
			s = again.Schedule
		}
		has = append(has, s)
	}
	if err != nil {
		return nil, fmt.Errorf("list the schedules of queue %q: %w", q.name, err)
	}
	return has, nil
}

// Schedule returns a schedule of the queue: three trips. ErrUnknownSchedule when there is none of
// that name.
func (q *Queue) Schedule(ctx context.Context, name string) (Schedule, error) {
	found, err := q.findSchedule(ctx, name)
	if err != nil {
		return Schedule{}, fmt.Errorf("schedule %q of queue %q: %w", shorten(name, 64), q.name, err)
	}
	return found.Schedule, nil
}

func (q *Queue) findSchedule(ctx context.Context, name string) (found schedule, err error) {
	if err := checkScheduleName(name); err != nil {
		return found, err
	}
	if err := q.redefine(ctx); err != nil {
		return found, err
	}
	id := q.def.Load().schedules
	if id == "" {
		return found, ErrUnknownSchedule
	}
	found, err = q.owner.readSchedule(ctx, schedulesOf(id)+name)
	if err == nil && found.now == 0 {
		err = ErrUnknownSchedule
	}
	return found, err
}

// DeleteSchedule ends a schedule: four trips. What it enqueued stays. ErrUnknownSchedule when there
// is none of that name.
func (q *Queue) DeleteSchedule(ctx context.Context, name string) error {
	fail := func(err error) error {
		return fmt.Errorf("delete schedule %q of queue %q: %w", shorten(name, 64), q.name, err)
	}
	for range changesMax {
		found, err := q.findSchedule(ctx, name)
		if err != nil && !errors.Is(err, errBroken) {
			return fail(err)
		}
		e := eventlog.Entry{
			Checks: []eventlog.Check{{Key: found.key, Version: found.now}, {Key: defKey(q.name), Version: q.def.Load().version}},
			Puts:   []eventlog.Put{{Key: found.key}, {Key: messageKey(found.key)}},
		}
		if err = q.owner.tell(ctx, &e, audit.ScheduleDelete, q.name+"/"+name, map[string]string{"schedule": name}, nil); err == nil {
			_, err = q.log.Append(ctx, e)
		}
		if isStale(err) {
			continue
		}
		if err != nil {
			return fail(err)
		}
		q.owner.scheduler.ask()
		return nil
	}
	return fail(fmt.Errorf("%w: other changes of it came first, %d times", eventlog.ErrUnavailable, changesMax))
}

func checkScheduleName(name string) error {
	if err := eventlog.CheckTopicName(name); err != nil || len(name) > scheduleNameMax {
		return &eventlog.InvalidError{What: "schedule name", Value: shorten(name, 64), Why: fmt.Sprintf("1 to %d of a-z, A-Z, 0-9, '.', '_' and '-' are allowed", scheduleNameMax)}
	}
	return nil
}
