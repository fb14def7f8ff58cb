package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// member is a shard, and what this process knows of it.
//
//	answers ── a call fails with ErrUnavailable or ErrUnsure ──► lost   logged once
//	lost ── Changes succeeds ──► answers                                logged once
//
// While it is lost, calls still try it, unless its last failure was slow: then only Changes does,
// without anybody waiting for it, and other calls fail immediately. The same is true of a shard
// that did not answer when the log entered the incarnations of the others, until the log has
// entered its incarnation, too (away.go).
type member struct {
	number int
	name   string
	store  eventlog.Store
	open   func(ctx context.Context, made bool) (eventlog.Store, error) // nil: the store was given
	away   *away                                                        // not nil: the shard did not answer when the set was opened, and this is its store
	logger *slog.Logger

	running *sync.WaitGroup // of the set
	commits atomic.Int64    // in progress, also those that were given up

	mu      sync.Mutex // guards what follows
	lost    error      // why it is lost; nil: it answers
	skip    bool       // it is lost, and the last failure was slow
	entered eventlog.Mark
	known   map[eventlog.Partition]eventlog.Bounds // of the incarnation in entered; they may be behind
	// passed is the incarnation of the shard that the log was told last, by Changes of the set.
	passed eventlog.Incarnation
	// unentered: the log entered an incarnation of the set without having heard of this shard, or
	// having heard of it in another incarnation than the one that the log takes it to be in; or the
	// shard told one that the log does not know yet. Then it is unknown what the shard holds, and
	// its store would check calls against the incarnation that its Changes returned last. So no
	// call but Changes is made before the log has heard of the shard.
	unentered bool
	why       error // why the set could not be entered when it was tried last; nil: it was
	// asked is not nil while the shard is asked which incarnation it is in, whatever it was in
	// before; it is closed when all answers are noted.
	asked  chan struct{}
	asking int // how often it is asked at the moment

	heard atomic.Bool // it answered when the log entered the incarnation

	flight *flight // the call of Changes that is in progress, or whose answer nobody has taken; used by Set.Changes only
}

// flight is a call of Changes.
type flight struct {
	since eventlog.Mark
	done  chan struct{} // closed when what follows is set
	moved []eventlog.Bounds
	mark  eventlog.Mark
	err   error
}

func newMember(number int, s Shard, logger *slog.Logger, running *sync.WaitGroup) *member {
	return &member{number: number, name: s.Name, store: s.Store, logger: logger, running: running, known: make(map[eventlog.Partition]eventlog.Bounds)}
}

func (m *member) String() string { return fmt.Sprintf("shard %d (%s)", m.number, m.name) }

// call asks the shard, for at most patience, and notes whether it answered.
func (m *member) call(ctx context.Context, patience time.Duration, ask func(context.Context) error) error {
	if err := m.out(); err != nil {
		return err
	}
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := ask(within)
	if err == nil {
		return nil
	}
	if ctx.Err() == nil { // the caller has not given up: that would say nothing about the shard
		m.failed(err, time.Since(began))
	}
	return fmt.Errorf("%v: %w", m, err)
}

// awaitAnswer waits, at most for readPatience, while the shard is asked which incarnation it is in.
func (m *member) awaitAnswer(ctx context.Context) error {
	m.mu.Lock()
	asked := m.asked
	m.mu.Unlock()
	if asked == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	select {
	case <-asked:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %v is asked what it holds: %w", eventlog.ErrUnavailable, m, context.Cause(ctx))
	}
}

// write is call for what the shard commits, for at most commitPatience from when the shard lets a
// commit begin: what it makes wait on purpose, such as a bucket with a linger, is not lost. The
// next commit may be another caller's, such as one that trims: then this one waits for the one
// after it.
func (m *member) write(ctx context.Context, ask func(context.Context) error) error {
	patience := commitPatience
	if costly, is := eventlog.As[eventlog.Costly](m.store); is {
		patience += max(0, time.Until(costly.NextCommit())) + costly.CommitEvery()
	}
	return m.call(ctx, patience, ask)
}

// errUnentered: what a shard holds is not known to the log yet.
var errUnentered = errors.New("the shard is not entered")

