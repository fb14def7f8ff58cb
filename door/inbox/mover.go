package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"strconv"
	"strings"
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

	// The inbox is read every pollMin while rows come, and ever more rarely down to every pollMax
	// when none do.
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
	observer  Observer

	in     string // the incarnation of the database in which the rows that are now moved were read: see database
	moved  moved  // as last read or put
	known  bool   // moved is known, and its rows are deleted
	single int    // how many more chunks have one row, because one of that many rows was refused

	prunedAt time.Time // when positions of deleted topics were last looked for
}

// moved is the value of the key: the rows of the last chunk that was published. The sums tell a row
// from a later one with its id: whoever empties the table may let its ids begin again.
type moved struct {
	IDs  []int64  `json:"ids"`
	Sums []uint64 `json:"sums,omitempty"` // of the rows' content; older versions put none

	version eventlog.Version
}

// row is a row of weir_inbox.
type row struct {
	id    int64
	sum   uint64 // of its content
	event publish.Event
	wrong error // why it cannot be published
}

// Observer receives what a mover did, for metrics. Movers of several shards call it concurrently.
type Observer interface {
	// Moved is called after each move, with the number of rows and the time the oldest waited.
	Moved(rows int, oldest time.Duration)
	// Failed is called after each read or move that failed.
	Failed()
	// Unmovable is called for each row that is moved to weir_inbox_refused.
	Unmovable()
}

type nobody struct{}

func (nobody) Moved(int, time.Duration) {}
func (nobody) Failed()                  {}
func (nobody) Unmovable()               {}

