// Package shard is a store that is made of several stores of any kind, its shards.
//
// A partition's number has its shard in the high bits, unless the partition was moved
// (placement.go), and a key says by its own text where it lives (place.go), so every process finds
// both without asking anybody. An entry is committed by one shard; one that would need two is
// refused (commit.go). A shard that does not answer does not fail the calls about others
// (member.go), and need not answer when a process starts (away.go). Each shard knows which one of
// which set it is (identity.go). Why it is so: docs/decisions/an-entry-lives-on-one-shard.md; for
// operators: docs/shards.md.
package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/longlock"
)

const (
	// commitPatience bounds how long a commit waits for one shard (write). The entries of other
	// shards wait as long.
	commitPatience = 10 * time.Second
	// commitGrace is how long a shard may take to give up a commit.
	commitGrace = 250 * time.Millisecond
	// readPatience bounds how long a read waits for one shard.
	readPatience = 10 * time.Second
	// movedPatience is how long Changes waits for a shard while others have answered.
	movedPatience = time.Second
	// slowFailure is how long a failed call must have taken for the shard to be left alone until it
	// answers Changes.
	slowFailure = 250 * time.Millisecond
)

// Shard is one of the stores that a set is made of.
type Shard struct {
	Name  string         // its URL without passwords, for people
	Store eventlog.Store // nil: Options.Open opens it
}

// Options are the settings of a set.
type Options struct {
	// Rules say where keys live. They must be those of every process that ever opens the set.
	Rules []eventlog.KeyRule
	// Open opens the store of a shard, by its number in the list. made: the set has this shard
	// already, so if nothing is there, Open fails and creates nothing. Open may be called again
	// after it failed. Its context does not end before the set is closed.
	Open func(ctx context.Context, number int, made bool) (eventlog.Store, error)
	// Logger gets what no caller is told. Default slog.Default().
	Logger *slog.Logger
}

// Set is a store that is made of shards.
type Set struct {
	members []*member
	place   place // without the table
	logger  *slog.Logger

	table    atomic.Pointer[table]
	routing  longlock.RWMutex              // a commit holds it to read, from when it finds its shards until these have answered; enter holds it to write
	entering atomic.Bool                   // shards may be in an incarnation whose table was not read yet, and commits are refused
	enters   atomic.Pointer[chan struct{}] // not nil while enter is in progress: closed at its end

	ctx     context.Context // ends with Close: for the calls of Changes that no caller waits for, and for opening shards that were away
	cancel  context.CancelFunc
	running sync.WaitGroup // these calls, and commits that were given up
	moving  longlock.Mutex // held by Changes: one call at a time
}

var (
	_ eventlog.Store   = (*Set)(nil)
	_ eventlog.Sharded = (*Set)(nil)
)

