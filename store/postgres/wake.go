package postgres

import (
	"context"
	"errors"
	"maps"
	"math"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/recovered"
)

const (
	// notifyPause is the least time between two notifications. NOTIFY takes one lock for the whole
	// server, so notifications are few, and never part of a commit.
	notifyPause = 10 * time.Millisecond
	// audienceFor is how long the result of audience is used.
	audienceFor = time.Second
	// heartbeat is how often a listening store renews its row in weir.listener, which also tests
	// the connection. listensFor is how long a row is valid.
	heartbeat  = time.Minute
	listensFor = 3 * time.Minute
	// backoffMax is the longest wait before connecting again.
	backoffMax = 30 * time.Second
	// usageEvery is how often the usage of the server's notification queue is read.
	usageEvery = 2 * time.Second
	// usageMax is the share of the queue above which weir.notify does not notify.
	usageMax = 0.5
)

// news signals from Commit to the notifier that something was committed.
type news struct {
	sent      chan struct{} // holds one
	listening atomic.Int32  // connections of this store that listen
	usage     atomic.Uint64 // which share of the server's notification queue was used when it was last read: the bits of a float64
}

// used returns the share of the server's notification queue that was used when it was last read.
func (n *news) used() float64 { return math.Float64frombits(n.usage.Load()) }

func (n *news) tell() {
	select {
	case n.sent <- struct{}{}:
	default:
	}
}

// Wake implements eventlog.Waker with LISTEN, on a connection of its own. Through a pooler there is
// no LISTEN: the channel is nil.
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
		s.persist(ctx, func() error { return s.listen(ctx, woken) })
	})
	return woken, nil
}

// listen passes on notifications of other processes, until the connection fails or ctx ends.
func (s *Store) listen(ctx context.Context, woken chan<- struct{}) error {
	conn, err := connect(ctx, s.config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := s.enroll(conn); err != nil {
		return err
	}
	s.news.listening.Add(1)
	defer func() {
		if s.news.listening.Add(-1) == 0 {
			s.wakeHearers()
			s.unenroll(conn)
		}
	}()
	channels := s.notified()
	for channel := range channels {
		if _, err := conn.Exec(ctx, `LISTEN `+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
	}
	if _, err := conn.Exec(ctx, `LISTEN weir`); err != nil {
		return err
	}
	wake(woken) // something may have been committed before LISTEN
	s.wakeHearers()
	due := time.Now().Add(heartbeat)
	for {
		quiet, cancel := context.WithDeadline(ctx, due)
		notification, err := conn.WaitForNotification(quiet)
		cancel()
		switch {
		case err == nil && channels[notification.Channel] != nil:
			wake(channels[notification.Channel])
		case err == nil && notification.Payload != s.nonce:
			wake(woken)
		case err != nil && (ctx.Err() != nil || conn.IsClosed()):
			return err
		}
		if time.Now().Before(due) {
			continue
		}
		if err := s.enroll(conn); err != nil { // this also finds out whether the connection is still there
			return err
		}
		due = time.Now().Add(heartbeat)
	}
}

// enroll records in weir.listener that this store listens, for listensFor.
func (s *Store) enroll(conn *pgx.Conn) error {
	ctx, cancel := s.step()
	defer cancel()
	_, err := conn.Exec(ctx, `SELECT weir.enroll($1, $2)`, s.nonce, listensFor)
	return err
}

// unenroll deletes the store's row in weir.listener. If that fails, a few notifications are sent
// without a listener.
func (s *Store) unenroll(conn *pgx.Conn) {
	ctx, cancel := s.step()
	defer cancel()
	_, _ = conn.Exec(ctx, `DELETE FROM weir.listener WHERE nonce = $1`, s.nonce)
}

// Hear returns a channel that receives after a session has run NOTIFY on the channel of that name,
// and when the answer of Listening changes. It is a hint: a receive may be needless, and through a
// pooler nothing is received. Call it before Wake.
func (s *Store) Hear(channel string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.channels[channel] == nil {
		s.channels[channel] = make(chan struct{}, 1)
	}
	return s.channels[channel]
}

// wakeHearers wakes those that wait for notifications, because the answer of Listening has changed:
// they may have to poll now.
func (s *Store) wakeHearers() {
	for _, hearer := range s.notified() {
		wake(hearer)
	}
}

func (s *Store) notified() map[string]chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.channels)
}

