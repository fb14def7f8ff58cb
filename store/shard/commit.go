package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
)

// Commit implements eventlog.Store. Each shard gets its entries as one flush, all shards at the
// same time: one trip. An entry that creates or deletes partitions of several shards costs more
// trips before that (prepare).
func (s *Set) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("commit: %w: %w", eventlog.ErrUnavailable, context.Cause(ctx))
	}
	for _, entry := range flush {
		for _, r := range entry.Replaces {
			if err := r.Check(); err != nil {
				return nil, fmt.Errorf("commit: %w", err)
			}
		}
	}
	s.routing.RLock() // no shard enters an epoch with another table meanwhile: it would commit what was meant for the earlier one
	defer s.routing.RUnlock()
	if s.entering.Load() {
		return nil, fmt.Errorf("commit: %w", eventlog.ErrRewound)
	}
	where := s.where()
	outcomes := make([]eventlog.Outcome, len(flush))
	rewound, happened := error(nil), false
	parts := make([]part, len(flush))
	of := make([][]int, len(s.members)) // indexes of entries
	for i, entry := range flush {
		if parts[i], outcomes[i].Err = s.divide(where, entry); outcomes[i].Err != nil {
			continue
		}
		if outcomes[i].Err = s.prepare(ctx, parts[i]); outcomes[i].Err == nil {
			of[parts[i].main] = append(of[parts[i].main], i)
		}
		if errors.Is(outcomes[i].Err, eventlog.ErrRewound) {
			rewound = outcomes[i].Err
		}
	}
	errs := make([]error, len(s.members))
	var committing errgroup.Group
	for n, indexes := range of {
		if len(indexes) > 0 {
			committing.Go(func() error {
				errs[n] = s.commitOn(ctx, s.members[n], parts, indexes, outcomes)
				return nil
			})
		}
	}
	_ = committing.Wait()
	for n, indexes := range of {
		switch {
		case len(indexes) == 0:
		case errors.Is(errs[n], eventlog.ErrRewound):
			rewound = errs[n]
		default:
			happened = true
		}
	}
	if rewound != nil && !happened && !slices.ContainsFunc(outcomes, func(o eventlog.Outcome) bool { return o.Err != nil && !errors.Is(o.Err, eventlog.ErrRewound) }) {
		return nil, fmt.Errorf("commit: %w", rewound)
	}
	for i := range flush {
		if outcomes[i].Err == nil {
			outcomes[i].Err = s.finish(ctx, parts[i])
		}
		if outcomes[i].Err != nil {
			outcomes[i].Base = nil
		}
	}
	return outcomes, nil
}

// part is an entry as it is divided among the shards.
type part struct {
	main    int                  // the shard that decides
	entry   eventlog.Entry       // what that shard commits
	at      []int                // where the batches of entry are in the whole entry
	batches int                  // of the whole entry
	creates []eventlog.Batch     // empty partitions on other shards, created before
	forgets []eventlog.Partition // partitions on other shards, deleted before
	epoch   []eventlog.Put       // EpochKey, and what is put with it: shards get a copy of EpochKey
	where   place
}

// divide finds the one shard where an entry lives.
func (s *Set) divide(where place, entry eventlog.Entry) (part, error) {
	p := part{main: -1, batches: len(entry.Batches), where: where}
	first := "" // what decided
	var failed error
	live := func(at int, what string, err error) {
		switch {
		case failed != nil:
		case err != nil:
			failed = err
		case p.main < 0:
			p.main, first = at, what
		case p.main != at:
			failed = fmt.Errorf("%w: %s is on shard %d, and %s on shard %d. A change is on one shard: docs/shards.md says which changes that refuses. Nothing happened",
				eventlog.ErrSpansShards, first, p.main, what, at)
		}
	}
	changes := func(of eventlog.Partition) {
		if err := where.table.refusal(of); err != nil {
			live(0, "", err)
		}
	}
	partition := func(of eventlog.Partition) {
		m, err := s.holding(where, of)
		if err != nil {
			live(0, "", err)
			return
		}
		live(m.number, fmt.Sprintf("partition %d", of), nil)
	}
	for _, c := range entry.Checks {
		at, _, err := where.of(c.Key)
		live(at, fmt.Sprintf("key %q", c.Key), err)
	}
	for _, put := range entry.Puts {
		at, _, err := where.of(put.Key)
		live(at, fmt.Sprintf("key %q", put.Key), err)
		if id, is := where.partitionOf(put.Key); is {
			changes(id)
		}
		if put.Key == eventlog.EpochKey {
			p.epoch = entry.Puts
		}
		if put.Key == eventlog.ShardKey || strings.HasPrefix(put.Key, ownPrefix) {
			failed = fmt.Errorf("the entry puts key %q, which belongs to the shards. Nothing happened", put.Key)
		}
	}
	for _, b := range entry.Batches {
		if b.Records > 0 {
			changes(b.Partition)
			partition(b.Partition)
		}
	}
	for _, r := range entry.Replaces {
		changes(r.Partition)
		partition(r.Partition)
	}
	for _, b := range entry.Batches {
		if p.main < 0 {
			partition(b.Partition)
		} else if _, err := s.holding(where, b.Partition); err != nil {
			live(0, "", err)
		}
	}
	for _, id := range entry.Forgets {
		changes(id)
		if p.main < 0 {
			partition(id)
		} else if _, err := s.holding(where, id); err != nil {
			live(0, "", err)
		}
	}
	if failed != nil {
		return part{}, failed
	}
	p.main = max(p.main, 0) // an empty entry
	p.cut(entry)
	return p, nil
}