// Open opens shards as one store, in their order; they belong to the set then, and Close closes
// them. If Open fails, those that were given stay open. Shards that are new are added to the set if
// they are empty and come last; of a new set, the first may hold data.
//
// Shard 0 must answer, and every shard if the set is new or gets more. Of a set that exists,
// another shard may be away: it counts as lost until it is opened in the background.
func Open(ctx context.Context, shards []Shard, opts Options) (*Set, error) {
	if len(shards) == 0 || len(shards) > eventlog.ShardsMax {
		return nil, fmt.Errorf("open %d shards: 1 to %d are allowed", len(shards), eventlog.ShardsMax)
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	s := &Set{logger: opts.Logger}
	for i, shard := range shards {
		m := newMember(i, shard, opts.Logger, &s.running)
		if shard.Store == nil {
			m.open = func(ctx context.Context, made bool) (eventlog.Store, error) { return opts.Open(ctx, i, made) }
		}
		s.members = append(s.members, m)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	homes, err := s.begin(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %d shards: %w", len(shards), err), s.giveUp())
	}
	s.place = place{rules: opts.Rules, homes: homes, shards: len(shards)}
	placed, err := readTable(ctx, s.home().store)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %d shards: read which partitions were moved: %w", len(shards), err), s.giveUp())
	}
	s.table.Store(placed)
	return s, nil
}

// where returns where keys and partitions are now.
func (s *Set) where() place {
	p := s.place
	p.table = s.table.Load()
	return p
}

// begin opens the shards that are not open, shard 0 first, and checks that they are those of the
// set.
func (s *Set) begin(ctx context.Context) (homes int, err error) {
	home := s.home()
	if home.store == nil {
		if home.store, err = home.open(ctx, false); err != nil {
			home.store = nil
			return 0, fmt.Errorf("%v: %w", home, err)
		}
	}
	is, err := home.identity(ctx)
	if err != nil {
		return 0, fmt.Errorf("%v: %w", home, err)
	}
	if err := s.openOthers(ctx, is.has(len(s.members))); err != nil {
		return 0, err
	}
	have, homes, err := identify(ctx, s.members)
	if err != nil {
		return 0, err
	}
	for i, m := range s.members {
		if m.away == nil {
			continue
		}
		m.away.check = func(is found) error {
			with := slices.Clone(have)
			with[i] = is
			return check(s.members, with)
		}
		m.failed(have[i].away, 0)
		s.running.Go(func() { m.away.run(s.ctx) })
	}
	return homes, nil
}

// openOthers opens the shards but the first concurrently. made: the set has them all, so those that
// do not answer are away.
func (s *Set) openOthers(ctx context.Context, made bool) error {
	var all errgroup.Group
	for _, m := range s.members[1:] {
		if m.store == nil {
			all.Go(func() error { return s.openAtStart(ctx, m, made) })
		}
	}
	return all.Wait()
}

func (s *Set) openAtStart(ctx context.Context, m *member, made bool) error {
	first := &opening{done: make(chan struct{})}
	within, cancel := context.WithCancel(context.WithoutCancel(ctx)) // opening goes on after startPatience
	stop := context.AfterFunc(s.ctx, cancel)
	s.running.Go(func() {
		defer close(first.done)
		defer cancel()
		defer stop()
		first.store, first.err = m.open(within, made)
		if first.err != nil {
			first.store = nil
		}
	})
	var late <-chan time.Time
	if made {
		patience := time.NewTimer(startPatience)
		defer patience.Stop()
		late = patience.C
	}
	select {
	case <-first.done:
		m.store = first.store
	case <-late:
		m.isAway(fmt.Errorf("%w: it was not open after %v; opening goes on", eventlog.ErrUnavailable, startPatience), first)
		return nil
	case <-ctx.Done():
		m.isAway(context.Cause(ctx), first) // for giveUp
		return fmt.Errorf("%v: %w", m, context.Cause(ctx))
	}
	switch err := first.err; {
	case err == nil:
		return nil
	case made && isLoss(err):
		m.isAway(err, nil)
		return nil
	case isLoss(err):
		return fmt.Errorf("%v: %w. Every shard must answer when a set is made, or gets more shards", m, err)
	default:
		return fmt.Errorf("%v: %w", m, err)
	}
}

// giveUp closes the shards that Open has opened itself.
func (s *Set) giveUp() error {
	s.cancel()
	s.running.Wait()
	var errs []error
	for _, m := range s.members {
		if m.open != nil && m.store != nil {
			errs = append(errs, m.store.Close())
		}
	}
	return errors.Join(errs...)
}

// Shards implements eventlog.Sharded.
func (s *Set) Shards() int { return len(s.members) }

// ShardOf implements eventlog.Sharded.
func (s *Set) ShardOf(key string) (int, error) {
	at, _, err := s.where().of(key)
	return at, err
}

// KeyRules returns the rules that the set was opened with.
func (s *Set) KeyRules() []eventlog.KeyRule { return s.place.rules }

// ShardStore implements eventlog.Sharded.
func (s *Set) ShardStore(shard int) (eventlog.Store, error) {
	m := s.members[shard]
	if m.away != nil {
		return m.away.use()
	}
	return m.store, nil
}

// Unheard implements eventlog.Sharded.
func (s *Set) Unheard(p eventlog.Partition) bool {
	m, err := s.holding(s.where(), p)
	return err != nil || !m.heard.Load()
}

// Intact implements eventlog.Sharded.
func (s *Set) Intact(p eventlog.Partition, since string) bool {
	m, err := s.holding(s.where(), p)
	if err != nil || !m.heard.Load() {
		return err == nil
	}
	began, is := storeOf(since, m.number)
	return is && began == m.in().Incarnation.Store
}

// home is the shard that has the keys without a rule, and decides which epoch it is.
func (s *Set) home() *member { return s.members[0] }

// Trim implements eventlog.Store: one call to each shard that has one of the partitions, all at the
// same time. If one shard has them all, its error is that of the call.
func (s *Set) Trim(ctx context.Context, trims []eventlog.Trim) ([]error, error) {
	s.routing.RLock()
	defer s.routing.RUnlock()
	if s.entering.Load() {
		return nil, fmt.Errorf("trim %d partitions: %w", len(trims), eventlog.ErrRewound)
	}
	where := s.where()
	errs := make([]error, len(trims))
	of := make([][]int, len(s.members)) // indexes of trims
	for i, t := range trims {
		m, err := s.holding(where, t.Partition)
		if err == nil {
			err = where.table.refusal(t.Partition)
		}
		if errs[i] = err; err == nil {
			of[m.number] = append(of[m.number], i)
		}
	}
	failed := make([]error, len(s.members))
	var trimming errgroup.Group
	for n, indexes := range of {
		if len(indexes) > 0 {
			trimming.Go(func() error {
				failed[n] = s.trimIn(ctx, where, s.members[n], trims, indexes, errs)
				return nil
			})
		}
	}
	_ = trimming.Wait()
	for n, indexes := range of {
		if failed[n] != nil && len(indexes) == len(trims) {
			return nil, failed[n]
		}
		for _, i := range indexes {
			if failed[n] != nil {
				errs[i] = failed[n]
			}
		}
	}
	return errs, nil
}

// trimIn makes the trims with these indexes in a shard, and sets their errors.
func (s *Set) trimIn(ctx context.Context, where place, m *member, trims []eventlog.Trim, indexes []int, errs []error) error {
	own := make([]eventlog.Trim, len(indexes))
	for i, at := range indexes {
		own[i] = eventlog.Trim{Partition: where.id(trims[at].Partition), Before: trims[at].Before}
	}
	var each []error
	err := m.write(ctx, func(ctx context.Context) (err error) {
		each, err = m.store.Trim(ctx, own)
		return err
	})
	if err != nil {
		return err
	}
	for i, at := range indexes {
		errs[at] = each[i]
	}
	return nil
}

// holding returns the shard of a partition.
func (s *Set) holding(where place, p eventlog.Partition) (*member, error) {
	at := where.with(p)
	if at >= 0 && at < len(s.members) {
		return s.members[at], nil
	}
	return nil, fmt.Errorf("%w: partition %d is on shard %d, and this process was started with %d shards: start it again with the whole list", eventlog.ErrUnavailable, p, at, len(s.members))
}

// Wake implements eventlog.Waker: with the wake-ups of those shards that have any.
func (s *Set) Wake(ctx context.Context) (<-chan struct{}, error) {
	all := make(chan struct{}, 1)
	var failed error
	for _, m := range s.members {
		if m.away != nil {
			s.running.Go(func() { s.wakeLater(ctx, m, all) })
			continue
		}
		woken, err := m.wakes(ctx)
		if err != nil {
			failed = errors.Join(failed, err)
		}
		if woken != nil {
			s.running.Go(func() { s.pass(ctx, woken, all) })
		}
	}
	return all, failed
}

// wakes returns the wake-ups of a shard; nil: it has none.
func (m *member) wakes(ctx context.Context) (<-chan struct{}, error) {
	waker, can := eventlog.As[eventlog.Waker](m.store)
	if !can {
		return nil, nil
	}
	woken, err := waker.Wake(ctx)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", m, err)
	}
	return woken, nil
}

