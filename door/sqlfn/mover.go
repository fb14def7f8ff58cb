package sqlfn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/recovered"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/stream"
)

const (
	// takenPause is the average wait of a mover that found another one active.
	takenPause = 200 * time.Millisecond
	// retryMost is the longest wait after an error.
	retryMost = 2 * time.Second
	// retryRowsAfter is the time after which rows that could not be moved are tried again.
	retryRowsAfter = time.Minute
	// muteFor is how long publishers skip NOTIFY after a mover that polls many times a second (see
	// pace) asked them to; muteEvery is how often it asks. If the mover is killed, they notify
	// again when muteFor has passed.
	muteFor, muteEvery = 3 * time.Second, time.Second
	// pollEvery is the polling interval without notifications.
	pollEvery = 250 * time.Millisecond
	// unmuteTimeout bounds the call that turns notifications on again when a mover stops.
	unmuteTimeout = time.Second
)

// Config sets a Mover up. The zero value of every field means its default.
type Config struct {
	Logger   *slog.Logger    // default: slog.Default()
	Tracer   eventlog.Tracer // default: none
	Observer Observer        // default: none
	Poll     time.Duration   // how often the inbox is polled without notifications; default 250 ms

	// DrainClaims bounds how long claims in progress are waited for when Run's context has ended;
	// default 3 s.
	DrainClaims time.Duration

	Streams *stream.Streams // appends to streams; nil: what sessions append stays in the inbox
	Queues  *queue.Queues   // enqueues delayed messages and messages with a unique key, and serves claims; nil: such messages stay in the inbox, and no claim is served

	partitioner publish.Partitioner // only tests set it; default: publish.Default
}

// Observer receives what the mover did, for metrics.
type Observer interface {
	// Moved is called after each move, with the number of rows and the time the oldest waited.
	Moved(rows int, oldest time.Duration)
	// Waiting is called after each poll, with an upper bound of the rows in the inbox and the age
	// of the oldest; 0: none. Rows that are not visible (uncommitted) when it polls are not
	// counted.
	Waiting(rows int64, oldest time.Duration)
	// Failed is called after each poll or move that failed, time-outs included.
	Failed()
}

// Mover moves what SQL sessions committed into the log. Any number of processes may run one: one
// moves at a time.
type Mover struct {
	log         *eventlog.Log
	door        *Door
	inbox       *inbox
	cfg         Config
	pace        pace
	incarnation incarnation               // the database incarnation that deleted and positions belong to
	deleted     map[eventlog.TopicID]bool // deleted topics; ids are never reused
	skippedAt   time.Time                 // when the mover first skipped rows that cannot be moved; zero: none are skipped
	blocked     map[partitionKey]bool     // partitions with skipped rows; later rows of these wait too
	held        map[uint64]bool           // keys with skipped rows, by row.keyHash; later messages of these wait too; at most heldMax

	mutedAt time.Time // when this mover last muted the publishers; zero: they are not muted by it

	backlog   backlog
	positions positions
	prunedAt  time.Time // when positions of deleted topics were last removed
}

