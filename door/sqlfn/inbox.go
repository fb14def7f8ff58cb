package sqlfn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/store/postgres/wire"
)

const (
	// pollRows and pollBytes bound what one poll returns, and so one move. A row larger than
	// pollBytes is returned by itself.
	pollRows  = 5000
	pollBytes = 4 << 20
	// walkMax bounds a poll that scans all of the inbox, including deleted rows that an open
	// transaction keeps from being vacuumed. It reads about two million rows a second.
	walkMax = 10 * time.Minute
	// pollSpan bounds the ids that one poll goes through, also those of rows that it leaves to
	// another lane. That takes about 100 ms.
	pollSpan = 200_000
	// toEnd is chunk.upto after a look that went to the end of the inbox.
	toEnd = math.MaxInt64
	// strideMax is how many ids without a visible row may be above bookmark.low before low is
	// raised.
	strideMax = 2 * pollRows
)

// errTaken: another mover was faster. Nothing was moved; poll again, after a pause.
var errTaken = errors.New("another mover is moving events")

var (
	pollStatement = wire.Statement{Name: "look", SQL: `
	SELECT seen, last, incarnation, server, tables, epoch, hushed, upto,
	       id, topic, partition, key, value, headers, size, published_at, grp, next_offset, base
	FROM weir.look($1::text::pg_snapshot, $2, $3::text::pg_snapshot, $4, $5, $6, $7, $8::text::uuid[], $9::text::uuid[], true)`}

	moveStatement = wire.Statement{Name: "move", SQL: `
	SELECT moved, bases
	FROM weir.move($1, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)
	WHERE weir.unchanged($2, $27, $28, $29) AND weir.still_after($27, $28, $29)
	  AND (moved IS NOT TRUE OR cardinality($3::bigint[]) = 0 OR weir.note_enqueued(bases, $3, $4, $5, $6, $7, $8))`}

	carryStatement = wire.Statement{Name: "carry", SQL: `
	SELECT moved
	FROM weir.carry($1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)
	WHERE weir.unchanged($2, $24, $25, $26) AND weir.still_after($24, $25, $26)`}
)

// inbox is weir.inbox: what SQL sessions published (weir.publish) and no mover has moved into the
// log yet. It belongs to one mover, which calls poll and move in turn.
type inbox struct {
	session *postgres.Session
	most    int                         // most rows of a poll
	span    int64                       // most ids that a poll goes through
	mark    bookmark                    // of the main lane: all topics but those of lanes
	lanes   []*lane                     // in the order of their turns
	at      *lane                       // the lane that the last poll looked into; nil: the main lane
	made    func(eventlog.TopicID) bool // whether the log has the topic; nil: it has all
}

// row is one row of the inbox: an event, or, with a group, how far that group has come.
type row struct {
	id        int64
	wanted    bool // a message whose id somebody has: where it is moved is kept, see enqueuedRun
	topic     eventlog.TopicID
	partition int32 // of the topic; negative: the mover chooses
	key       []byte
	value     []byte
	headers   []byte // a flat JSON object of strings and nulls; nil: none
	time      time.Time

	group string
	next  eventlog.Offset
	base  int64 // on which state of the group's key the position is built, see position; -1: none
}

// chunk is the result of a poll.
type chunk struct {
	rows  []row         // in the order of their ids
	full  bool          // it has as many rows or bytes as a poll may return: more may follow
	upto  int64         // if not full: the id up to which the poll went; toEnd: to the end, and so the round ends
	more  bool          // the next poll may find rows right now
	first row           // the oldest row that may wait, in any lane
	muted time.Duration // for how long publishers still do not notify

	round bookmark
}

// poll returns rows of one lane that are committed and not moved, oldest first: one statement, or a
// few at first and after a crash of the server. Call pass when they were moved, and when there are
// none; otherwise the lane's next poll finds them again.
func (i *inbox) poll(ctx context.Context) (*chunk, error) {
	for {
		i.at = i.next()
		c, covered, err := i.pollLane(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the inbox: %w", err)
		}
		if covered {
			c.first = i.oldest(c)
			return c, nil
		}
		i.rewind()
	}
}

