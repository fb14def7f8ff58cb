package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
)

const (
	// lookRows and lookBytes bound what one look returns, and so one move. A row larger than that comes alone.
	lookRows  = 5000
	lookBytes = 4 << 20
	// walkMax bounds a look that walks all of the inbox: rows that are long gone included, wherever some transaction keeps them. It reads about two
	// million of them a second.
	walkMax = 10 * time.Minute
	// strideMax is how many ids may lie above bookmark.low with nothing to see there before it is moved up.
	strideMax = 2 * lookRows
)

// ErrTaken: another mover was faster. Nothing was moved; look again, not at once.
var ErrTaken = errors.New("another mover is at it")

var (
	lookStatement = statement{"look", `
	SELECT seen, last, incarnation, hushed, id, topic, partition, key, value, headers, size, published_at, grp, next_offset, base
	FROM weir.look($1::text::pg_snapshot, $2, $3::text::pg_snapshot, $4, $5, $6)`}

	moveStatement = statement{"move", `
	SELECT moved, bases
	FROM weir.move($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)`}

	carryStatement = statement{"carry", `
	SELECT moved, NULL::bigint[]
	FROM weir.carry($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)`}
)

// Inbox is what SQL sessions published (weir.publish) and nobody has moved into the log yet. It is for one mover, which calls
// Look and Move in turn; other processes may have theirs.
type Inbox struct {
	store    *Store
	pool     *pgxpool.Pool
	stirred  chan struct{} // holds one
	attended atomic.Bool   // there is a mover: polls look for it

	mu   sync.Mutex // guards mark, which the mover alone changes
	mark bookmark
}

// at returns how far the inbox was looked through.
func (i *Inbox) at() bookmark {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.mark
}

func (i *Inbox) set(mark bookmark) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mark = mark
}

// bookmark is how far the inbox was looked through. weir.look says what the first two mean. All of it may be forgotten at any
// time: then the next round walks all of the inbox.
type bookmark struct {
	done string
	low  int64

	incarnation int64  // of the server that all this is about
	last        int64  // the last id that was given out, at the last look
	passed      int64  // the same, at the last look before a move that ended, or before another transaction of ours: good as low for every snapshot taken since
	goal        string // of the round under way; empty between rounds
	after       int64  // how far the round has come
	next        int64  // low, when goal becomes done
}

// nothingDone is a snapshot in which nothing can be seen.
const nothingDone = "3:3:"

// Row is one row of the inbox: an event, or, with a Group, how far that group has come.
type Row struct {
	ID        int64
	Topic     eventlog.TopicID
	Partition int32 // of the topic; negative: the mover chooses
	Key       []byte
	Value     []byte
	Headers   []byte // a flat JSON object of strings and nulls; nil: none
	Time      time.Time

	Group string
	Next  eventlog.Offset
	Base  int64 // what was known of the group's key; see Position
}

// Chunk is what a look found.
type Chunk struct {
	Rows   []Row         // in the order of their ids
	Full   bool          // there may be more right now
	Hushed time.Duration // how long publishers do not notify

	round bookmark
}

// Inbox returns the store's inbox, for a mover.
func (s *Store) Inbox() *Inbox { return s.inbox }

func newInbox(s *Store) (*Inbox, error) {
	pool, err := pool(s.config, 1, lookStatement, moveStatement, carryStatement)
	return &Inbox{store: s, pool: pool, stirred: make(chan struct{}, 1), mark: bookmark{done: nothingDone}}, err
}

// Stirred receives when there may be something in the inbox. It is a hint: for nothing at times, but after a row was committed
// it receives within the log's poll, as long as the log runs.
func (i *Inbox) Stirred() <-chan struct{} {
	i.attended.Store(true)
	return i.stirred
}

func (i *Inbox) stir() { wake(i.stirred) }

// Look returns rows that are committed and not moved, oldest first: one trip, or a few at the first and after a crash of the server.
// After it comes Pass or Abandon.
func (i *Inbox) Look(ctx context.Context) (*Chunk, error) {
	mark := i.at()
	for {
		if mark.walks() && mark.goal == "" {
			var err error
			if mark, err = i.survey(ctx); err != nil {
				return nil, fmt.Errorf("look into the inbox: %w", readFailed(err))
			}
			i.set(mark)
		}
		c, err := i.look(ctx, mark)
		if err != nil {
			return nil, fmt.Errorf("look into the inbox: %w", readFailed(err))
		}
		if !mark.covers(c.round) {
			mark = bookmark{done: nothingDone}
			continue
		}
		ends, old := len(c.Rows) == 0, mark.goal != ""
		if mark = c.round; ends {
			mark.finish()
		} else {
			mark.after = max(mark.after, c.Rows[0].ID-1) // the round has nothing before
		}
		i.set(mark)
		if !ends || !old { // else there may be more than the round was to see
			return c, nil
		}
	}
}

