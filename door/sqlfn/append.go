package sqlfn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres/wire"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/stream"
)

// appendHeader is the name of a header that marks a row as an append to a stream
// (functions/append_events.sql). Its value is an object; the value of no other header can be one.
const appendHeader = "weir.stream"

// appendMark is how appendHeader appears in the text of the headers, see messageMark.
var appendMark = []byte(`"` + appendHeader + `": {`)

// streamsAtOnce bounds the streams that are carried in one transaction.
const streamsAtOnce = 500

var moveAppendedStatement = wire.Statement{Name: "move_appended", SQL: `
	SELECT moved, bases
	FROM weir.move_appended($1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25)
	WHERE weir.unchanged($2, $26, $27, $28) AND weir.still_after($26, $27, $28)`}

// isAppend reports whether a row says that a session appended to a stream. The stream's name is the
// row's key, the events are in weir.appended.
func (r *row) isAppend() bool { return r.group == "" && bytes.Contains(r.headers, appendMark) }

// appended is what sessions appended to one stream.
type appended struct {
	key    string // of the stream's head
	stream string
	row    *row // the first
	// The rows of the inbox, in order, and the version of the head's key after each.
	ids   []int64
	heads []eventlog.Version
}

// moveAppends carries appends of a chunk into their streams, up to streamsAtOnce streams in one
// transaction. If that fails because of the rows, it carries each stream by itself; those that fail
// stay in the inbox, and their streams stay held.
func (m *Mover) moveAppends(ctx context.Context, rows []row) error {
	var order []*appended
	streams := make(map[string]*appended)
	for i := range rows {
		r := &rows[i]
		if !r.isAppend() {
			continue
		}
		var about struct {
			Of struct {
				Key  string           `json:"key"`
				Head eventlog.Version `json:"head"`
			} `json:"weir.stream"`
		}
		err := json.Unmarshal(r.headers, &about)
		if err == nil && m.cfg.Streams == nil {
			err = errors.New("this process runs no streams")
		}
		if err != nil {
			m.skip("cannot carry what was appended by SQL into its stream; it stays in weir.inbox; trying again later", "row", r.id, "err", err)
			continue
		}
		a := streams[about.Of.Key]
		if a == nil {
			a = &appended{key: about.Of.Key, stream: string(r.key), row: r}
			streams[a.key] = a
			order = append(order, a)
		}
		a.ids, a.heads = append(a.ids, r.id), append(a.heads, about.Of.Head)
	}
	for some := range slices.Chunk(order, streamsAtOnce) {
		err := m.carryStreams(ctx, some)
		if err == nil {
			continue
		}
		if isTransient(err) {
			return err
		}
		if err := m.log.RefreshTopics(ctx); err != nil { // perhaps a category was deleted just now
			return err
		}
		for _, a := range some {
			if err := m.carryStreams(ctx, []*appended{a}); isTransient(err) {
				return err
			} else if err != nil {
				m.skip("cannot carry what was appended by SQL into its stream; it stays in weir.inbox, and the stream cannot be appended to; trying again later",
					"stream", a.stream, "appends", len(a.ids), "err", err)
			}
		}
	}
	return nil
}

// carryStreams carries appends in as many transactions as they need: each has one batch for each
// stream.
func (m *Mover) carryStreams(ctx context.Context, some []*appended) error {
	for len(some) > 0 {
		now, err := m.inbox.uncarried(ctx, some)
		if err != nil {
			return err
		}
		var c carriage
		var rest []*appended
		for i, a := range some {
			left, err := m.loadAppended(ctx, &c, a, now[i])
			if err != nil {
				return err
			}
			if len(left.ids) > 0 {
				rest = append(rest, left)
			}
		}
		if err := m.carryLoaded(ctx, &c); err != nil {
			return err
		}
		some = rest
	}
	return nil
}

// carriage is one transaction that carries appends.
type carriage struct {
	ids   []int64
	entry eventlog.Entry
	// For each stream: which rows of weir.held and weir.appended it deletes, see
	// functions/move_appended.sql.
	keys                     []string
	after, upto, first, next []int64
	oldest                   time.Time
}

func (c *carriage) drop(key string, after, upto eventlog.Version, first, next int64) {
	c.keys = append(c.keys, key)
	c.after, c.upto = append(c.after, int64(after)), append(c.upto, int64(upto))
	c.first, c.next = append(c.first, first), append(c.next, next)
}

