package inbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/recovered"
	"github.com/weir-log/weir/use/keys"
	"github.com/weir-log/weir/use/publish"
)

const (
	rowsMax  = 1000    // of a chunk
	bytesMax = 4 << 20 // of a chunk, unless its first row is larger

	// The inbox is read every pollMin while rows come, and ever more rarely down to every pollMax when none do.
	pollMin, pollMax = 5 * time.Millisecond, 200 * time.Millisecond
	// failurePause is the longest pause after a failure.
	failurePause = 5 * time.Second
)

// Mover publishes the rows of an inbox. Any number of processes may run one on the same inbox.
type Mover struct {
	door      *Door
	log       *eventlog.Log
	publisher *publish.Publisher
	logger    *slog.Logger

	moved  moved // as last read or put
	known  bool  // moved is known, and its rows are deleted
	single int   // how many more chunks have one row, because one of that many rows was refused
}

// moved is the value of the key: the rows of the last chunk that was published.
type moved struct {
	IDs []int64 `json:"ids"`

	version eventlog.Version
}

// row is a row of weir_inbox.
type row struct {
	id    int64
	event publish.Event
	wrong error // why it cannot be published
}

// NewMover returns the mover of a door.
func NewMover(log *eventlog.Log, door *Door, publisher *publish.Publisher, logger *slog.Logger) *Mover {
	return &Mover{door: door, log: log, publisher: publisher, logger: logger}
}

// Run moves rows until ctx ends.
func (m *Mover) Run(ctx context.Context) error {
	pause, failures := pollMin, 0
	for ctx.Err() == nil {
		rows := 0
		err := recovered.Do(func() (err error) {
			rows, err = m.step(ctx)
			return err
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, eventlog.ErrStale): // another mover published first
			m.known, pause = false, pollMin
		case err != nil:
			m.known = false
			if failures++; failures == 1 {
				m.logger.Warn("events published by SQL cannot be moved into the log; they stay in weir_inbox; trying again", "err", err)
			}
			pause = min(pollMax<<min(failures, 10), failurePause)
		case rows > 0:
			pause, failures = pollMin, 0
			if rows == rowsMax || m.single > 0 {
				continue
			}
		default:
			pause, failures = min(2*pause, pollMax), 0
		}
		select {
		case <-ctx.Done():
		case <-m.door.woken:
			pause = pollMin
		case <-time.After(pause):
		}
	}
	return nil
}

// step moves one chunk of rows, and returns how many rows it has.
func (m *Mover) step(ctx context.Context) (int, error) {
	if !m.known {
		if err := m.catchUp(ctx); err != nil {
			return 0, err
		}
	}
	chunk, err := m.read(ctx)
	if err != nil || len(chunk) == 0 {
		return 0, err
	}
	for _, r := range chunk {
		if r.wrong != nil {
			return 1, m.refuse(ctx, r, r.wrong)
		}
	}
	err = m.publish(ctx, chunk)
	if len(chunk) == 1 && refused(err) { // perhaps by what this process knows of the topic, which another one has changed
		if err := m.log.RefreshTopics(ctx); err != nil {
			return 0, err
		}
		err = m.publish(ctx, chunk)
	}
	switch {
	case !refused(err):
		return len(chunk), err
	case len(chunk) == 1:
		return 1, m.refuse(ctx, chunk[0], err)
	default: // the rows one by one, until the refused one has been found
		m.single = len(chunk)
		return rowsMax, nil
	}
}

// refused reports whether an event can never be published.
func refused(err error) bool {
	var invalid *eventlog.InvalidError
	return errors.As(err, &invalid) || errors.Is(err, eventlog.ErrUnknownTopic) || errors.Is(err, eventlog.ErrTooLarge)
}

func (m *Mover) refuse(ctx context.Context, r row, why error) error {
	m.logger.Error("an event published by SQL can never be moved into the log; it is kept in weir_inbox_refused", "id", r.id, "topic", r.event.Topic, "err", why)
	return m.door.refuse(ctx, r.id, why.Error())
}

// catchUp reads which rows were published last, and deletes them.
func (m *Mover) catchUp(ctx context.Context) error {
	kv, err := m.log.Get(ctx, m.key())
	if err != nil {
		return err
	}
	m.moved = moved{version: kv.Version}
	if kv.Version == 0 {
		m.known = true
		return nil
	}
	if err := json.Unmarshal(kv.Value, &m.moved); err != nil {
		return fmt.Errorf("key %s does not hold the ids of rows: %w; restore a backup", kv.Key, err)
	}
	return m.remove(ctx)
}