// Listening reports whether this process receives notifications now. While the server's
// notification queue is half full it does not, because nobody notifies.
func (s *Store) Listening() bool { return s.news.listening.Load() > 0 && s.news.used() < usageMax }

// Pooled reports whether a transaction pooler is in front of the server.
func (s *Store) Pooled() bool { return s.opts.Pooled }

// NotificationQueueUsage returns which share of the server's notification queue is used, from 0 to
// 1, as of some seconds ago.
func (s *Store) NotificationQueueUsage() float64 { return s.news.used() }

// watchUsage reads the usage of the server's notification queue, until ctx ends. It logs when weir
// stops to notify, and when it notifies again.
func (s *Store) watchUsage(ctx context.Context) {
	ticks := time.NewTicker(usageEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		usage, err := s.readUsage()
		if err != nil {
			continue // the polls report a server that does not answer
		}
		before := s.news.used()
		s.news.usage.Store(math.Float64bits(usage))
		if (usage >= usageMax) != (before >= usageMax) {
			s.wakeHearers()
		}
		switch {
		case usage >= usageMax && before < usageMax:
			s.opts.Logger.Warn("half of the server's notification queue is used: weir does not notify any more, and finds what is new by polling. "+queueAdvice, "used", usage)
		case usage < usageMax && before >= usageMax:
			s.opts.Logger.Info("less than half of the server's notification queue is used: weir notifies again", "used", usage)
		}
	}
}

// queueAdvice says why a notification queue fills, and what to do.
const queueAdvice = "Once it is full, transactions of other programs that notify cannot commit. A session that ran LISTEN and stays in a transaction keeps the server from emptying it: " +
	"find it in pg_stat_activity (state = 'idle in transaction'), and end it"

func (s *Store) readUsage() (usage float64, err error) {
	ctx, cancel := s.step()
	defer cancel()
	err = s.readPool.QueryRow(ctx, `SELECT pg_notification_queue_usage()`).Scan(&usage)
	return usage, err
}

func wake(woken chan<- struct{}) {
	select {
	case woken <- struct{}{}:
	default:
	}
}

// notify notifies other processes of the commits of this process, until ctx ends.
func (s *Store) notify(ctx context.Context) {
	s.persist(ctx, func() error {
		// Wait for the first commit before connecting: a store that only reads needs no connection
		// here.
		select {
		case <-ctx.Done():
			return nil
		case <-s.news.sent:
		}
		conn, err := connect(ctx, s.config)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		s.news.tell()
		return s.announce(ctx, conn)
	})
}

// announce sends one notification for any number of commits, if another process listens.
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
		if err := s.sendNotification(conn); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(notifyPause):
		}
	}
}

// audience reports whether another process listens.
func (s *Store) audience(conn *pgx.Conn) (others bool, err error) {
	ctx, cancel := s.step()
	defer cancel()
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM weir.listener l WHERE l.nonce <> $1 AND l.heard_at > clock_timestamp() - $2::interval)`,
		s.nonce, listensFor).Scan(&others)
	return others, err
}

func (s *Store) sendNotification(conn *pgx.Conn) error {
	ctx, cancel := s.step()
	defer cancel()
	_, err := conn.Exec(ctx, `SELECT weir.notify('weir', $1)`, s.nonce)
	return err
}

// persist runs work again whenever it ends, at longer and longer intervals, until ctx ends. It logs
// only panics: a failure here costs only latency, and the polls report a server that does not
// answer.
func (s *Store) persist(ctx context.Context, work func() error) {
	wait := 100 * time.Millisecond
	for ctx.Err() == nil {
		began := time.Now()
		var panicked *recovered.Error
		if err := recovered.Do(work); errors.As(err, &panicked) {
			s.opts.Logger.Error("notifications stopped because of a bug in weir; starting them again", append([]any{"err", err}, recovered.Logged(err)...)...)
		}
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
