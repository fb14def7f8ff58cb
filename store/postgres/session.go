package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres/wire"
)

// Session is a connection, or a few, for the SQL of another package. It connects when it is first used, and ends with its store. Its errors are
// those of the store: what was certainly not done is eventlog.ErrUnavailable, what may have been done eventlog.ErrUnsure.
type Session struct {
	store *Store
	pool  *pgxpool.Pool
}

// Session makes a session of one connection, on which some statements are prepared.
func (s *Store) Session(ready ...wire.Statement) (*Session, error) {
	pool, err := pool(s.config, 1, ready...)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions = append(s.sessions, pool)
	return &Session{s, pool}, nil
}

// Readers is the session of the connections that answer the store's own reads.
func (s *Store) Readers() *Session { return &Session{s, s.others} }

// Read has do ask something, which changes nothing: do is called again after the connection broke. It may take as long as most; 0 is as long as
// the store waits for any answer.
func (c *Session) Read(ctx context.Context, most time.Duration, do func(context.Context, *pgxpool.Conn) error) error {
	if most == 0 {
		most = c.store.opts.answerMax
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	_, err := retry(ctx, interrupted, func() (struct{}, error) { return struct{}{}, c.lend(ctx, do) })
	return readFailed(err)
}

// Write has do change something, in one statement or one transaction.
func (c *Session) Write(ctx context.Context, do func(context.Context, *pgxpool.Conn) error) error {
	ctx, cancel := c.store.bounded(ctx)
	defer cancel()
	return writeFailed(c.lend(ctx, do))
}

func (c *Session) lend(ctx context.Context, do func(context.Context, *pgxpool.Conn) error) error {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return notSent(err)
	}
	defer conn.Release()
	return do(ctx, conn)
}

// Ask runs a prepared statement, whose parameters and answer are binary, on a connection of the session.
func (c *Session) Ask(ctx context.Context, conn *pgxpool.Conn, s wire.Statement, params ...[]byte) *pgconn.ResultReader {
	return s.Run(ctx, conn.Conn().PgConn(), c.store.opts.Pooled, params...)
}

// Commit commits entries by way of a statement that does something of its own in the same transaction: it calls weir.commit, whose parameters come
// after those given here, and then weir.still with the three after them. It answers with one row, of which the first column tells whether it did it. One
// trip, and one wait for the disk.
//
// in is the incarnation in which the caller read what it builds on: the answer is eventlog.ErrRewound where the store, or the log on it, is in another. An
// entry that cannot be kept has all of them refused.
func (c *Session) Commit(ctx context.Context, in Incarnation, by wire.Statement, params [][]byte, entries []eventlog.Entry) (done bool, row [][]byte, err error) {
	if told := c.store.life.now(); told.Server != 0 && told != in {
		return false, nil, fmt.Errorf("%w: what was read is of %+v, and the log is in %+v", eventlog.ErrRewound, in, told)
	}
	f, outcomes := gather(entries)
	for _, o := range outcomes {
		if o.Err != nil {
			return false, nil, o.Err
		}
	}
	if len(f.body) > flushMax {
		return false, nil, fmt.Errorf("%w: a flush of %d bytes, and the limit is %d", eventlog.ErrTooLarge, len(f.body), flushMax)
	}
	params = slices.Concat(params, f.params(), in.params())
	row, err = retry(ctx, undone, func() ([][]byte, error) {
		conn, err := c.pool.Acquire(ctx)
		if err != nil {
			return nil, notSent(err)
		}
		defer conn.Release()
		ctx, cancel := c.store.detached(ctx)
		defer cancel()
		result := c.Ask(ctx, conn, by, params...).Read()
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Rows[0], nil
	})
	if err != nil {
		err = writeFailed(err)
		c.store.remember(err)
		return false, nil, err
	}
	if done = row[0][0] != 0; done && len(f.body) > 0 {
		c.store.sweeper.wrote(int64(len(f.body)), c.store.opts.SegmentBytes)
		c.store.news.tell()
	}
	return done, row, nil
}