// survey returns the bookmark that a walk begins with. The ids given out so far will do as low for what the walk sees: behind them begins
// and ends a transaction, before it begins.
func (i *Inbox) survey(ctx context.Context) (bookmark, error) {
	ctx, cancel := i.store.bounded(ctx)
	defer cancel()
	return retry(ctx, interrupted, func() (bookmark, error) {
		b := bookmark{done: nothingDone}
		const about = `SELECT CASE WHEN is_called THEN last_value ELSE 0 END, weir.incarnation() FROM weir.inbox_id_seq`
		err := i.pool.QueryRow(ctx, about).Scan(&b.last, &b.incarnation)
		if err == nil && b.incarnation == 0 { // the server crashed, or is new: it is to be known from what it was before
			if _, err = i.pool.Exec(ctx, `INSERT INTO weir.incarnation DEFAULT VALUES ON CONFLICT DO NOTHING`); err == nil {
				err = i.pool.QueryRow(ctx, about).Scan(&b.last, &b.incarnation)
			}
		}
		if err == nil {
			_, err = i.pool.Exec(ctx, `SELECT pg_current_xact_id()`)
		}
		b.passed = b.last
		return b, err
	})
}

// covers tells whether what was looked through is still true: the server is the same and did not crash, and its ids did not go back.
func (b bookmark) covers(now bookmark) bool {
	return now.incarnation != 0 && b.incarnation == now.incarnation && b.low <= now.last
}

// finish ends a round, if one is under way: all that could be seen in goal is moved.
func (b *bookmark) finish() {
	if b.goal == "" {
		return
	}
	b.done, b.low = b.goal, max(b.low, b.next)
	b.goal, b.after, b.next = "", 0, 0
}

// walks tells whether looks go over all of the inbox, as in a first round they do.
func (b bookmark) walks() bool { return b.done == nothingDone }

func (i *Inbox) look(ctx context.Context, round bookmark) (*Chunk, error) {
	most := i.store.opts.answerMax
	if round.walks() {
		most = walkMax
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return retry(ctx, interrupted, func() (*Chunk, error) {
		conn, err := i.pool.Acquire(ctx)
		if err != nil {
			return nil, notSent(err)
		}
		defer conn.Release()
		foreign := false
		if round.walks() {
			tx, err := conn.Begin(ctx)
			if err != nil {
				return nil, err
			}
			defer tx.Rollback(ctx)
			if _, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true)`,
				strconv.FormatInt(serverMax(walkMax).Milliseconds(), 10)); err != nil {
				return nil, err
			}
			// Does any row bear a number that the server has not given out yet? By index: that is where such rows are, and dead ones are not.
			if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM weir.inbox WHERE xact >= pg_snapshot_xmax(pg_current_snapshot()))`).Scan(&foreign); err != nil {
				return nil, err
			}
		}
		round := round
		var goal []byte
		if round.goal != "" {
			goal = []byte(round.goal)
		}
		rows := lookStatement.run(ctx, conn.Conn().PgConn(), i.store.opts.Pooled,
			[]byte(round.done), int8Value(round.low), goal, int8Value(round.after), int4Value(lookRows), int8Value(lookBytes))
		c := &Chunk{}
		size := 0
		for rows.NextRow() {
			row := rows.Values()
			if row[4] == nil {
				round.begin(string(row[0]), bigint(row[1]), bigint(row[2]))
				c.Hushed = time.Duration(integer(row[3])) * time.Second
				continue
			}
			c.Rows = append(c.Rows, parseRow(row))
			size += int(integer(row[10]))
		}
		if _, err := rows.Close(); err != nil {
			return nil, err
		}
		if foreign {
			round.next = 0 // of rows that came with a dump no id says when they appear: the next round goes over all, too
		}
		c.round = round
		c.Full = len(c.Rows) == lookRows || size >= lookBytes
		return c, nil
	})
}

// begin takes in what a look saw of the inbox as a whole.
func (b *bookmark) begin(seen string, last, incarnation int64) {
	b.last, b.incarnation = last, incarnation
	if b.goal == "" {
		b.goal, b.next = seen, b.passed
	}
}

