package sqlfn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/recovered"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

const (
	// standBack is about how long a mover waits that found another at work.
	standBack = 200 * time.Millisecond
	// retryMost is the longest wait after an error.
	retryMost = 2 * time.Second
	// leaveFor is how long rows that could not be moved are left alone.
	leaveFor = time.Minute
	// hushFor is how long publishers do not notify after a mover that watches the inbox closely said so, and hushEvery how often it does. Of one
	// that is killed they find out when the time is over.
	hushFor, hushEvery = 3 * time.Second, time.Second
	// pollEvery is the pause between two looks where nothing is notified.
	pollEvery = 250 * time.Millisecond
	// goodbye bounds the last word to publishers when a mover stops.
	goodbye = time.Second
)

// Config sets a Mover up. The zero value of every field means its default.
type Config struct {
	Partitioner publish.Partitioner // default: publish.Default
	Logger      *slog.Logger        // default: slog.Default()
	Tracer      eventlog.Tracer     // default: nobody looks
	Observer    Observer            // default: nobody looks
	Poll        time.Duration       // how often the inbox is looked into when nothing was notified; default 250 ms
	Queues      *queue.Queues       // place messages that are to come later, or have a unique key; nil: those stay in the inbox
}

// Observer is told of what the mover does.
type Observer interface {
	// Moved follows every move: so many rows, the oldest of which had waited so long.
	Moved(rows int, oldest time.Duration)
	// Waiting follows every look: so many rows are in the inbox at most, the oldest for so long; 0: none. What this mover cannot see it does not
	// count.
	Waiting(rows int64, oldest time.Duration)
	// Failed follows every look and move that failed, also for want of time.
	Failed()
}

// Mover carries what SQL sessions committed into the log. Any number of processes may run one: one moves at a time.
type Mover struct {
	log   *eventlog.Log
	door  *Door
	inbox *inbox
	cfg   Config
	pace  pace
	of    incarnation               // what gone and positions are about
	gone  map[eventlog.TopicID]bool // topics that were deleted; no id ever comes back
	left  time.Time                 // when the first of the rows was left in the inbox that cannot be moved; zero: none were
	held  map[laneKey]bool          // partitions of which rows were left: later ones wait behind them

	hushed time.Time // when publishers were last told that they need not notify; zero: they must, for all that this mover said

	backlog   backlog
	positions positions
	forgot    time.Time // when positions of topics that are gone were last looked for
}