// wakeLater is Wake of a shard that was away, once it is open.
func (s *Set) wakeLater(ctx context.Context, m *member, all chan<- struct{}) {
	select {
	case <-m.away.opened:
	case <-ctx.Done():
		return
	case <-s.ctx.Done():
		return
	}
	woken, err := m.wakes(ctx)
	if err != nil && ctx.Err() == nil {
		s.logger.Warn("no wake-ups from a shard; only polling finds new records there", "shard", m.number, "store", m.name, "err", err)
	}
	if woken != nil {
		s.pass(ctx, woken, all)
	}
}

// pass passes wake-ups on.
func (s *Set) pass(ctx context.Context, woken <-chan struct{}, all chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.ctx.Done():
			return
		case _, more := <-woken:
			if !more {
				return
			}
		}
		select {
		case all <- struct{}{}:
		default:
		}
	}
}

// Writable implements eventlog.Writable: records are refused if every shard refuses them.
func (s *Set) Writable(ctx context.Context) (refusal, err error) {
	for _, m := range s.members {
		store, can := eventlog.As[eventlog.Writable](m.store)
		if !can {
			return nil, nil
		}
		if m.out() != nil {
			return nil, nil // unknown, and Changes has logged it
		}
		why, err := store.Writable(ctx)
		if err != nil || why == nil {
			return nil, err
		}
		refusal = errors.Join(refusal, fmt.Errorf("%v: %w", m, why))
	}
	return refusal, nil
}