// pollLane looks into the lane whose turn it is. covered reports whether the lane's bookmark still
// holds.
func (i *inbox) pollLane(ctx context.Context) (c *chunk, covered bool, err error) {
	mark := *i.current()
	switch {
	case mark.goal != "":
	case i.at != nil:
		mark.goal, mark.next = i.mark.aim()
	case mark.walks():
		if mark, err = i.survey(ctx); err != nil {
			return nil, false, err
		}
	}
	if c, err = i.lookFrom(ctx, mark, i.at); err != nil || !mark.covers(c.round) {
		return c, false, err
	}
	c.more = c.full || c.upto < toEnd || mark.goal != "" // a round with an earlier goal leaves out what was committed since
	mark = c.round
	if len(c.rows) > 0 {
		mark.after = max(mark.after, c.rows[0].id-1) // the round has no row before the first one
	}
	*i.current() = mark
	return c, true, nil
}

// survey returns the bookmark with which a scan of all of the inbox begins. The last id given out
// can become low after the scan, because survey runs a transaction after it reads this id and
// before the scan's snapshot: transactions that this snapshot does not know take higher ids.
func (i *inbox) survey(ctx context.Context) (b bookmark, err error) {
	err = i.session.Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) error {
		b = bookmark{done: nothingDone}
		const about = `SELECT CASE WHEN is_called THEN last_value ELSE 0 END, weir.incarnation(), coalesce(l.server, 0), l.tables, l.epoch
			FROM weir.inbox_id_seq, weir.life() AS l`
		read := func() error {
			return conn.QueryRow(ctx, about).Scan(&b.last, &b.of.crash, &b.of.store.Server, &b.of.store.Tables, &b.of.store.Epoch)
		}
		err := read()
		if err == nil && b.of.crash == 0 { // the server crashed, or is new: a new incarnation number tells it from the time before
			if _, err = conn.Exec(ctx, `INSERT INTO weir.incarnation DEFAULT VALUES ON CONFLICT DO NOTHING`); err == nil {
				err = read()
			}
		}
		if err == nil {
			_, err = conn.Exec(ctx, `SELECT pg_current_xact_id()`)
		}
		b.passed = b.last
		return err
	})
	return b, err
}

func (i *inbox) lookFrom(ctx context.Context, round bookmark, l *lane) (c *chunk, err error) {
	most := time.Duration(0)
	if round.walks() {
		most = walkMax
	}
	err = i.session.Read(ctx, most, func(ctx context.Context, conn *pgxpool.Conn) error {
		foreign := false
		if round.walks() {
			tx, err := conn.Begin(ctx)
			if err != nil {
				return err
			}
			defer tx.Rollback(ctx)
			if foreign, err = prepareWalk(ctx, tx); err != nil {
				return err
			}
		}
		c, err = i.ask(ctx, conn, round, l)
		if err == nil && foreign {
			c.round.next = 0 // rows that came with a dump appear in any order of ids: the next round scans all of the inbox, too
		}
		return err
	})
	return c, err
}

// prepareWalk sets a scan's timeout. It reports whether any row has a transaction number that the
// server has not given out yet, as rows from a dump may have. It searches by index: such rows are
// at the index's end, and dead rows are not there.
func prepareWalk(ctx context.Context, tx pgx.Tx) (foreign bool, err error) {
	most := strconv.FormatInt((walkMax * 3 / 4).Milliseconds(), 10)
	if _, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true)`, most); err != nil {
		return false, err
	}
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM weir.inbox WHERE xact >= pg_snapshot_xmax(pg_current_snapshot()))`).Scan(&foreign)
	return foreign, err
}

// lookAbout is how many columns of a look are about the inbox as a whole.
const lookAbout = 8