// New makes the mover of a log, through the door of its store.
func New(log *eventlog.Log, door *Door, cfg Config) *Mover {
	cfg.Poll = cmp.Or(cfg.Poll, pollEvery)
	if cfg.Partitioner == nil {
		cfg.Partitioner = publish.Default
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Observer == nil {
		cfg.Observer = nobody{}
	}
	cfg.Tracer = eventlog.Traced(cfg.Tracer)
	return &Mover{log: log, door: door, inbox: door.inbox(), cfg: cfg, gone: make(map[eventlog.TopicID]bool), held: make(map[laneKey]bool)}
}

type nobody struct{}

func (nobody) Moved(int, time.Duration)     {}
func (nobody) Waiting(int64, time.Duration) {}
func (nobody) Failed()                      {}

// Run moves until ctx ends. Its polls find what no notification told of.
func (m *Mover) Run(ctx context.Context) error {
	defer m.leaveHush(context.WithoutCancel(ctx))
	failures := 0
	for ctx.Err() == nil {
		began := time.Now()
		more, err := m.try(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && failures > 0:
			m.cfg.Logger.Info("events published by SQL are moved again", "failures", failures)
			failures = 0
		case err != nil && !errors.Is(err, errTaken):
			if failures == 0 {
				m.cfg.Logger.Log(ctx, severity(err), "events published by SQL cannot be moved into the log now; trying on", "err", err)
			}
			failures++
			m.cfg.Observer.Failed()
		}
		m.tellBacklog(more, err)
		wait := m.patience(more, err, failures, time.Since(began))
		m.rest(ctx, wait, began, m.door.stirred)
	}
	return nil
}

// try is step, where a panic is an error: it ends neither the process nor the mover, which lets go of all that it remembers and finds anew what is there.
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

// severity is how a step that failed is told: a panic is a fault of weir's or of the partitioner.
func severity(err error) slog.Level {
	if panicked(err) {
		return slog.LevelError
	}
	return slog.LevelWarn
}

// tellBacklog tells observers, and where the inbox is not emptied for long the log, what waits.
func (m *Mover) tellBacklog(more bool, err error) {
	now := time.Now()
	if err == nil && !more {
		m.backlog.emptied(now)
	}
	m.cfg.Observer.Waiting(m.backlog.rows, m.backlog.age(now))
	if !errors.Is(err, errTaken) && m.backlog.warns(now) {
		m.cfg.Logger.Warn("events published by SQL wait in weir.inbox: more come than are moved, or the database is slow",
			"events_at_most", m.backlog.rows, "oldest", m.backlog.age(now).Round(time.Second), "for", now.Sub(m.backlog.since).Round(time.Second))
	}
}

// patience is how long to wait after a step that took so long; negative: until the inbox is stirred.
func (m *Mover) patience(more bool, err error, failures int, took time.Duration) time.Duration {
	switch {
	case errors.Is(err, errTaken):
		return standBack/2 + rand.N(standBack)
	case err != nil:
		return min(20*time.Millisecond<<min(failures, 10), retryMost)
	case more:
		return 0
	case m.pace.close:
		return max(0, m.pace.pause()-took) // never negative: nobody would stir us
	}
	return -1
}

// rest waits: for so long, or, if that is negative, until the inbox is stirred, or the next poll or positions are due, but not less than lookEvery
// since the last look began: any session of the database can stir, in a loop. A pause that is given is never cut short: after an error it is what
// keeps the next try away, and positions wait as well.
func (m *Mover) rest(ctx context.Context, wait time.Duration, began time.Time, stirred <-chan struct{}) {
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
		m.rest(ctx, max(0, lookEvery-time.Since(began)), began, nil)
	case <-timer:
	case <-carry:
	}
}

// step looks once, and moves what it found: two trips. It reports whether it is worth looking again at once.
func (m *Mover) step(ctx context.Context) (more bool, err error) {
	if !m.left.IsZero() && time.Since(m.left) > leaveFor {
		m.left = time.Time{}
		clear(m.held)
		m.positions.rows = nil // they are found again, like all
		m.inbox.rewind()
	}
	chunk, err := m.inbox.look(ctx)
	if err != nil {
		return false, err
	}
	m.enter(chunk.round.of)
	m.backlog.found(chunk)
	if len(chunk.rows) > 0 {
		err := m.moveEvents(ctx, chunk.rows)
		if err == nil {
			err = m.moveMessages(ctx, chunk.rows)
		}
		if err != nil {
			m.inbox.abandon()
			return false, err
		}
		m.positions.add(chunk.rows)
		m.inbox.pass(chunk)
	} else if m.inbox.wide() {
		if _, err := m.inbox.move(ctx, nil, eventlog.Entry{}); err != nil {
			return false, err
		}
	}
	if m.positions.due() == 0 {
		if err := m.carryPositions(ctx); err != nil {
			return false, err
		}
	}
	if time.Since(m.forgot) >= forgetEvery {
		m.forgetConsumers(ctx)
	}
	m.pace.woken = m.door.store.Listening()
	m.pace.note(time.Now(), len(chunk.rows))
	return chunk.full, m.hush(ctx, chunk.hushed)
}

// enter lets go of what was remembered of the database before it became another: of topics that may be there again, and of rows whose ids may have been
// given to others. What is in the inbox is found anew.
func (m *Mover) enter(now incarnation) {
	if m.of == now {
		return
	}
	m.of = now
	clear(m.gone)
	clear(m.held)
	m.left = time.Time{}
	m.positions.rows, m.positions.doubt = nil, false
}