func parseRow(row [][]byte) Row {
	r := Row{ID: bigint(row[4]), Partition: -1, Base: -1, Key: bytes.Clone(row[7]), Value: bytes.Clone(row[8]), Headers: bytes.Clone(row[9]),
		Time: timestamp(bigint(row[11])), Group: string(row[12])}
	copy(r.Topic[:], row[5])
	if row[6] != nil {
		r.Partition = integer(row[6])
	}
	if row[13] != nil {
		r.Next = eventlog.Offset(bigint(row[13]))
	}
	if row[14] != nil {
		r.Base = bigint(row[14])
	}
	return r
}

// timestamp reads PostgreSQL's: microseconds since the year 2000.
func timestamp(us int64) time.Time {
	const year2000 = 946684800
	return time.UnixMicro(us).Add(year2000 * time.Second)
}

// Move deletes rows of the inbox and commits the entry made of them, in one transaction and one trip. It returns where the entry's
// batches begin. Rows of which the entry has nothing are dropped.
//
// ErrTaken, eventlog.ErrNoPartition, eventlog.ErrUnavailable: nothing was done. After eventlog.ErrUnsure the next Look tells.
func (i *Inbox) Move(ctx context.Context, ids []int64, e eventlog.Entry) ([]eventlog.Offset, error) {
	f, outcomes := gather([]eventlog.Entry{e})
	if outcomes[0].Err != nil {
		return nil, outcomes[0].Err
	}
	last := i.at().last
	bases, err := retry(ctx, undone, func() ([]int64, error) {
		return i.send(ctx, moveStatement, slices.Insert(f.params(), 0, int8Array(ids)))
	})
	if err != nil {
		return nil, fmt.Errorf("move %d rows out of the inbox: %w", len(ids), notMoved(err))
	}
	i.mu.Lock()
	i.mark.passed = max(i.mark.passed, last)
	i.mu.Unlock()
	offsets := make([]eventlog.Offset, len(bases))
	for n, base := range bases {
		offsets[n] = eventlog.Offset(base)
	}
	if len(f.body) > 0 {
		i.store.sweeper.wrote(int64(len(f.body)), i.store.opts.SegmentBytes)
		i.store.news.tell()
	}
	return offsets, nil
}

// Position is a group's key that an entry puts, and what was known of it. A key that is at another base was written since, by
// somebody else, and is left as it is.
type Position struct {
	Key  string
	Base int64
}

// Carry deletes rows of the inbox and commits the entries made of them, in one transaction and one trip, but for the puts of positions
// that somebody else wrote meanwhile.
//
// ErrTaken, eventlog.ErrStale (of any of the entries), eventlog.ErrUnavailable: nothing was done. After eventlog.ErrUnsure the next Look
// tells.
func (i *Inbox) Carry(ctx context.Context, ids []int64, positions []Position, entries []eventlog.Entry) error {
	f, outcomes := gather(entries)
	for _, o := range outcomes {
		if o.Err != nil {
			return o.Err
		}
	}
	keys, bases := make([]string, len(positions)), make([]int64, len(positions))
	for n, p := range positions {
		keys[n], bases[n] = p.Key, p.Base
	}
	_, err := retry(ctx, undone, func() ([]int64, error) {
		return i.send(ctx, carryStatement, slices.Insert(f.params(), 0, int8Array(ids), textArray(keys), int8Array(bases)))
	})
	if err != nil {
		return fmt.Errorf("carry %d positions of groups out of the inbox: %w", len(positions), notMoved(err))
	}
	return nil
}

// ForgetConsumers removes positions that weir.commit_offset keeps of topics that are gone, at most so many: one trip. It returns how
// many there were.
func (i *Inbox) ForgetConsumers(ctx context.Context, most int) (n int, err error) {
	ctx, cancel := i.store.bounded(ctx)
	defer cancel()
	if err := i.pool.QueryRow(ctx, `SELECT weir.forget_consumers($1)`, most).Scan(&n); err != nil {
		return 0, fmt.Errorf("forget positions of topics that are gone: %w", writeFailed(err))
	}
	return n, nil
}

// Still returns those of some rows that nobody took out of the inbox yet, each once: one trip.
func (i *Inbox) Still(ctx context.Context, rows []Row) ([]Row, error) {
	ctx, cancel := i.store.bounded(ctx)
	defer cancel()
	ids := make([]int64, len(rows))
	for n := range rows {
		ids[n] = rows[n].ID
	}
	there, err := retry(ctx, interrupted, func() (map[int64]bool, error) {
		found, err := i.pool.Query(ctx, `SELECT id FROM weir.inbox WHERE id = ANY ($1)`, ids)
		if err != nil {
			return nil, err
		}
		there := make(map[int64]bool)
		var id int64
		_, err = pgx.ForEachRow(found, []any{&id}, func() error { there[id] = true; return nil })
		return there, err
	})
	if err != nil {
		return nil, fmt.Errorf("ask whether %d rows are still in the inbox: %w", len(rows), readFailed(err))
	}
	var still []Row
	for _, row := range rows {
		if there[row.ID] {
			still = append(still, row)
			delete(there, row.ID)
		}
	}
	return still, nil
}