// HeartbeatEvery implements eventlog.Costly: as for the costliest shard.
func (s *Set) HeartbeatEvery() time.Duration { return s.longest(eventlog.Costly.HeartbeatEvery) }

// CommitEvery implements eventlog.Costly: as for the shard whose commits are farthest apart.
func (s *Set) CommitEvery() time.Duration { return s.longest(eventlog.Costly.CommitEvery) }

func (s *Set) longest(of func(eventlog.Costly) time.Duration) (longest time.Duration) {
	for _, m := range s.members {
		if costly, is := eventlog.As[eventlog.Costly](m.store); is {
			longest = max(longest, of(costly))
		}
	}
	return longest
}

// FlushBytes implements eventlog.Costly: as for the shard that takes the least at once, of those
// that are open.
func (s *Set) FlushBytes() (least int) {
	for _, m := range s.members {
		if m.away != nil && m.away.Unwrap() == nil {
			continue
		}
		costly, is := eventlog.As[eventlog.Costly](m.store)
		if !is {
			return 0
		}
		if bytes := costly.FlushBytes(); least == 0 || bytes < least {
			least = bytes
		}
	}
	return least
}

// NextCommit implements eventlog.Costly: as for the shard that waits the least.
func (s *Set) NextCommit() (first time.Time) {
	for i, m := range s.members {
		var at time.Time // a shard whose commits cost nothing does not wait
		if costly, is := eventlog.As[eventlog.Costly](m.store); is {
			at = costly.NextCommit()
		}
		if i == 0 || at.Before(first) {
			first = at
		}
	}
	return first
}

// Close closes all shards.
func (s *Set) Close() error {
	s.cancel()
	s.running.Wait()
	errs := make([]error, len(s.members))
	var all errgroup.Group
	for i, m := range s.members {
		all.Go(func() error {
			errs[i] = m.store.Close()
			return nil
		})
	}
	_ = all.Wait()
	return errors.Join(errs...)
}
