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

// Read implements eventlog.Store: one trip to each shard that has a span, all at the same time.
// Each shard may be asked for maxBytes; what exceeds that in all is dropped.
func (s *Set) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	where := s.where()
	answer := make([]eventlog.Slice, len(spans))
	of := make([][]int, len(s.members)) // indexes of spans
	for i, span := range spans {
		answer[i].Bounds.Partition = span.Partition
		m, err := s.holding(where, span.Partition)
		if err != nil {
			answer[i].Err = err
			continue
		}
		of[m.number] = append(of[m.number], i)
	}
	if len(spans) == 0 {
		of[0] = []int{} // it checks the incarnation
	}
	errs := make([]error, len(s.members))
	var reading errgroup.Group
	for n, indexes := range of {
		if indexes == nil {
			continue
		}
		reading.Go(func() error {
			errs[n] = s.readFrom(ctx, where, s.members[n], spans, indexes, maxBytes, answer)
			return nil
		})
	}
	_ = reading.Wait()
	asked := 0
	for n, err := range errs {
		switch {
		case of[n] == nil:
			continue
		case err == nil:
		case errors.Is(err, eventlog.ErrRewound), !isLoss(err):
			return nil, err
		}
		asked++
		for _, i := range of[n] {
			if err != nil {
				answer[i].Err = err
			}
		}
	}
	if asked == 1 { // the call failed, rather than some of its spans
		for n := range errs {
			if errs[n] != nil && len(of[n]) == len(spans) {
				return nil, errs[n]
			}
		}
	}
	if err := s.asOf(where.table, nil); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if slices.ContainsFunc(answer, func(a eventlog.Slice) bool { return errors.Is(a.Err, eventlog.ErrNoPartition) }) && s.entering.Load() {
		return nil, fmt.Errorf("read: %w", eventlog.ErrRewound) // the partition may have moved
	}
	budget := eventlog.NewBudget(maxBytes)
	for i, span := range spans {
		if asked == 1 || len(answer[i].Batches) == 0 {
			continue
		}
		budget.Begin(span.MaxBytes)
		n := 0
		for n < len(answer[i].Batches) && budget.Take(len(answer[i].Batches[n].Bytes)) {
			n++
		}
		clear(answer[i].Batches[n:]) // frees the bytes
		answer[i].Batches = answer[i].Batches[:n]
	}
	return answer, nil
}

// readOn asks a shard for something, for at most readPatience. What it answers from another
// incarnation than the one that the log knows is not passed on. While one is entered, the question
// and the answer wait for the end of that, each for at most readPatience.
func (s *Set) readOn(ctx context.Context, m *member, ask func(context.Context) error) error {
	for again := true; ; again = false {
		if err := s.awaitEnter(ctx); err != nil {
			return err
		}
		err := m.call(ctx, readPatience, ask)
		switch {
		case err == nil:
			return s.checkEntered(ctx, m)
		case !again || !errors.Is(err, errUnentered): // an enter that began meanwhile may have ended well
			return err
		}
	}
}

// awaitEnter waits until no incarnation is being entered.
func (s *Set) awaitEnter(ctx context.Context) error {
	if s.enters.Load() == nil {
		return nil
	}
	patience := time.NewTimer(readPatience)
	defer patience.Stop()
	for over := s.enters.Load(); over != nil; over = s.enters.Load() {
		select {
		case <-*over:
		case <-patience.C:
			return fmt.Errorf("%w: an incarnation of the store is being entered for longer than %v", eventlog.ErrUnavailable, readPatience)
		case <-ctx.Done():
			return fmt.Errorf("%w: an incarnation of the store is being entered: %w", eventlog.ErrUnavailable, context.Cause(ctx))
		}
	}
	return nil
}

// checkEntered returns nil if what a shard has just answered is of the incarnation that the log
// knows, or of one that the log enters now.
func (s *Set) checkEntered(ctx context.Context, m *member) error {
	for {
		if err := s.awaitEnter(ctx); err != nil {
			return err
		}
		if err := m.awaitAnswer(ctx); err != nil {
			return err
		}
		if s.enters.Load() == nil {
			return m.out()
		}
	}
}

// readFrom reads the spans with these indexes from a shard.
func (s *Set) readFrom(ctx context.Context, where place, m *member, spans []eventlog.Span, indexes []int, maxBytes int, answer []eventlog.Slice) error {
	own := make([]eventlog.Span, len(indexes))
	for i, at := range indexes {
		own[i] = spans[at]
		own[i].Partition = where.id(own[i].Partition)
	}
	var slices []eventlog.Slice
	err := s.readOn(ctx, m, func(ctx context.Context) (err error) {
		slices, err = m.store.Read(ctx, own, maxBytes)
		return err
	})
	if err != nil {
		return err
	}
	for i, at := range indexes {
		answer[at] = slices[i]
		if slices[i].Err == nil {
			m.learn(slices[i].Bounds)
		}
		if own[i].Partition != spans[at].Partition {
			rename(&answer[at], spans[at].Partition)
		}
	}
	return nil
}

