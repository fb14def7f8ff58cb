package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
)

const (
	// notifyPause is the least time between two notifications. PostgreSQL takes one lock for all that notify, so they are few, and
	// never part of a commit.
	notifyPause = 10 * time.Millisecond
	// audienceFor is how long the answer to "does anybody else listen?" is good.
	audienceFor = time.Second
	// heartbeat is how often a silent listening connection is tried.
	heartbeat = time.Minute
	// backoffMax is the longest wait before connecting again.
	backoffMax = 30 * time.Second
)

// news carries the word that something was committed, from Commit to the notifier.
type news struct {
	sent chan struct{} // holds one

	mu        sync.Mutex     // guards listening
	listening map[int64]bool // connections of this store, by the server's process: whether they listen, or did until just now
}

// listens notes that a connection listens, or does no more. The server may take a moment to see that one is closed, and holds its lock until
// then: it counts as ours until the next one listens.
func (n *news) listens(pid int64, is bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if is {
		maps.DeleteFunc(n.listening, func(_ int64, still bool) bool { return !still })
	}
	n.listening[pid] = is
}

// heard tells whether any connection listens.
func (n *news) heard() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(slices.Collect(maps.Values(n.listening)), true)
}

// ears lists the connections of which the server may believe that they listen.
func (n *news) ears() []int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.AppendSeq([]int64{}, maps.Keys(n.listening)) // never nil: that would be SQL's NULL
}

func (n *news) tell() {
	select {
	case n.sent <- struct{}{}:
	default:
	}
}

// Wake implements eventlog.Waker with LISTEN, on a connection of its own. Behind a pooler there is no LISTEN: the channel is nil
// and never wakes.
func (s *Store) Wake(ctx context.Context) (<-chan struct{}, error) {
	if s.opts.Pooled {
		return nil, nil
	}
	if s.closing.Err() != nil {
		return nil, eventlog.ErrClosed
	}
	woken := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closing, cancel)
	s.work.Go(func() {
		defer close(woken)
		defer stop()
		defer cancel()
		persist(ctx, func() error { return s.listen(ctx, woken) })
	})
	return woken, nil
}

// listen passes on what other processes notify, until the connection fails or ctx ends.
func (s *Store) listen(ctx context.Context, woken chan<- struct{}) error {
	conn, err := pgx.ConnectConfig(ctx, s.config.ConnConfig)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	self := int64(conn.PgConn().PID())
	s.news.listens(self, true)
	defer s.news.listens(self, false)
	// The shared lock tells the notifiers of other processes that somebody listens. It goes with the connection.
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock_shared($1, $2)`, advisoryClass, advisoryListen); err != nil {
		return err
	}
	ears := s.hearing()
	for channel := range ears {
		if _, err := conn.Exec(ctx, `LISTEN `+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
	}
	if _, err := conn.Exec(ctx, `LISTEN weir`); err != nil {
		return err
	}
	wake(woken) // something may have been committed while nobody listened
	for _, ear := range ears {
		wake(ear)
	}
	for {
		quiet, cancel := context.WithTimeout(ctx, heartbeat)
		notification, err := conn.WaitForNotification(quiet)
		cancel()
		switch {
		case err == nil && ears[notification.Channel] != nil:
			wake(ears[notification.Channel])
		case err == nil && notification.Payload != s.nonce:
			wake(woken)
		case err == nil:
		case ctx.Err() != nil || conn.IsClosed():
			return err
		default: // silence: is the connection still there?
			if err := s.ping(conn); err != nil {
				return err
			}
		}
	}
}

func (s *Store) ping(conn *pgx.Conn) error {
	ctx, cancel := s.step()
	defer cancel()
	return conn.Ping(ctx)
}

// Hear returns a channel that receives when some session notified. It is a hint: it receives for nothing at times, and not at all behind a pooler.
// To be called before Wake.
func (s *Store) Hear(channel string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ears[channel] == nil {
		s.ears[channel] = make(chan struct{}, 1)
	}
	return s.ears[channel]
}

func (s *Store) hearing() map[string]chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ears)
}

// Listening tells whether this process hears notifications now.
func (s *Store) Listening() bool { return s.news.heard() }

func wake(woken chan<- struct{}) {
	select {
	case woken <- struct{}{}:
	default:
	}
}

// notify tells other processes that this one committed, until ctx ends.
func (s *Store) notify(ctx context.Context) {
	persist(ctx, func() error {
		// The first word is waited for before there is a connection: a store that only reads needs none.
		select {
		case <-ctx.Done():
			return nil
		case <-s.news.sent:
		}
		conn, err := pgx.ConnectConfig(ctx, s.config.ConnConfig)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		s.news.tell()
		return s.announce(ctx, conn)
	})
}

// announce sends one notification for any number of commits, if anybody is there to hear it.
func (s *Store) announce(ctx context.Context, conn *pgx.Conn) error {
	var asked time.Time
	var audience bool
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.news.sent:
		}
		if time.Since(asked) > audienceFor {
			var err error
			if audience, err = s.audience(conn); err != nil {
				return err
			}
			asked = time.Now()
		}
		if !audience {
			continue
		}
		if err := s.shout(conn); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(notifyPause):
		}
	}
}

// audience tells whether another process listens.
func (s *Store) audience(conn *pgx.Conn) (others bool, err error) {
	ctx, cancel := s.step()
	defer cancel()
	err = conn.QueryRow(ctx, `SELECT `+othersListen("$1"), s.news.ears()).Scan(&others)
	return others, err
}

// othersListen is true where connections listen, by the lock that each of them holds, but for our own.
func othersListen(own string) string {
	return fmt.Sprintf(`EXISTS (
		SELECT FROM pg_locks
		WHERE locktype = 'advisory' AND classid = %d AND objid = %d AND objsubid = 2 AND granted
		  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		  AND NOT pid = ANY (%s::bigint[]))`, advisoryClass, advisoryListen, own)
}

func (s *Store) shout(conn *pgx.Conn) error {
	ctx, cancel := s.step()
	defer cancel()
	_, err := conn.Exec(ctx, `SELECT pg_notify('weir', $1)`, s.nonce)
	return err
}

// persist runs work again whenever it fails, at longer and longer intervals, until ctx ends. It says nothing: all that fails here
// costs time, and the polls find out for themselves when the server is away.
func persist(ctx context.Context, work func() error) {
	wait := 100 * time.Millisecond
	for ctx.Err() == nil {
		began := time.Now()
		_ = work()
		if time.Since(began) > backoffMax {
			wait = 100 * time.Millisecond
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, backoffMax)
	}
}