// cut takes what lives on other shards out of the entry.
func (p *part) cut(entry eventlog.Entry) {
	here := func(id eventlog.Partition) bool { return p.where.with(id) == p.main }
	p.entry = entry
	p.entry.Batches, p.entry.Forgets = nil, nil
	nth := make([]int, len(entry.Batches)) // the place in p.entry, counted from 1
	for i, b := range entry.Batches {
		if !here(b.Partition) {
			p.creates = append(p.creates, b)
			continue
		}
		b.Partition = p.where.id(b.Partition)
		p.entry.Batches, p.at = append(p.entry.Batches, b), append(p.at, i)
		nth[i] = len(p.at)
	}
	for _, id := range entry.Forgets {
		if here(id) {
			p.entry.Forgets = append(p.entry.Forgets, p.where.id(id))
		} else {
			p.forgets = append(p.forgets, id)
		}
	}
	p.entry.Replaces = renumbered(entry.Replaces, p.where.id)
	if len(p.creates) > 0 {
		p.entry.Puts = slices.Clone(entry.Puts)
		for i := range p.entry.Puts {
			if n := p.entry.Puts[i].AddBase; n > 0 {
				p.entry.Puts[i].AddBase = nth[n-1]
			}
		}
	}
}

// concernsAll reports whether a put must be known to every process before its next commit, on
// whatever shard that is.
func concernsAll(put eventlog.Put) bool {
	return put.Key == eventlog.ClosedKey || put.Key == eventlog.NeedsKey
}

// prepare creates and deletes partitions on other shards. Nobody knows the new ones yet, and doing
// either again does no harm: an error says that the entry did not happen.
func (s *Set) prepare(ctx context.Context, p part) error {
	if slices.ContainsFunc(p.epoch, concernsAll) {
		for _, m := range s.members {
			if err := m.missing(); err != nil {
				return fmt.Errorf("%w: a set of shards is closed, opened or marked as needing a newer weir only while every shard answers: %w", eventlog.ErrUnavailable, err)
			}
		}
	}
	for _, m := range s.members {
		var own eventlog.Entry
		for _, b := range p.creates {
			if p.where.with(b.Partition) == m.number {
				b.Partition = p.where.id(b.Partition)
				own.Batches = append(own.Batches, b)
			}
		}
		if err := m.prepares(ctx, "created", own); err != nil {
			return err
		}
	}
	if len(p.forgets) > 0 {
		if err := s.members[p.main].holds(ctx, p.entry.Checks); err != nil {
			return err
		}
	}
	for _, m := range s.members {
		own := eventlog.Entry{UsesReserve: true}
		for _, id := range p.forgets {
			if p.where.with(id) == m.number {
				own.Forgets = append(own.Forgets, p.where.id(id))
			}
		}
		if err := m.prepares(ctx, "deleted", own); err != nil {
			return err
		}
	}
	return nil
}