// notMoved explains the failure of a move.
func notMoved(err error) error {
	switch code(err) {
	case "WE090":
		return ErrTaken
	case "WE091":
		return eventlog.ErrNoPartition
	case "WE092":
		return eventlog.ErrStale
	}
	return writeFailed(err)
}

func (i *Inbox) send(ctx context.Context, s statement, params [][]byte) ([]int64, error) {
	conn, err := i.pool.Acquire(ctx)
	if err != nil {
		return nil, notSent(err)
	}
	defer conn.Release()
	ctx, cancel := i.store.detached(ctx)
	defer cancel()
	result := s.run(ctx, conn.Conn().PgConn(), i.store.opts.Pooled, params...).Read()
	if result.Err != nil {
		return nil, result.Err
	}
	row := result.Rows[0]
	if row[0][0] == 0 {
		return nil, ErrTaken
	}
	return numbers(row[1]), nil
}

// Pass tells that the rows of a chunk are dealt with: moved, or left where they are until Rewind.
func (i *Inbox) Pass(c *Chunk) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(c.Rows) > 0 {
		i.mark.after = c.Rows[len(c.Rows)-1].ID
	}
	if !c.Full {
		i.mark.finish()
	}
}

// Abandon tells that a chunk could not be moved. The next Look begins anew with what is there then; but a walk goes on, from where the chunk began.
func (i *Inbox) Abandon() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.mark.walks() {
		return
	}
	i.mark.goal, i.mark.after, i.mark.next = "", 0, 0
}

// Rewind forgets how far the inbox was looked through.
func (i *Inbox) Rewind() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.mark = bookmark{done: nothingDone}
}

// Wide tells whether many ids were given out since the last move, to transactions that are open or were rolled back: each look walks
// them all. A move, of nothing if need be, puts them behind us.
func (i *Inbox) Wide() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.mark.last-max(i.mark.low, i.mark.passed) > strideMax
}

// Hush tells publishers that for so long, in whole seconds, they need not notify; 0: that they must, from now on.
func (i *Inbox) Hush(ctx context.Context, length time.Duration) error {
	_, err := i.hush(ctx, `SELECT `+setHushed, int64(length/time.Second))
	return err
}

// HushUnheard does the same where no other process listens, and reports whether it did.
func (i *Inbox) HushUnheard(ctx context.Context, length time.Duration) (bool, error) {
	return i.hush(ctx, `SELECT `+setHushed+` WHERE NOT `+othersListen("$2"), int64(length/time.Second), i.store.news.ears())
}

const setHushed = `setval('weir.hushed', floor(extract(epoch FROM clock_timestamp()))::bigint + $1)`

func (i *Inbox) hush(ctx context.Context, sql string, args ...any) (done bool, err error) {
	ctx, cancel := i.store.bounded(ctx)
	defer cancel()
	tag, err := i.pool.Exec(ctx, sql, args...)
	if err != nil {
		return false, fmt.Errorf("tell publishers whether to notify: %w", writeFailed(err))
	}
	return tag.RowsAffected() > 0, nil
}

// Listening reports whether this process hears notifications now.
func (i *Inbox) Listening() bool { return i.store.news.heard() }

// pollInbox is a row beside the bounds of partitions, so that a poll costs one query with it or without: how many rows are new (0 or
// 1), the last id given out, and the server's incarnation.
const pollInbox = `
	UNION ALL
	SELECT -1, count(id), max(last), max(incarnation)
	FROM weir.look($1::text::pg_snapshot, $2, NULL, $3, 1, 1)`

// polled takes in what a poll saw.
func (i *Inbox) polled(rows, last, incarnation int64) {
	b := i.at()
	if rows > 0 || !b.covers(bookmark{last: last, incarnation: incarnation}) || last-max(b.low, b.passed) > strideMax {
		i.stir()
	}
}

// place returns what a poll needs to know; false while there is nothing for polls to look for, because no mover runs, or because its first round
// is under way: a poll would walk the same way. In a round a poll looks only at what the round has not come to: before that may lie millions of
// rows that are moved, and that some open transaction still keeps. What appears there is found when the round is over.
func (i *Inbox) place() (done string, low, after int64, known bool) {
	b := i.at()
	return b.done, b.low, b.after, i.attended.Load() && !b.walks()
}