// NewMover returns the mover of a door. observer may be nil.
func NewMover(log *eventlog.Log, door *Door, publisher *publish.Publisher, logger *slog.Logger, observer Observer) *Mover {
	if observer == nil {
		observer = nobody{}
	}
	return &Mover{door: door, log: log, publisher: publisher, logger: logger, observer: observer}
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
			m.observer.Failed()
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
	if time.Since(m.prunedAt) >= forgetEvery {
		m.forgetPositions(ctx)
	}
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
	if len(chunk) == 1 && refused(err) { // perhaps another process has changed the topic, and this one does not know it yet
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

// rowError says what is wrong with a row itself: trying again will not mend it.
type rowError struct{ error }

func (e rowError) Unwrap() error { return e.error }

// refused reports whether an event can never be published.
func refused(err error) bool {
	var row rowError
	return errors.As(err, &row)
}

// mayPass reports whether an error says nothing about an event. What fails before the commit is
// tried again only after such errors.
func mayPass(err error) bool {
	for _, passes := range []error{
		eventlog.ErrUnavailable, eventlog.ErrUnsure, eventlog.ErrStale, eventlog.ErrNoPartition, eventlog.ErrClosed, eventlog.ErrReadOnly, eventlog.ErrCrowded,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, passes) {
			return true
		}
	}
	return false
}

// publishRows is PublishWith for events of rows. Two kinds of errors become a rowError: those that
// say something about the events, and all others, a panic too, that come before commit is called,
// unless mayPass. Any other error is the store's trouble. So one row never holds up the others,
// whatever is wrong with it, and a store that fails refuses no row.
func publishRows(ctx context.Context, p *publish.Publisher, commit func(ctx context.Context, batches []eventlog.Batch) error, events ...publish.Event) error {
	committing := false
	err := recovered.Do(func() error {
		return p.PublishWith(ctx, func(ctx context.Context, batches []eventlog.Batch, _ []publish.Within) error {
			committing = true
			return commit(ctx, batches)
		}, events...)
	})
	var invalid *eventlog.InvalidError
	about := errors.As(err, &invalid) || errors.Is(err, eventlog.ErrUnknownTopic) || errors.Is(err, eventlog.ErrTooLarge)
	if about || err != nil && !committing && !mayPass(err) {
		err = rowError{err}
	}
	return err
}

func (m *Mover) refuse(ctx context.Context, r row, why error) error {
	m.logger.Error("an event published by SQL can never be moved into the log; it is kept in weir_inbox_refused", "id", r.id, "topic", r.event.Topic, "err", why)
	err := m.door.refuse(ctx, m.in, r.id, reason(why))
	if err == nil {
		m.observer.Unmovable()
	}
	return err
}

// reasonMax is the most bytes of a reason in weir_inbox_refused.
const reasonMax = 1000

// reason is an error as a text that every database takes.
func reason(why error) string {
	text := why.Error()
	return strings.ToValidUTF8(strings.ReplaceAll(text[:min(len(text), reasonMax)], "\x00", ""), "\uFFFD")
}

// catchUp reads which rows were published last, and deletes them.
func (m *Mover) catchUp(ctx context.Context) (err error) {
	if m.in, err = m.door.incarnation(ctx); err != nil {
		return err
	}
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
	ids, times := m.moved.IDs, []int64(nil)
	if len(m.moved.Sums) == len(ids) {
		var err error
		if ids, times, err = m.left(ctx); err != nil {
			return err
		}
	}
	return m.remove(ctx, ids, times)
}

// left returns the rows that were published last and are still there.
func (m *Mover) left(ctx context.Context) (ids, times []int64, err error) {
	sums := map[int64]uint64{}
	var list []string
	for i, id := range m.moved.IDs {
		sums[id] = m.moved.Sums[i]
		list = append(list, strconv.FormatInt(id, 10))
	}
	err = m.door.query(ctx, func(columns []any) error {
		if r := rowOf(columns); r.sum == sums[r.id] {
			ids, times = append(ids, r.id), append(times, timeOf(columns[7]))
		}
		return nil
	}, fmt.Sprintf("SELECT %s FROM %s WHERE id IN (%s)", columns, m.door.table("weir_inbox"), strings.Join(list, ",")))
	return ids, times, err
}

// remove deletes the rows that were published last.
func (m *Mover) remove(ctx context.Context, ids, times []int64) error {
	if len(ids) > 0 {
		if err := m.door.remove(ctx, m.in, ids, times); err != nil {
			return err
		}
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
	m.in, err = m.door.queryIn(ctx, func(columns []any) error {
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
	events, next, times := make([]publish.Event, len(chunk)), moved{version: m.moved.version.Next()}, make([]int64, len(chunk))
	for i, r := range chunk {
		events[i], times[i] = r.event, r.event.Time.UnixMilli()
		next.IDs, next.Sums = append(next.IDs, r.id), append(next.Sums, r.sum)
	}
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	err = publishRows(ctx, m.publisher, func(ctx context.Context, batches []eventlog.Batch) error {
		_, err := m.log.Append(ctx, eventlog.Entry{
			Batches: batches,
			Checks:  []eventlog.Check{{Key: m.key(), Version: m.moved.version}},
			Puts:    []eventlog.Put{{Key: m.key(), Version: next.version, Value: value}},
		})
		return err
	}, events...)
	if err != nil {
		m.known = m.known && refused(err) // after an unknown outcome the key tells what was published
		return err
	}
	m.observer.Moved(len(chunk), time.Since(chunk[0].event.Time))
	m.moved, m.known = next, false
	return m.remove(ctx, next.IDs, times)
}

// rowOf reads a row. Its bytes are its own. A database need not keep to the types of its columns:
// SQLite does not.
func rowOf(columns []any) row {
	r := row{id: columns[0].(int64), sum: sumOf(columns[1:8])} // the primary key
	e := &r.event
	wrong := func(what string, column any, why string) {
		if r.wrong == nil {
			r.wrong = &eventlog.InvalidError{What: what, Value: fmt.Sprintf("%.100q", fmt.Sprint(column)), Why: why}
		}
	}
	e.Topic, e.Key, e.Value = string(bytesOf(columns[1])), bytesOf(columns[3]), bytesOf(columns[4])
	if id := string(bytesOf(columns[2])); id != "" {
		var err error
		if e.TopicID, err = eventlog.ParseTopicID(id); err != nil {
			wrong("topic_id", id, "it is not the id of a topic")
		}
	}
	switch n := columns[6].(type) {
	case nil:
	case int64:
		number := int32(n)
		if e.Partition = &number; int64(number) != n {
			wrong("partition", n, "it is not a 32-bit number")
		}
	default:
		wrong("partition", n, "it is not a whole number")
	}
	if at := timeOf(columns[7]); at < batch.NoTimestamp || at > batch.MaxTimestamp {
		wrong("published_at", columns[7], "it is not the milliseconds since the Unix epoch, until the end of the year 9999")
	} else {
		e.Time = time.UnixMilli(at)
	}
	if e.Key == nil && e.Value == nil {
		wrong("event", e.Topic, "it has neither key nor value: an event without a value is a tombstone, which needs a key")
	}
	if headers := bytesOf(columns[5]); headers != nil {
		var err error
		if e.Headers, err = publish.ParseHeaders(headers); err != nil && r.wrong == nil {
			r.wrong = err
		}
	}
	return r
}

// sumOf returns a hash of columns.
func sumOf(columns []any) uint64 {
	h := fnv.New64a()
	for _, c := range columns {
		b := bytesOf(c)
		fmt.Fprintf(h, "%t %d ", c == nil, len(b)) // a hash returns no errors
		h.Write(b)
	}
	return h.Sum64()
}

// timeOf returns a column's milliseconds; what is no whole number is below all times.
func timeOf(column any) int64 {
	if n, is := column.(int64); is {
		return n
	}
	return math.MinInt64
}

// bytesOf returns a column's bytes, of a number its text; nil: it is NULL.
func bytesOf(column any) []byte {
	switch v := column.(type) {
	case nil:
		return nil
	case []byte:
		if v == nil {
			return []byte{}
		}
		return v
	case string:
		return []byte(v)
	case float64:
		return strconv.AppendFloat(nil, v, 'g', -1, 64)
	}
	return fmt.Append(nil, column)
}
