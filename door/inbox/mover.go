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

	"golang.org/x/sync/errgroup"

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

	moved  map[eventlog.Partition]moved // by partition, or under whole: what is known of the key, and whose rows are deleted
	single int                          // how many more chunks have one row, because one of that many rows was refused
}

// whole stands for the partition where one key is for all.
const whole eventlog.Partition = -1

// moved is the value of a key: the rows of the last chunk that were published to its partition, or all of them.
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
	return &Mover{door: door, log: log, publisher: publisher, logger: logger, moved: make(map[eventlog.Partition]moved)}
}

// Movers are those of the shards of a store.
type Movers []*Mover

// ShardMovers returns a mover for each shard of a store; nil if it is not made of shards. They open the doors when they run, because a shard may not answer now.
func ShardMovers(log *eventlog.Log, store eventlog.Store, publisher *publish.Publisher, logger *slog.Logger) (all Movers) {
	set, is := eventlog.As[eventlog.Sharded](store)
	if !is {
		return nil
	}
	for n := range set.Shards() {
		all = append(all, NewMover(log, &Door{set: set, shard: n, woken: make(chan struct{}, 1)}, publisher, logger))
	}
	return all
}

// Run moves rows until ctx ends.
func (all Movers) Run(ctx context.Context) error {
	var running errgroup.Group
	for _, m := range all {
		running.Go(func() error { return m.Run(ctx) })
	}
	return running.Wait()
}

// Run moves rows until ctx ends. It returns earlier if the door is that of a shard whose store has no inbox.
func (m *Mover) Run(ctx context.Context) error {
	pause, failures := pollMin, 0
	for ctx.Err() == nil {
		rows, none := 0, false
		err := recovered.Do(func() (err error) {
			if m.door.database == nil {
				there, err := m.door.reach(ctx, m.logger)
				if none = err == nil && !there; none || err != nil {
					return err
				}
			}
			rows, err = m.step(ctx)
			return err
		})
		switch {
		case ctx.Err() != nil || none:
			return nil
		case errors.Is(err, eventlog.ErrStale): // another mover published first
			clear(m.moved)
			pause = pollMin
		case errors.Is(err, errLearned):
			pause, failures = pollMin, 0
			continue
		case err != nil:
			if failures++; failures == 1 {
				m.logger.Warn("events published by SQL cannot be moved into the log; they stay in weir_inbox; trying again", "err", err)
			}
			pause = min(pollMax<<min(failures, 10), failurePause)
			if rows > 0 { // other shards took theirs
				pause = pollMin
			}
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

// errLearned: the rows that were published last to a partition were not known when the chunk was read, and may be among them. Now they are known, and deleted.
var errLearned = errors.New("the chunk must be read again")

// step moves one chunk of rows, and returns how many rows it has.
func (m *Mover) step(ctx context.Context) (int, error) {
	if _, known := m.moved[whole]; !known && m.door.shard == 0 { // shard 0 may have been a store by itself
		if err := m.learn(ctx, whole); err != nil {
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
	switch published, err := m.publish(ctx, chunk); {
	case !refused(err):
		return published, err
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

// learn reads which rows were published last to a partition, and deletes them.
func (m *Mover) learn(ctx context.Context, to eventlog.Partition) error {
	kv, err := m.log.Get(ctx, m.key(to))
	if err != nil {
		return err
	}
	last := moved{version: kv.Version}
	if kv.Version > 0 {
		if err := json.Unmarshal(kv.Value, &last); err != nil {
			return fmt.Errorf("key %s does not hold the ids of rows: %w; restore a backup", kv.Key, err)
		}
		if err := m.door.remove(ctx, last.IDs); err != nil {
			return err
		}
	}
	m.moved[to] = last
	return nil
}

// key returns the key of the rows that go to a partition. It is on the partition's shard, and moves with it. Where there are no shards, one key is for all.
func (m *Mover) key(to eventlog.Partition) string {
	if to == whole {
		return keys.InboxPrefix + m.door.name
	}
	return fmt.Sprintf("%s%s/%d", keys.InboxPrefix, m.door.name, to)
}

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

// publish publishes a chunk, exactly once, and deletes its rows. On shards, each partition gets its part in an entry of its own, and one that fails holds up only its own
// rows. It returns how many rows were published.
func (m *Mover) publish(ctx context.Context, chunk []row) (int, error) {
	if m.door.set != nil {
		if err := m.door.settle(ctx); err != nil { // what another shard publishes must be here after a crash
			return 0, err
		}
	}
	events := make([]publish.Event, len(chunk))
	for i, r := range chunk {
		events[i] = r.event
	}
	var published []int64
	err := m.publisher.PublishWith(ctx, func(ctx context.Context, batches []eventlog.Batch, in []publish.Within) (err error) {
		published, err = m.append(ctx, m.parts(chunk, batches, in))
		if published != nil && errors.Is(err, eventlog.ErrNoPartition) {
			err = fmt.Errorf("%v", err) // or the publisher would publish all of it again
		}
		return err
	}, events...)
	if len(published) > 0 {
		if failed := m.door.remove(ctx, published); failed != nil {
			clear(m.moved)
			return 0, failed
		}
	}
	return len(published), err
}

// part is what one partition gets of a chunk, or all of it.
type part struct {
	to      eventlog.Partition
	batches []eventlog.Batch
	ids     []int64
	next    moved
	ticket  *eventlog.Ticket
}

func (m *Mover) parts(chunk []row, batches []eventlog.Batch, in []publish.Within) (all []*part) {
	of := map[eventlog.Partition]*part{}
	at := func(b eventlog.Batch) *part {
		to := whole
		if m.door.set != nil {
			to = b.Partition
		}
		if of[to] == nil {
			of[to] = &part{to: to}
			all = append(all, of[to])
		}
		return of[to]
	}
	for _, b := range batches {
		p := at(b)
		p.batches = append(p.batches, b)
	}
	for i, r := range chunk {
		p := at(batches[in[i].Batch])
		p.ids = append(p.ids, r.id)
	}
	return all
}

// append publishes the parts of a chunk, and returns the ids of the rows that were published.
func (m *Mover) append(ctx context.Context, parts []*part) (published []int64, err error) {
	var errs []error
	for _, p := range parts {
		if err := m.submit(ctx, p); err != nil {
			errs = append(errs, err)
		}
	}
	for _, p := range parts {
		if p.ticket == nil {
			continue
		}
		if _, err := p.ticket.Wait(ctx); err != nil {
			if !refused(err) { // after an unknown outcome the key tells
				delete(m.moved, p.to)
			}
			errs = append(errs, err)
			continue
		}
		m.moved[p.to] = p.next
		published = append(published, p.ids...)
	}
	return published, errors.Join(errs...)
}

// submit submits the entry of a part, unless its key was not known when the chunk was read.
func (m *Mover) submit(ctx context.Context, p *part) error {
	last, known := m.moved[p.to]
	if !known {
		if err := m.learn(ctx, p.to); err != nil {
			return err
		}
		return errLearned
	}
	p.next = moved{IDs: p.ids, version: last.version.Next()}
	value, err := json.Marshal(p.next)
	if err != nil {
		return err
	}
	p.ticket = m.log.Submit(ctx, eventlog.Entry{
		Batches: p.batches,
		Checks:  []eventlog.Check{{Key: m.key(p.to), Version: last.version}},
		Puts:    []eventlog.Put{{Key: m.key(p.to), Version: p.next.version, Value: value}},
	})
	return nil
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