// Seek implements eventlog.Store: one call to each shard that has one of the partitions, all at the
// same time.
func (s *Set) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	where := s.where()
	found := make([]eventlog.Found, len(goals))
	of := make([][]int, len(s.members)) // indexes of goals
	for i, goal := range goals {
		m, err := s.holding(where, goal.Partition)
		if err != nil {
			found[i].Err = err
			continue
		}
		of[m.number] = append(of[m.number], i)
	}
	var seeking errgroup.Group
	for n, indexes := range of {
		if len(indexes) == 0 {
			continue
		}
		seeking.Go(func() error {
			err := s.seekIn(ctx, where, s.members[n], goals, indexes, found)
			if err == nil || errors.Is(err, eventlog.ErrRewound) || !isLoss(err) || len(indexes) == len(goals) {
				return err
			}
			for _, i := range indexes {
				found[i].Err = err
			}
			return nil
		})
	}
	err := seeking.Wait()
	if slices.ContainsFunc(found, func(f eventlog.Found) bool { return errors.Is(f.Err, eventlog.ErrNoPartition) }) && (s.entering.Load() || s.table.Load() != where.table) {
		err = fmt.Errorf("seek: %w", eventlog.ErrRewound) // a partition may have been moved meanwhile
	}
	return found, s.asOf(where.table, err)
}

// seekIn seeks the goals with these indexes in a shard.
func (s *Set) seekIn(ctx context.Context, where place, m *member, goals []eventlog.Goal, indexes []int, found []eventlog.Found) error {
	own := make([]eventlog.Goal, len(indexes))
	for i, at := range indexes {
		own[i] = goals[at]
		own[i].Partition = where.id(own[i].Partition)
	}
	var some []eventlog.Found
	err := s.readOn(ctx, m, func(ctx context.Context) (err error) {
		some, err = m.store.Seek(ctx, own)
		return err
	})
	if err != nil {
		return err
	}
	for i, at := range indexes {
		found[at] = some[i]
	}
	return nil
}

// Get implements eventlog.Store: one trip to each shard that has one of the keys, all at the same
// time.
func (s *Set) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	where := s.where()
	of := make([][]string, len(s.members)) // keys
	at := make([]int, len(keys))           // the shard of each key
	for i, key := range keys {
		n, _, err := where.of(key)
		if err != nil {
			return nil, fmt.Errorf("read key %q: %w", key, err)
		}
		at[i] = n
		of[n] = append(of[n], key)
	}
	answers := make([][]eventlog.KeyValue, len(s.members))
	var reading errgroup.Group
	for n, own := range of {
		if len(own) == 0 {
			continue
		}
		m := s.members[n]
		reading.Go(func() error {
			return s.readOn(ctx, m, func(ctx context.Context) (err error) {
				answers[n], err = m.store.Get(ctx, own, maxBytes)
				return err
			})
		})
	}
	if err := reading.Wait(); err != nil {
		return nil, err
	}
	var found []eventlog.KeyValue
	for i, key := range keys {
		n := at[i]
		if len(answers[n]) == 0 {
			break // the shard's answer ended before this key
		}
		kv := answers[n][0]
		if answers[n] = answers[n][1:]; s.members[n].hides(key) {
			kv = eventlog.KeyValue{Key: key}
		}
		if maxBytes -= len(kv.Value); i > 0 && maxBytes < 0 {
			break
		}
		found = append(found, kv)
	}
	return found, s.asOf(where.table, nil)
}

// List implements eventlog.Store. It asks only one shard if all keys with the prefix are there, and
// all shards otherwise.
func (s *Set) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	where := s.where()
	at, closed, err := where.of(prefix)
	if err != nil {
		return nil, fmt.Errorf("list keys under %q: %w", prefix, err)
	}
	if closed {
		return s.list(ctx, s.members[at], where, prefix, after, limit)
	}
	lists := make([][]eventlog.KeyValue, len(s.members))
	var listing errgroup.Group
	for n, m := range s.members {
		listing.Go(func() (err error) {
			lists[n], err = s.list(ctx, m, where, prefix, after, limit)
			return err
		})
	}
	if err := listing.Wait(); err != nil {
		return nil, err
	}
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b eventlog.KeyValue) int { return strings.Compare(a.Key, b.Key) })
	return all[:min(len(all), max(limit, 0))], s.asOf(where.table, nil)
}

// list lists the keys of one shard, without those that it hides, and without those of partitions
// that are on other shards.
func (s *Set) list(ctx context.Context, m *member, where place, prefix, after string, limit int) (list []eventlog.KeyValue, err error) {
	for {
		var page []eventlog.KeyValue
		const hidden = 2 // few keys are left out: this saves the second call
		most := limit - len(list)
		if strings.HasPrefix(eventlog.ShardKey, prefix) && limit > 0 {
			most += hidden
		}
		err = s.readOn(ctx, m, func(ctx context.Context) error {
			page, err = m.store.List(ctx, prefix, after, most)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, kv := range page {
			after = kv.Key
			if at, _, err := where.of(kv.Key); !m.hides(kv.Key) && (err != nil || at == m.number) {
				list = append(list, kv)
			}
		}
		if len(page) < most || len(list) >= limit {
			return list[:min(len(list), max(limit, 0))], nil
		}
	}
}

// hides reports whether a key is not part of what the set holds: ShardKey, where partitions are,
// and the copies of EpochKey that shards have for their own checks.
func (m *member) hides(key string) bool {
	return key == eventlog.ShardKey || key == eventlog.EpochKey && m.number > 0 || strings.HasPrefix(key, ownPrefix)
}