// ask calls weir.look.
func (i *inbox) ask(ctx context.Context, conn *pgxpool.Conn, round bookmark, l *lane) (*chunk, error) {
	var goal []byte
	if round.goal != "" {
		goal = []byte(round.goal)
	}
	only, without := i.topics(l)
	answer := i.session.Ask(ctx, conn, pollStatement,
		[]byte(round.done), wire.Int8(round.low), goal, wire.Int8(round.after), wire.Int4(int32(i.most)), wire.Int8(pollBytes), wire.Int8(i.span), uuids(only), uuids(without))
	c := &chunk{}
	size := 0
	for answer.NextRow() {
		values := answer.Values()
		about, values := values[:lookAbout], values[lookAbout:]
		if values[0] == nil {
			of := incarnation{crash: wire.Bigint(about[2]), store: postgres.Incarnation{Tables: wire.Bigint(about[4]), Epoch: wire.Bigint(about[5])}}
			if about[3] != nil { // nil on a standby
				of.store.Server = wire.Bigint(about[3])
			}
			round.begin(string(about[0]), wire.Bigint(about[1]), of)
			c.muted = time.Duration(wire.Integer(about[6])) * time.Second
			c.upto = wire.Bigint(about[7])
			continue
		}
		c.rows = append(c.rows, parseRow(values))
		size += int(wire.Integer(values[6]))
	}
	if _, err := answer.Close(); err != nil {
		return nil, err
	}
	c.round = round
	c.full = len(c.rows) == i.most || size >= pollBytes
	return c, nil
}

// uuids is an array of ids as text; nil: NULL.
func uuids(ids []eventlog.TopicID) []byte {
	if ids == nil {
		return nil
	}
	text := []byte{'{'}
	for n, id := range ids {
		if n > 0 {
			text = append(text, ',')
		}
		text = append(text, id.String()...)
	}
	return append(text, '}')
}

func parseRow(values [][]byte) row {
	r := row{id: wire.Bigint(values[0]), partition: -1, base: -1, key: bytes.Clone(values[3]), value: bytes.Clone(values[4]),
		headers: bytes.Clone(values[5]), time: timestamp(wire.Bigint(values[7])), group: string(values[8])}
	copy(r.topic[:], values[1])
	if values[2] != nil {
		r.partition = wire.Integer(values[2])
	}
	if values[9] != nil {
		r.next = eventlog.Offset(wire.Bigint(values[9]))
	}
	if values[10] != nil {
		r.base = wire.Bigint(values[10])
		r.wanted = r.group == ""
	}
	return r
}

// timestamp converts PostgreSQL's timestamp: microseconds since the year 2000.
func timestamp(us int64) time.Time {
	const year2000 = 946684800
	return time.UnixMicro(us).Add(year2000 * time.Second)
}

// move deletes rows of the inbox and commits the entry made of them, in one transaction and one
// trip, which also writes where the runs of messages are. It returns where the entry's batches
// begin. Rows of which the entry has nothing are only deleted.
//
// errTaken, eventlog.ErrNoPartition, eventlog.ErrUnavailable: nothing was done. If the error is
// also eventlog.ErrRewound, the ids may belong to other rows than the last look found. After
// eventlog.ErrUnsure the next look shows whether the rows were moved.
func (i *inbox) move(ctx context.Context, ids []int64, e eventlog.Entry, runs ...enqueuedRun) ([]eventlog.Offset, error) {
	of := i.mark.of
	done, answer, err := i.session.Commit(ctx, of.store, moveStatement, slices.Concat([][]byte{wire.Int8Array(ids), wire.Int8(of.crash)}, runParams(runs, e)), []eventlog.Entry{e})
	if err == nil && !done {
		err = errTaken
	}
	if err != nil {
		return nil, fmt.Errorf("move %d rows out of the inbox: %w", len(ids), notMoved(err))
	}
	i.mark.passed = max(i.mark.passed, i.mark.last)
	bases := wire.Numbers(answer[1])
	offsets := make([]eventlog.Offset, len(bases))
	for n, base := range bases {
		offsets[n] = eventlog.Offset(base)
	}
	return offsets, nil
}

// position is a group's key that an entry puts, with the base on which the new offset is built.
// carry does not change a key that has another base, because somebody else wrote it since, nor a
// key whose offset is as high already.
type position struct {
	key  string
	base int64
	next eventlog.Offset
}