// loadAppended adds appends to a stream to a carriage, as many as fit into one batch. It returns
// those that are left.
func (m *Mover) loadAppended(ctx context.Context, c *carriage, a *appended, now uncarried) (*appended, error) {
	if c.oldest.IsZero() || a.row.time.Before(c.oldest) {
		c.oldest = a.row.time
	}
	topic, found, err := m.topic(ctx, a.row)
	if err != nil {
		return nil, err
	}
	if !found {
		m.cfg.Logger.Warn("events appended by SQL are dropped: their category was deleted before they were carried into their stream", "stream", a.stream, "appends", len(a.ids))
		c.ids = append(c.ids, a.ids...)
		c.drop(a.key, 0, math.MaxInt64, 0, math.MaxInt64)
		return &appended{}, nil
	}
	upto := now.head.Version
	if len(now.calls) > 0 {
		e, n, next, err := m.cfg.Streams.Carry(topic, a.stream, now.head, now.calls)
		if err != nil {
			return nil, fmt.Errorf("stream %q of category %q: %w", a.stream, topic.Name, err)
		}
		upto = now.calls[n-1].Head
		c.entry.Batches = append(c.entry.Batches, e.Batches...)
		c.entry.Checks = append(c.entry.Checks, e.Checks...)
		c.entry.Puts = append(c.entry.Puts, e.Puts...)
		c.drop(a.key, now.head.Version, upto, now.calls[0].First, next)
	}
	n := 0
	for n < len(a.heads) && a.heads[n] <= upto {
		n++
	}
	if n == 0 {
		return nil, fmt.Errorf("stream %q of category %q: its head is at version %d, and row %d of weir.inbox at version %d, but weir.appended has no events", a.stream, topic.Name, upto, a.ids[0], a.heads[0])
	}
	c.ids = append(c.ids, a.ids[:n]...)
	return &appended{key: a.key, stream: a.stream, row: a.row, ids: a.ids[n:], heads: a.heads[n:]}, nil
}

// carryLoaded carries what was loaded: one statement.
func (m *Mover) carryLoaded(ctx context.Context, c *carriage) error {
	bases, err := m.inbox.moveAppended(ctx, c)
	if err != nil {
		return err
	}
	placed := make([]eventlog.Placed, len(bases))
	for i, base := range bases {
		placed[i] = eventlog.Placed{Base: base, Batch: c.entry.Batches[i]}
	}
	m.log.Committed(m.incarnation.store.InMark(), placed)
	m.cfg.Observer.Moved(len(c.ids), time.Since(c.oldest))
	return nil
}

// moveAppended is move for appends to streams.
func (i *inbox) moveAppended(ctx context.Context, c *carriage) ([]eventlog.Offset, error) {
	of := i.mark.of
	params := [][]byte{wire.Int8Array(c.ids), wire.Int8(of.crash), wire.TextArray(c.keys), wire.Int8Array(c.after), wire.Int8Array(c.upto), wire.Int8Array(c.first), wire.Int8Array(c.next)}
	done, answer, err := i.session.Commit(ctx, of.store, moveAppendedStatement, params, []eventlog.Entry{c.entry})
	if err == nil && !done {
		err = errTaken
	}
	if err != nil {
		return nil, fmt.Errorf("carry %d appends out of the inbox: %w", len(c.ids), notMoved(err))
	}
	i.mark.passed = max(i.mark.passed, i.mark.last)
	bases := wire.Numbers(answer[1])
	offsets := make([]eventlog.Offset, len(bases))
	for n, base := range bases {
		offsets[n] = eventlog.Offset(base)
	}
	return offsets, nil
}

// uncarried is a stream's head, and the calls that are not carried yet.
type uncarried struct {
	head  eventlog.KeyValue
	calls []stream.Call
}

// uncarried reads the heads of streams, and what was appended to them up to the last row of each:
// one statement.
func (i *inbox) uncarried(ctx context.Context, some []*appended) (all []uncarried, err error) {
	keys, upto := make([]string, len(some)), make([]int64, len(some))
	for n, a := range some {
		keys[n], upto[n] = a.key, int64(slices.Max(a.heads))
	}
	err = i.session.Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, `SELECT nth, version, value, call, id, type, data, metadata, time_ms FROM weir.uncarried($1, $2)`, keys, upto)
		if err != nil {
			return err
		}
		all = make([]uncarried, len(some))
		var nth int
		var version int64
		var head *int64
		var value, data, metadata []byte
		var id, kind *string
		var ms *int64
		_, err = pgx.ForEachRow(rows, []any{&nth, &version, &value, &head, &id, &kind, &data, &metadata, &ms}, func() error {
			u := &all[nth-1]
			if head == nil {
				u.head = eventlog.KeyValue{Key: keys[nth-1], Version: eventlog.Version(version), Value: bytes.Clone(value)}
				return nil
			}
			headers, err := publish.ParseHeaders(metadata)
			if err != nil {
				return err
			}
			if n := len(u.calls); n == 0 || u.calls[n-1].Head != eventlog.Version(*head) {
				u.calls = append(u.calls, stream.Call{First: version, Head: eventlog.Version(*head)})
			}
			last := &u.calls[len(u.calls)-1]
			last.Events = append(last.Events, stream.NewEvent{ID: *id, Type: *kind, Data: bytes.Clone(data), Metadata: headers, Time: time.UnixMilli(*ms)})
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read what was appended to %d streams by SQL: %w", len(some), err)
	}
	return all, nil
}