// remove deletes the rows that were published last.
func (m *Mover) remove(ctx context.Context) error {
	if err := m.door.remove(ctx, m.moved.IDs); err != nil {
		return err
	}
	m.known = true
	return nil
}

func (m *Mover) key() string { return keys.InboxPrefix + m.door.name }

// errFull ends a read when the chunk is full.
var errFull = errors.New("the chunk is full")

// read returns the next rows.
func (m *Mover) read(ctx context.Context) (chunk []row, err error) {
	most, size := rowsMax, 0
	if m.single > 0 {
		most = 1
	}
	err = m.door.query(ctx, func(columns []any) error {
		size += len(bytesOf(columns[3])) + len(bytesOf(columns[4])) + len(bytesOf(columns[5]))
		if len(chunk) == most || len(chunk) > 0 && size > bytesMax {
			return errFull
		}
		chunk = append(chunk, rowOf(columns))
		return nil
	}, fmt.Sprintf("SELECT %s FROM %s ORDER BY id LIMIT %d", columns, m.door.table("weir_inbox"), rowsMax))
	if errors.Is(err, errFull) {
		err = nil
	}
	if m.single > 0 {
		m.single--
	}
	return chunk, err
}

// publish publishes a chunk, exactly once, and deletes its rows.
func (m *Mover) publish(ctx context.Context, chunk []row) error {
	events, next := make([]publish.Event, len(chunk)), moved{version: m.moved.version.Next()}
	for i, r := range chunk {
		events[i], next.IDs = r.event, append(next.IDs, r.id)
	}
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	err = m.publisher.PublishWith(ctx, func(ctx context.Context, batches []eventlog.Batch, _ []publish.Within) error {
		_, err := m.log.Append(ctx, eventlog.Entry{
			Batches: batches,
			Checks:  []eventlog.Check{{Key: m.key(), Version: m.moved.version}},
			Puts:    []eventlog.Put{{Key: m.key(), Version: next.version, Value: value}},
		})
		return err
	}, events...)
	if err != nil {
		m.known = m.known && refused(err) // after an unknown outcome the key tells
		return err
	}
	m.moved, m.known = next, false
	return m.remove(ctx)
}

// rowOf reads a row. Its bytes are its own.
func rowOf(columns []any) row {
	r := row{id: columns[0].(int64), event: publish.Event{Topic: text(columns[1]), Key: bytesOf(columns[3]), Value: bytesOf(columns[4]), Time: time.UnixMilli(columns[7].(int64))}}
	if id := text(columns[2]); id != "" {
		r.event.TopicID, r.wrong = eventlog.ParseTopicID(id)
	}
	if n, is := columns[6].(int64); is {
		number := int32(n)
		r.event.Partition = &number
		if int64(number) != n {
			r.wrong = &eventlog.InvalidError{What: "partition", Value: fmt.Sprint(n), Why: "it is not a 32-bit number"}
		}
	}
	if headers := bytesOf(columns[5]); headers != nil && r.wrong == nil {
		r.event.Headers, r.wrong = headersOf(headers)
	}
	return r
}

// bytesOf returns a column's bytes; nil: it is NULL.
func bytesOf(column any) []byte {
	switch v := column.(type) {
	case []byte:
		if v == nil {
			return []byte{}
		}
		return v
	case string:
		return []byte(v)
	}
	return nil
}

// headersOf reads a JSON object, in its order: strings, null, and of anything else its JSON.
func headersOf(object []byte) (headers []batch.RecordHeader, err error) {
	invalid := func(err error) error {
		return &eventlog.InvalidError{What: "headers", Value: fmt.Sprintf("%.100q", object), Why: fmt.Sprintf("it is not a JSON object: %v", err)}
	}
	d := json.NewDecoder(bytes.NewReader(object))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, invalid(err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, invalid(err)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, invalid(err)
		}
		var value *string
		h := batch.RecordHeader{Key: key.(string)}
		switch err := json.Unmarshal(raw, &value); {
		case err != nil:
			h.Value = raw
		case value != nil:
			h.Value = []byte(*value)
		}
		headers = append(headers, h)
	}
	if _, err := d.Token(); err != nil {
		return nil, invalid(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, invalid(errors.New("something follows it"))
	}
	return headers, nil
}