// carry deletes rows of the inbox and commits the entries made of them, in one transaction and one
// trip, except the puts of positions that somebody else wrote meanwhile.
//
// errTaken, eventlog.ErrStale (of any of the entries), eventlog.ErrUnavailable: nothing was done.
// After eventlog.ErrUnsure the next look shows whether the rows were moved.
func (i *inbox) carry(ctx context.Context, ids []int64, positions []position, entries []eventlog.Entry) error {
	keys, bases, nexts := make([]string, len(positions)), make([]int64, len(positions)), make([]int64, len(positions))
	for n, p := range positions {
		keys[n], bases[n], nexts[n] = p.key, p.base, int64(p.next)
	}
	of := i.mark.of
	guards := [][]byte{wire.Int8Array(ids), wire.Int8(of.crash), wire.TextArray(keys), wire.Int8Array(bases), wire.Int8Array(nexts)}
	done, _, err := i.session.Commit(ctx, of.store, carryStatement, guards, entries)
	if err == nil && !done {
		err = errTaken
	}
	if err != nil {
		return fmt.Errorf("move %d positions of groups out of the inbox: %w", len(positions), notMoved(err))
	}
	return nil
}

// notMoved maps the database's error for a failed move to ours.
func notMoved(err error) error {
	var reported *pgconn.PgError
	if !errors.As(err, &reported) {
		return err
	}
	switch reported.Code {
	case "WE090":
		return errTaken
	case "WE091":
		return eventlog.ErrNoPartition
	case "WE092":
		return eventlog.ErrStale
	}
	return err
}

// forgetConsumers removes positions in deleted topics that weir.commit_offset keeps, in one trip;
// most bounds how many. It returns how many it removed.
func (i *inbox) forgetConsumers(ctx context.Context, most int) (n int, err error) {
	err = i.session.Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, `SELECT weir.forget_consumers($1)`, most).Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("delete positions of deleted topics: %w", err)
	}
	return n, nil
}

// still returns the rows that are still in the inbox, each once: one statement.
func (i *inbox) still(ctx context.Context, rows []row) ([]row, error) {
	ids := make([]int64, len(rows))
	for n := range rows {
		ids[n] = rows[n].id
	}
	there := make(map[int64]bool)
	err := i.session.Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) error {
		found, err := conn.Query(ctx, `SELECT id FROM weir.find_rows($1)`, ids)
		if err != nil {
			return err
		}
		clear(there)
		var id int64
		_, err = pgx.ForEachRow(found, []any{&id}, func() error { there[id] = true; return nil })
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("check whether %d rows are still in the inbox: %w", len(rows), err)
	}
	var still []row
	for _, row := range rows {
		if there[row.id] {
			still = append(still, row)
			delete(there, row.id)
		}
	}
	return still, nil
}

// mute turns the publishers' notifications off for length, in whole seconds; 0: on again.
func (i *inbox) mute(ctx context.Context, length time.Duration) error {
	err := i.session.Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, `SELECT setval('weir.hushed', floor(extract(epoch FROM clock_timestamp()))::bigint + $1)`, int64(length/time.Second))
		return err
	})
	if err != nil {
		return fmt.Errorf("set whether publishers notify: %w", err)
	}
	return nil
}

// pass notes that the rows of a chunk were moved, or skipped until rewind.
func (i *inbox) pass(c *chunk) {
	mark := i.current()
	if n := len(c.rows); n > 0 && i.at != nil {
		i.at.moved = c.rows[n-1]
	}
	switch {
	case c.full:
		mark.after = c.rows[len(c.rows)-1].id
	case c.upto < toEnd:
		mark.after = c.upto
	default:
		mark.finish()
	}
	if i.at == nil {
		i.split(c)
	} else {
		i.merge(i.at)
	}
}

// rewind makes the next poll scan all of the inbox.
func (i *inbox) rewind() { i.mark, i.lanes, i.at = bookmark{done: nothingDone}, nil, nil }

// behind reports whether topics with a backlog wait in lanes of their own.
func (i *inbox) behind() bool { return len(i.lanes) > 0 }

// wide reports whether many ids were given out since the last move, to transactions that are open
// or were rolled back: each poll scans them all. A move, even of no rows, raises mark.passed to the
// last id.
func (i *inbox) wide() bool { return i.mark.last-max(i.mark.low, i.mark.passed) > strideMax }
