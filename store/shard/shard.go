// Package shard is a store that is made of several stores of any kind, its shards.
//
// A partition's number has its shard in the high bits, and a key says by its own text where it lives (place.go), so every process finds both without
// asking anybody. An entry is committed by one shard; one that would need two is refused (commit.go). A shard that does not answer does not
// fail the calls about others (member.go). Each shard knows which one of which set it is (identity.go). Why it is so:
// docs/decisions/an-entry-lives-on-one-shard.md; for operators: docs/shards.md.
package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
)

const (
	// commitPatience bounds how long a commit waits for one shard. The entries of other shards wait as long.
	commitPatience = 10 * time.Second
	// commitGrace is how long a shard may take to give up a commit.
	commitGrace = 250 * time.Millisecond
	// readPatience bounds how long a read waits for one shard.
	readPatience = 10 * time.Second
	// movedPatience is how long Moved waits for a shard while others have answered.
	movedPatience = time.Second
	// slowFailure is how long a failed call must have taken for the shard to be left alone until it answers Moved.
	slowFailure = 250 * time.Millisecond
)

// Shard is one of the stores that a set is made of.
type Shard struct {
	Name  string // its URL without passwords, for people
	Store eventlog.Store
}

// Options are the settings of a set.
type Options struct {
	// Rules say where keys live. They must be those of every process that ever opens the set.
	Rules []eventlog.KeyRule
	// Logger gets what no caller is told. Default slog.Default().
	Logger *slog.Logger
}

// Set is a store that is made of shards.
type Set struct {
	members []*member
	place   place // without the table
	logger  *slog.Logger

	table    atomic.Pointer[table]
	routing  sync.RWMutex // a commit holds it to read, from when it finds its shards until these have answered; enter holds it to write
	entering atomic.Bool  // shards may be in an incarnation whose table was not read yet, and commits are refused

	ctx     context.Context // ends with Close: for the calls of Moved that no caller waits for
	cancel  context.CancelFunc
	running sync.WaitGroup // these calls, and commits that were given up
	moving  sync.Mutex     // held by Moved: one call at a time
}

var (
	_ eventlog.Store   = (*Set)(nil)
	_ eventlog.Sharded = (*Set)(nil)
	_ eventlog.Getter  = (*Set)(nil)
)

// Open opens shards as one store, in their order; they belong to the set then, and Close closes them. If Open fails, they stay open. Shards that are new are added to the set if
// they are empty and come last; of a new set, the first may hold data. Every shard must answer.
func Open(ctx context.Context, shards []Shard, opts Options) (*Set, error) {
	if len(shards) == 0 || len(shards) > eventlog.ShardsMax {
		return nil, fmt.Errorf("open %d shards: 1 to %d are allowed", len(shards), eventlog.ShardsMax)
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	s := &Set{logger: opts.Logger}
	for i, shard := range shards {
		s.members = append(s.members, newMember(i, shard, opts.Logger, &s.running))
	}
	homes, err := identify(ctx, s.members)
	if err != nil {
		return nil, fmt.Errorf("open %d shards: %w", len(shards), err)
	}
	s.place = place{rules: opts.Rules, homes: homes, shards: len(shards)}
	placed, err := readTable(ctx, s.home().store)
	if err != nil {
		return nil, fmt.Errorf("open %d shards: read which partitions were moved: %w", len(shards), err)
	}
	s.table.Store(placed)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// where returns where keys and partitions are now.
func (s *Set) where() place {
	p := s.place
	p.table = s.table.Load()
	return p
}

// Shards implements eventlog.Sharded.
func (s *Set) Shards() int { return len(s.members) }

// ShardOf implements eventlog.Sharded.
func (s *Set) ShardOf(key string) (int, error) {
	at, _, err := s.where().of(key)
	return at, err
}

// home is the shard that has the keys without a rule, and decides which epoch it is.
func (s *Set) home() *member { return s.members[0] }

// Seek implements eventlog.Store.
func (s *Set) Seek(ctx context.Context, p eventlog.Partition, goal eventlog.Goal) (at eventlog.Offset, err error) {
	where := s.where()
	m, err := s.holding(where, p)
	if err != nil {
		return 0, fmt.Errorf("seek in partition %d: %w", p, err)
	}
	err = m.call(ctx, readPatience, func(ctx context.Context) error {
		at, err = m.store.Seek(ctx, where.id(p), goal)
		return err
	})
	return at, s.asOf(where.table, err)
}

// Trim implements eventlog.Store.
func (s *Set) Trim(ctx context.Context, p eventlog.Partition, before eventlog.Offset) error {
	s.routing.RLock()
	defer s.routing.RUnlock()
	where := s.where()
	m, err := s.holding(where, p)
	if err == nil && s.entering.Load() {
		err = eventlog.ErrRewound
	}
	if err == nil {
		err = where.table.refusal(p)
	}
	if err != nil {
		return fmt.Errorf("trim partition %d below %d: %w", p, before, err)
	}
	return m.call(ctx, commitPatience, func(ctx context.Context) error { return m.store.Trim(ctx, where.id(p), before) })
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
		waker, can := eventlog.As[eventlog.Waker](m.store)
		if !can {
			continue
		}
		woken, err := waker.Wake(ctx)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%v: %w", m, err))
			continue
		}
		s.running.Go(func() {
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
		})
	}
	return all, failed
}

// Writable implements eventlog.Writable: records are refused if every shard refuses them.
func (s *Set) Writable(ctx context.Context) (refusal, err error) {
	for _, m := range s.members {
		store, can := eventlog.As[eventlog.Writable](m.store)
		if !can {
			return nil, nil
		}
		if m.out() != nil {
			return nil, nil // unknown, and Moved has logged it
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
func (s *Set) HeartbeatEvery() (longest time.Duration) {
	for _, m := range s.members {
		if costly, is := eventlog.As[eventlog.Costly](m.store); is {
			longest = max(longest, costly.HeartbeatEvery())
		}
	}
	return longest
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
