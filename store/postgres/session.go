package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres/wire"
)

// Session is a pool of connections for the SQL of another package. It connects when it is first
// used, and closes with its store. Its errors are those of the store: eventlog.ErrUnavailable for
// what was certainly not done, eventlog.ErrUnsure for what may have been done.
type Session struct {
	store *Store
	pool  *pgxpool.Pool
}

// Session returns a session of one connection, on which the statements are prepared.
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

// Client opens connections like those of a user's program that calls the door's functions. The
// caller closes it.
func (s *Store) Client() *sql.DB { return stdlib.OpenDB(*s.config.ConnConfig.Copy()) }

// Readers returns the session of the connections that the store itself reads with.
func (s *Store) Readers() *Session { return &Session{s, s.readPool} }

// Read calls do with a connection, for queries that change nothing: it calls do again if the
// connection broke. most bounds the time of all calls together; 0: answerMax, as for any answer.
func (c *Session) Read(ctx context.Context, most time.Duration, do func(context.Context, *pgxpool.Conn) error) error {
	if most == 0 {
		most = c.store.opts.answerMax
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	_, err := retry(ctx, interrupted, func() (struct{}, error) { return struct{}{}, c.use(ctx, do) })
	return readFailed(c.store.fits(ctx, err))
}

// Write calls do with a connection, for a change in one statement or one transaction.
func (c *Session) Write(ctx context.Context, do func(context.Context, *pgxpool.Conn) error) error {
	ctx, cancel := c.store.bounded(ctx)
	defer cancel()
	return writeFailed(c.store.fits(ctx, c.use(ctx, do)))
}

func (c *Session) use(ctx context.Context, do func(context.Context, *pgxpool.Conn) error) error {
	if err := c.store.layout.Usable(); err != nil {
		return err
	}
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return notSent(err)
	}
	defer conn.Release()
	return do(ctx, conn)
}

// Ask runs a prepared statement, with binary parameters and results, on a connection of the
// session.
func (c *Session) Ask(ctx context.Context, conn *pgxpool.Conn, s wire.Statement, params ...[]byte) *pgconn.ResultReader {
	return s.Run(ctx, conn.Conn().PgConn(), c.store.opts.Pooled, params...)
}

// In returns eventlog.ErrRewound if the log on the store is in another incarnation.
func (c *Session) In(in Incarnation) error {
	if told := c.store.lastIncarnation.now(); told.Server != 0 && told != in {
		return fmt.Errorf("%w: the data was read in %v, and the log is in %v", eventlog.ErrRewound, in.InMark(), told.InMark())
	}
	return nil
}

// Commit commits entries with a statement that does something of its own in the same transaction.
// The statement calls weir.commit, whose parameters follow params, and weir.still_after with the
// last three. It returns one row, whose first column is true if it committed. That is one round
// trip, and one wait for the disk.
//
// in is the incarnation in which the caller read what the change depends on: the error is
// eventlog.ErrRewound if the store, or the log on it, is in another incarnation. If one entry
// cannot be stored, or deletes partitions, all are refused. Held keys are allowed, whatever
// Check.Holdable says: the caller itself moves the committed changes of held keys into the log.
func (c *Session) Commit(ctx context.Context, in Incarnation, by wire.Statement, params [][]byte, entries []eventlog.Entry) (done bool, row [][]byte, err error) {
	if err := cmp.Or(c.store.layout.Usable(), c.In(in)); err != nil {
		return false, nil, err
	}
	f, outcomes := gather(entries)
	for _, o := range outcomes {
		if o.Err != nil {
			return false, nil, o.Err
		}
	}
	if len(f.forgets) > 0 {
		return false, nil, fmt.Errorf("a commit of a session cannot delete partitions, but was given %v to delete", f.forgets)
	}
	if len(f.body) > flushMax {
		return false, nil, fmt.Errorf("%w: the flush has %d bytes, the limit is %d", eventlog.ErrTooLarge, len(f.body), flushMax)
	}
	params = slices.Concat(params, f.params(), in.params())
	row, err = retry(ctx, rolledBack, func() ([][]byte, error) {
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
		err = writeFailed(c.store.fits(ctx, err))
		c.store.remember(err)
		return false, nil, err
	}
	if done = row[0][0] != 0; done && slices.ContainsFunc(entries, bulky) {
		c.store.remember(nil)
	}
	if done && len(f.body) > 0 {
		c.store.sweeper.wrote(int64(len(f.body)), c.store.opts.SegmentBytes)
		c.store.news.tell()
	}
	return done, row, nil
}