// out returns why calls do not try the shard; nil: they do.
func (m *member) out() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.unentered && errors.Is(m.why, eventlog.ErrUpgraded):
		return m.why
	case m.unentered && m.why != nil && m.lost == nil && m.entered != eventlog.Mark{}:
		return fmt.Errorf("%w: %w: %v has something else than before, and the set cannot be entered: %w", eventlog.ErrUnavailable, errUnentered, m, plain(m.why))
	case m.unentered && m.lost == nil:
		return fmt.Errorf("%w: %w: %v answers again, and what it holds is being read", eventlog.ErrUnavailable, errUnentered, m)
	case m.unentered, m.skip:
		return fmt.Errorf("%w: %v does not answer, and is not asked until it does: %w", eventlog.ErrUnavailable, m, plain(m.lost))
	}
	return nil
}

func (m *member) isUnentered() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unentered
}

// hangs reports whether the last call failed slowly: nobody waits for the shard.
func (m *member) hangs() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.skip
}

// leaveOut notes that the log enters an incarnation of the set without an answer of this shard,
// which is taken to be in the incarnation began. before is the table that the set had when it heard
// the bounds that are known. Bounds of what that table does not place on this shard, such as the
// incomplete copy of a partition that moves, are forgotten.
func (m *member) leaveOut(began string, before *table) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unentered = m.unentered || m.entered == eventlog.Mark{} || m.entered.Incarnation.Store != began
	maps.DeleteFunc(m.known, func(_ eventlog.Partition, b eventlog.Bounds) bool {
		return len(before.owned(m, []eventlog.Bounds{b})) == 0
	})
}

// plain keeps only the text of an error: a call that was not made matches neither ErrUnsure nor
// what failed before.
func plain(err error) error { return errors.New(err.Error()) }

// isLoss reports whether an error says that a shard did not answer.
func isLoss(err error) bool {
	for _, answered := range []error{eventlog.ErrRewound, eventlog.ErrHeld, eventlog.ErrNoSpace, eventlog.ErrStoreClosed, eventlog.ErrUpgraded} {
		if errors.Is(err, answered) {
			return false
		}
	}
	return errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure)
}

func (m *member) failed(err error, took time.Duration) {
	if !isLoss(err) {
		return
	}
	m.mu.Lock()
	first := m.lost == nil
	m.lost, m.skip = err, m.skip || took >= slowFailure
	m.mu.Unlock()
	if first {
		m.logger.Error("a shard does not answer; what is on other shards goes on", "shard", m.number, "store", m.name, "err", err)
	}
}

func (m *member) answered() {
	m.mu.Lock()
	back := m.lost != nil
	m.lost, m.skip = nil, false
	m.mu.Unlock()
	if back {
		m.logger.Info("the shard answers again", "shard", m.number, "store", m.name)
	}
}

// enter notes the incarnation of the shard that Changes found, with everything that the shard
// holds.
func (m *member) enter(all []eventlog.Bounds, mark eventlog.Mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entered, m.unentered = mark, false
	clear(m.known)
	for _, b := range all {
		m.known[b.Partition] = b
	}
}

// asks notes that the shard is being asked which incarnation it is in. From then on its store
// answers from that one. answered notes what it says.
func (m *member) asks() (answered func(eventlog.Mark, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asking++; m.asking == 1 {
		m.asked = make(chan struct{})
	}
	return func(mark eventlog.Mark, err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.unentered = m.unentered || err == nil && mark.Incarnation != m.entered.Incarnation
		if m.asking--; m.asking == 0 {
			close(m.asked)
			m.asked = nil
		}
	}
}

// pass notes that the log is told the incarnation that the shard is in, unless the shard was not
// heard and the log is told what it takes the shard to be in.
func (m *member) pass(heard bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.why = nil; heard {
		m.passed = m.entered.Incarnation
	}
}

// keep notes why the log is not told: what the shard holds now is not what the log knows.
func (m *member) keep(why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.why, m.unentered = why, m.unentered || m.entered.Incarnation != m.passed
}

func (m *member) in() eventlog.Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entered
}

// all returns the bounds of all partitions, as this process knows them.
func (m *member) all() []eventlog.Bounds {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.known))
}

// learn notes bounds. They may come in another order than the store's: ends never decrease.
func (m *member) learn(bounds ...eventlog.Bounds) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range bounds {
		if was, is := m.known[b.Partition]; !is || b.Next >= was.Next {
			m.known[b.Partition] = b
		}
	}
}

// grew notes what was appended.
func (m *member) grew(entry eventlog.Entry, base []eventlog.Offset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, b := range entry.Batches {
		was := m.known[b.Partition]
		was.Partition = b.Partition
		if b.Records > 0 {
			was.Next = max(was.Next, base[i]+eventlog.Offset(b.Records))
			was.Bytes += int64(len(b.Bytes))
		}
		m.known[b.Partition] = was
	}
	for _, p := range entry.Forgets {
		delete(m.known, p)
	}
}