// New returns a mover of door's inbox into log.
func New(log *eventlog.Log, door *Door, cfg Config) *Mover {
	cfg.Poll = cmp.Or(cfg.Poll, pollEvery)
	cfg.DrainClaims = cmp.Or(cfg.DrainClaims, 3*time.Second)
	if cfg.partitioner == nil {
		cfg.partitioner = publish.Default
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Observer == nil {
		cfg.Observer = nobody{}
	}
	cfg.Tracer = eventlog.Traced(cfg.Tracer)
	in := door.inbox()
	in.made = func(id eventlog.TopicID) bool {
		_, err := log.TopicByID(id)
		return err == nil
	}
	return &Mover{log: log, door: door, inbox: in, cfg: cfg, deleted: make(map[eventlog.TopicID]bool), blocked: make(map[partitionKey]bool), held: make(map[uint64]bool)}
}

type nobody struct{}

func (nobody) Moved(int, time.Duration)     {}
func (nobody) Waiting(int64, time.Duration) {}
func (nobody) Failed()                      {}

// Run moves rows, and serves claims, until ctx ends. It polls as well, because notifications may be
// off or lost.
func (m *Mover) Run(ctx context.Context) error {
	defer m.unmute(context.WithoutCancel(ctx))
	if m.cfg.Queues != nil {
		var serving sync.WaitGroup
		defer serving.Wait()
		serving.Go(func() { newClaims(m.door, m.cfg).run(ctx) })
	}
	failures := 0
	for ctx.Err() == nil {
		began := time.Now()
		more, err := m.try(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && failures > 0:
			m.cfg.Logger.Info("events published by SQL are moved into the log again", "failures", failures)
			failures = 0
		case err != nil && !errors.Is(err, errTaken):
			if failures == 0 {
				m.cfg.Logger.Log(ctx, severity(err), "cannot move events published by SQL into the log; retrying", append([]any{"err", err}, recovered.Logged(err)...)...)
			}
			failures++
			m.cfg.Observer.Failed()
		}
		m.reportBacklog(more, err)
		wait := m.pauseAfter(more, err, failures, time.Since(began))
		m.idle(ctx, wait, began, m.door.stirred)
	}
	return nil
}

// try runs step and turns a panic into an error. After a panic it drops all cached state, so that
// the next step scans the inbox from its beginning.
func (m *Mover) try(ctx context.Context) (more bool, err error) {
	err = recovered.Do(func() error {
		more, err = m.step(ctx)
		return err
	})
	if panicked(err) {
		more = false
		m.positions.rows, m.positions.doubt = nil, false
		m.inbox.rewind()
	}
	return more, err
}

func panicked(err error) bool {
	var panicked *recovered.Error
	return errors.As(err, &panicked)
}

// severity returns the log level of a failed step: Error for a panic, which is a bug in weir or in
// the partitioner, otherwise Warn.
func severity(err error) slog.Level {
	if panicked(err) {
		return slog.LevelError
	}
	return slog.LevelWarn
}

// reportBacklog reports the backlog to the observer, and logs a warning if the inbox has had rows
// for a long time.
func (m *Mover) reportBacklog(more bool, err error) {
	now := time.Now()
	if err == nil && !more {
		m.backlog.emptied(now)
	}
	m.cfg.Observer.Waiting(m.backlog.rows, m.backlog.age(now))
	if !errors.Is(err, errTaken) && m.backlog.warns(now) {
		m.cfg.Logger.Warn("weir.inbox has a backlog: events are published faster than they are moved, or the database is slow",
			"events_at_most", m.backlog.rows, "oldest", m.backlog.age(now).Round(time.Second), "for", now.Sub(m.backlog.since).Round(time.Second))
	}
}

// pauseAfter returns how long to wait after a step; negative: until a notification or the next
// poll.
func (m *Mover) pauseAfter(more bool, err error, failures int, took time.Duration) time.Duration {
	switch {
	case errors.Is(err, errTaken):
		return takenPause/2 + rand.N(takenPause)
	case err != nil:
		return min(20*time.Millisecond<<min(failures, 10), retryMost)
	case more:
		return 0
	case m.pace.polling:
		return max(0, m.pace.pause()-took) // not negative: publishers do not notify while muted
	}
	return -1
}

// idle waits for the duration wait, or until ctx ends. If wait is negative it waits for a
// notification, the next poll or due positions. After a notification it waits until pollFast after
// the last poll began, because any session can notify in a loop.
func (m *Mover) idle(ctx context.Context, wait time.Duration, began time.Time, stirred <-chan struct{}) {
	if wait == 0 {
		return
	}
	var timer, carry <-chan time.Time
	if wait > 0 {
		timer, stirred = time.After(wait), nil
	} else {
		timer = time.After(m.cfg.Poll*4/5 + rand.N(m.cfg.Poll/5+1))
		if due := m.positions.due(); due >= 0 {
			carry = time.After(due)
		}
	}
	select {
	case <-ctx.Done():
	case <-stirred:
		m.idle(ctx, max(0, pollFast-time.Since(began)), began, nil)
	case <-timer:
	case <-carry:
	}
}

// step polls the inbox once and moves what it found: two statements if it found only events. more:
// poll again without a pause.
func (m *Mover) step(ctx context.Context) (more bool, err error) {
	if !m.skippedAt.IsZero() && time.Since(m.skippedAt) > retryRowsAfter {
		m.skippedAt = time.Time{}
		clear(m.blocked)
		clear(m.held)
		m.positions.rows = nil // rewind makes the poll find them again
		m.inbox.rewind()
	}
	chunk, err := m.inbox.poll(ctx)
	if err != nil {
		return false, err
	}
	m.resetFor(chunk.round.of)
	m.backlog.found(chunk)
	if of := chunk.round.of.store.InMark(); !m.log.In(of) {
		return false, fmt.Errorf("%w: the log is not in incarnation %s of the database", eventlog.ErrUnavailable, of.Store)
	}
	if len(chunk.rows) > 0 {
		if err := m.carryCreations(ctx, chunk.rows); err != nil {
			return false, err
		}
		rows, err := m.withTopics(ctx, chunk.rows)
		if err != nil {
			return false, err
		}
		for rows := range inOrder(rows) {
			if err := m.moveEvents(ctx, rows); err != nil {
				return false, err
			}
			if err := m.moveMessages(ctx, rows); err != nil {
				return false, err
			}
			if err := m.moveAppends(ctx, rows); err != nil {
				return false, err
			}
		}
		m.positions.add(chunk.rows)
	} else if m.inbox.wide() {
		if _, err := m.inbox.move(ctx, nil, eventlog.Entry{}); err != nil {
			return false, err
		}
	}
	m.inbox.pass(chunk)
	if m.positions.due() == 0 {
		if err := m.carryPositions(ctx); err != nil {
			return false, err
		}
	}
	if time.Since(m.prunedAt) >= forgetEvery {
		m.forget(ctx)
	}
	m.pace.woken = m.door.store.Listening()
	m.pace.note(time.Now(), len(chunk.rows))
	return chunk.more || m.inbox.behind(), m.mute(ctx, chunk.muted)
}

// resetFor drops cached state when the database is in another incarnation: deleted topics may exist
// again, and row ids may be reused. poll has rewound the inbox already.
func (m *Mover) resetFor(now incarnation) {
	if m.incarnation == now {
		return
	}
	m.incarnation = now
	clear(m.deleted)
	clear(m.blocked)
	clear(m.held)
	m.skippedAt = time.Time{}
	m.positions.rows, m.positions.doubt = nil, false
}

// mute turns the publishers' notifications off while this mover polls many times a second (see
// pace), and on again afterwards. The last call of any mover counts; a mover that still polls so
// often repeats its own.
func (m *Mover) mute(ctx context.Context, already time.Duration) error {
	length := time.Duration(0)
	switch {
	case m.pace.polling && time.Since(m.mutedAt) < muteEvery:
		return nil
	case m.pace.polling:
		length, m.mutedAt = muteFor, time.Now()
	case !m.mutedAt.IsZero():
		m.mutedAt = time.Time{}
	// If a mute would last longer than muteFor, the database's clock was set back since: end it,
	// below. Any other mute ends by itself.
	case already <= muteFor || !m.door.store.Listening():
		return nil
	}
	return m.inbox.mute(ctx, length)
}

// unmute turns notifications on when this mover stops, for the movers that remain.
func (m *Mover) unmute(ctx context.Context) {
	if m.mutedAt.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, unmuteTimeout)
	defer cancel()
	if err := m.inbox.mute(ctx, 0); err != nil {
		m.cfg.Logger.Info("cannot turn notifications on while stopping: for 3 s, events published by SQL may wait for the next poll", "err", err)
	}
}