// holds returns ErrStale unless the keys are at their versions now: what is deleted does not come
// back, so an entry that will be refused had better be refused before.
func (m *member) holds(ctx context.Context, checks []eventlog.Check) error {
	return m.call(ctx, readPatience, func(ctx context.Context) error {
		for _, c := range checks {
			kv, err := eventlog.Get(ctx, m.store, c.Key)
			if err == nil && kv.Version != c.Version {
				err = eventlog.ErrStale
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// prepares commits a part of an entry that lives on another shard, if there is any.
func (m *member) prepares(ctx context.Context, what string, own eventlog.Entry) error {
	if len(own.Batches)+len(own.Forgets) == 0 {
		return nil
	}
	err := m.commitOne(ctx, own)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, eventlog.ErrRewound), errors.Is(err, eventlog.ErrUpgraded):
		return fmt.Errorf("partitions cannot be %s on %v now: %w", what, m, err)
	}
	return fmt.Errorf("%w: partitions cannot be %s on %v: %w", eventlog.ErrUnavailable, what, m, plain(err))
}

// missing returns why the shard is lost; nil: it answers.
func (m *member) missing() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.lost != nil:
		return fmt.Errorf("%v: %w", m, plain(m.lost))
	case m.unentered:
		return fmt.Errorf("%v answers again, and what it holds is being read", m)
	}
	return nil
}

// commitOn commits a shard's entries. The error is that of the shard, which is in the outcomes of
// its entries, too.
func (s *Set) commitOn(ctx context.Context, m *member, parts []part, indexes []int, outcomes []eventlog.Outcome) error {
	own := make([]eventlog.Entry, len(indexes))
	for i, at := range indexes {
		own[i] = parts[at].entry
	}
	done, err := m.commit(ctx, own)
	if err != nil && len(own) > 1 && !isLoss(err) && !errors.Is(err, eventlog.ErrUnavailable) {
		// One of them may be the cause, and must not fail the others.
		done, err = make([]eventlog.Outcome, len(own)), nil
		for i, entry := range own {
			if out, err := m.commit(ctx, []eventlog.Entry{entry}); err != nil {
				done[i].Err = err
			} else {
				done[i] = out[0]
			}
		}
	}
	for i, at := range indexes {
		if err != nil {
			outcomes[at].Err = err
			continue
		}
		if outcomes[at].Err = done[i].Err; done[i].Err != nil {
			continue
		}
		m.grew(own[i], done[i].Base)
		outcomes[at].Base = make([]eventlog.Offset, parts[at].batches)
		for n, base := range done[i].Base {
			outcomes[at].Base[parts[at].at[n]] = base
		}
	}
	return err
}

// commit is Commit of the shard, for as long as write waits. PostgreSQL and MySQL wait longer for
// the answer to a commit that was sent, whatever becomes of ctx. Then commit returns ErrUnsure, and
// the shard's commit goes on.
func (m *member) commit(ctx context.Context, entries []eventlog.Entry) (outcomes []eventlog.Outcome, err error) {
	type answer struct {
		outcomes []eventlog.Outcome
		err      error
	}
	err = m.write(ctx, func(ctx context.Context) error {
		answered := make(chan answer, 1)
		m.commits.Add(1)
		m.running.Go(func() {
			out, err := m.store.Commit(ctx, entries)
			m.commits.Add(-1)
			answered <- answer{out, err}
		})
		var a answer
		select {
		case a = <-answered:
		case <-ctx.Done():
			select {
			case a = <-answered:
			case <-time.After(commitGrace):
				return fmt.Errorf("commit: %w: the shard did not answer in time (%w)", eventlog.ErrUnsure, context.Cause(ctx))
			}
		}
		outcomes = a.outcomes
		return a.err
	})
	return outcomes, err
}

func (m *member) commitOne(ctx context.Context, entry eventlog.Entry) error {
	outcomes, err := m.commit(ctx, []eventlog.Entry{entry})
	if err != nil {
		return err
	}
	if outcomes[0].Err == nil {
		m.grew(entry, outcomes[0].Base)
	}
	return outcomes[0].Err
}

// finish copies EpochKey to the other shards. The entry has happened.
func (s *Set) finish(ctx context.Context, p part) error {
	if len(p.epoch) == 0 {
		return nil
	}
	var epoch eventlog.Put
	all := false
	for _, put := range p.epoch {
		if put.Key == eventlog.EpochKey {
			epoch = put
		}
		all = all || concernsAll(put)
	}
	for _, m := range s.members[1:] {
		err := m.write(ctx, func(ctx context.Context) error {
			before := m.in().Incarnation.Epoch
			if m.in() == (eventlog.Mark{}) {
				kv, err := eventlog.Get(ctx, m.store, eventlog.EpochKey)
				if err != nil {
					return err
				}
				before = kv.Version
			}
			return m.copyEpoch(ctx, before, epoch)
		})
		switch {
		case err == nil, errors.Is(err, eventlog.ErrStale), errors.Is(err, eventlog.ErrRewound):
			// Done, or another process has changed the epoch of the shard, or the shard was
			// rewound: either ends the commits of earlier incarnations there.
		case all:
			return fmt.Errorf("%w: the store was closed, opened or marked as needing a newer weir on shard 0, and not on %v: %w", eventlog.ErrUnsure, m, plain(err))
		default:
			s.logger.Warn("a shard does not know yet that a leader epoch began; it gets to know when it answers again", "shard", m.number, "store", m.name, "err", err)
		}
	}
	return nil
}