// hush tells publishers whether to notify. Other movers may say that they need not, too, each for as long as it watches closely.
func (m *Mover) hush(ctx context.Context, already time.Duration) error {
	length := time.Duration(0)
	switch {
	case m.pace.close && time.Since(m.hushed) < hushEvery:
		return nil
	case m.pace.close:
		length, m.hushed = hushFor, time.Now()
	case !m.hushed.IsZero():
		m.hushed = time.Time{}
	case already <= hushFor || !m.door.store.Listening():
		return nil // else there was nobody to hear them; now there is
	}
	return m.inbox.hush(ctx, length)
}

// leaveHush has publishers notify the movers that go on when this one stops.
func (m *Mover) leaveHush(ctx context.Context) {
	if m.hushed.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, goodbye)
	defer cancel()
	if err := m.inbox.hush(ctx, 0); err != nil {
		m.cfg.Logger.Info("publishers were not told that this mover stops: for some seconds events published by SQL may take a poll longer", "err", err)
	}
}

// moveEvents moves the events of a chunk. Where it cannot be done as a whole, it goes partition by partition: what cannot be moved stays in
// the inbox, and the others go on.
func (m *Mover) moveEvents(ctx context.Context, rows []row) error {
	load, err := m.load(ctx, rows)
	if err != nil {
		return err
	}
	err = m.carry(ctx, load.all()...)
	if err == nil || passing(err) {
		return err
	}
	// A topic may have been deleted a moment ago. If that is not it, something is wrong with some partition.
	if err := m.log.RefreshTopics(ctx); err != nil {
		return err
	}
	if load, err = m.load(ctx, rows); err != nil {
		return err
	}
	for _, lane := range load.all() {
		if err := m.carry(ctx, lane); passing(err) {
			return err
		} else if err != nil {
			m.held[laneKey{lane.topic.ID, lane.partition}] = true
			m.leave("events published by SQL stay in weir.inbox: they cannot be moved into their partition; later ones wait behind them; tried again later",
				"topic", lane.topic.Name, "partition", lane.partition, "events", len(lane.ids), "err", err)
		}
	}
	return nil
}

// leave lets rows rest where they are for a while, so that what is wrong with them is no one else's trouble.
func (m *Mover) leave(message string, about ...any) {
	if m.left.IsZero() {
		m.left = time.Now()
	}
	m.cfg.Logger.Error(message, append(about, "again", leaveFor)...)
}

// passing tells whether an error says nothing about the rows, but about the store, or that another mover was faster.
func passing(err error) bool {
	return errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure) || errors.Is(err, errTaken) ||
		errors.Is(err, context.Canceled)
}

// carry moves lanes, all in one transaction, and shows readers what was appended.
func (m *Mover) carry(ctx context.Context, lanes ...*lane) error {
	var ids []int64
	var e eventlog.Entry
	oldest := time.Now()
	for _, lane := range lanes {
		ids = append(ids, lane.ids...)
		var batches []eventlog.Batch
		err := recovered.Do(func() (err error) { batches, err = lane.seal(); return err })
		if err != nil {
			return fmt.Errorf("seal %d events for topic %q: %w", len(lane.ids), lane.topic.Name, err)
		}
		e.Batches = append(e.Batches, batches...)
		if len(lane.records) > 0 && lane.since.Before(oldest) {
			oldest = lane.since
		}
	}
	if len(ids) == 0 {
		return nil
	}
	ctx, end := m.cfg.Tracer.Start(ctx, "mover", eventlog.SpanInfo{Records: len(ids), Links: links(lanes)})
	bases, err := m.inbox.move(ctx, ids, e)
	end(err)
	if err != nil {
		return err
	}
	placed := make([]eventlog.Placed, len(bases))
	for i, base := range bases {
		placed[i] = eventlog.Placed{Base: base, Batch: e.Batches[i]}
	}
	m.log.Committed(m.of.store.Told(), placed)
	m.cfg.Observer.Moved(len(ids), time.Since(oldest))
	return nil
}

// linksMax bounds the spans that one span of a move is linked to.
const linksMax = 32

// links lists the spans in which events were published, where their headers tell.
func links(lanes []*lane) (list []eventlog.TraceContext) {
	for _, lane := range lanes {
		for i := range lane.records {
			if link, ok := eventlog.TraceOf(lane.records[i].Headers); ok && len(list) < linksMax {
				list = append(list, link)
			}
		}
	}
	return list
}