// moveEvents moves a chunk's events in one transaction. If that fails because of the rows, it moves
// each partition by itself; events of a partition that fails stay in the inbox.
func (m *Mover) moveEvents(ctx context.Context, rows []row) error {
	load, err := m.load(ctx, rows)
	if err != nil {
		return err
	}
	err = m.moveRows(ctx, load.all()...)
	if err == nil || isTransient(err) {
		return err
	}
	// Perhaps a topic was deleted just now: refresh the catalog, then try each partition by itself.
	if err := m.log.RefreshTopics(ctx); err != nil {
		return err
	}
	if load, err = m.load(ctx, rows); err != nil {
		return err
	}
	for _, part := range load.all() {
		if err := m.moveRows(ctx, part); isTransient(err) {
			return err
		} else if err != nil {
			m.blocked[partitionKey{part.topic.ID, part.partition}] = true
			for i := range part.records {
				m.hold(&row{topic: part.topic.ID, key: part.records[i].Key})
			}
			m.skip("cannot move events published by SQL into their partition; they and later events of the partition stay in weir.inbox and are retried",
				"topic", part.topic.Name, "partition", part.partition, "events", len(part.ids), "err", err)
		}
	}
	return nil
}

// skip logs that rows cannot be moved and leaves them in the inbox for retryRowsAfter, so that
// other rows go on.
func (m *Mover) skip(message string, about ...any) {
	if m.skippedAt.IsZero() {
		m.skippedAt = time.Now()
	}
	m.cfg.Logger.Error(message, append(about, "again", retryRowsAfter)...)
}

// isTransient reports whether an error is not about the rows: the store is unavailable, the outcome
// is unknown, or another mover was faster.
func isTransient(err error) bool {
	return errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure) || errors.Is(err, errTaken) ||
		errors.Is(err, context.Canceled)
}

// moveRows moves rows of several partitions in one transaction, and adds the appended batches to
// the log's tail.
func (m *Mover) moveRows(ctx context.Context, partitions ...*partitionRows) error {
	var ids []int64
	var e eventlog.Entry
	var runs []enqueuedRun
	oldest := time.Now()
	for _, part := range partitions {
		ids = append(ids, part.ids...)
		if len(part.records) == 0 {
			continue // its rows are only deleted
		}
		err := recovered.Do(func() error {
			batches, err := part.topic.SealAll(part.topic.Partitions[part.partition], part.records)
			runs = part.addRuns(runs, len(e.Batches), batches)
			e.Batches = append(e.Batches, batches...)
			return err
		})
		if err != nil {
			return fmt.Errorf("seal %d events for topic %q: %w", len(part.ids), part.topic.Name, err)
		}
		if part.since.Before(oldest) {
			oldest = part.since
		}
	}
	if len(ids) == 0 {
		return nil
	}
	info := eventlog.SpanInfo{Records: len(ids)}
	for _, part := range partitions {
		for i := range part.records {
			info.Link(part.records[i].Headers)
		}
	}
	ctx, end := m.cfg.Tracer.Start(ctx, "mover", info)
	bases, err := m.inbox.move(ctx, ids, e, runs...)
	end(err)
	if err != nil {
		return err
	}
	placed := make([]eventlog.Placed, len(bases))
	for i, base := range bases {
		placed[i] = eventlog.Placed{Base: base, Batch: e.Batches[i]}
	}
	m.log.Committed(m.incarnation.store.InMark(), placed)
	m.cfg.Observer.Moved(len(ids), time.Since(oldest))
	return nil
}
