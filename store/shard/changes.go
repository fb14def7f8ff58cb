package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// The incarnation of a set is that of all its shards: if one was rewound, the set was. The epoch is
// the version of EpochKey on shard 0, which decides it. The other shards have copies of EpochKey,
// so that each refuses commits of an earlier epoch by itself (commit.go). A shard that was lost
// when an epoch began gets its copy when it answers again.
//
// When the set enters an epoch, it also reads where the partitions are that were moved
// (placement.go): whoever changes that begins an epoch. A shard may have something of partitions
// that are on other shards, such as an incomplete copy or what is left after a move. Changes leaves
// that out.
//
// A mark's place is a mark of each shard.

// enterMax bounds how often enter begins again because epochs begin meanwhile.
const enterMax = 8

// Changes implements eventlog.Store: one trip to each shard, all at the same time. A shard that
// does not answer within a second is left out until it does.
func (s *Set) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	if ctx.Err() != nil {
		return nil, since, fmt.Errorf("moved: %w: %w", eventlog.ErrUnavailable, context.Cause(ctx))
	}
	s.moving.Lock()
	defer s.moving.Unlock()
	if since == (eventlog.Mark{}) {
		return s.enter(ctx)
	}
	marks, err := s.marks(since)
	if err != nil {
		return nil, since, err
	}
	stores, err := s.stores(since.Incarnation)
	if err != nil {
		return nil, since, err
	}
	var moved []eventlog.Bounds
	placed := s.table.Load()
	flights := make([]*flight, len(s.members))
	for i, m := range s.members {
		from := marks[i]
		if in := m.in(); from.Incarnation != in.Incarnation {
			from = in // the mark is older: the log entered the set's incarnation without this shard, or need not enter it, because that stayed the same
		}
		flights[i] = s.ask(ctx, m, from)
	}
	s.await(ctx, flights)
	answers := 0
	var lost error
	for i, m := range s.members {
		f := flights[i]
		if !f.ended() {
			continue
		}
		m.flight = nil
		if f.err == nil {
			f.err = m.meet(f, stores[i])
		}
		again := m.in()
		behind := m != s.home() && f.err == nil && again.Incarnation.Epoch != since.Incarnation.Epoch
		if behind {
			s.routing.Lock() // no commit is in progress
			f.err = s.catchUp(ctx, m, since.Incarnation.Epoch)
			s.routing.Unlock()
		}
		switch {
		case f.err == nil:
		case isLoss(f.err):
			lost = fmt.Errorf("%v: %w", m, f.err)
			continue
		default:
			return nil, since, fmt.Errorf("%v: moved: %w", m, f.err)
		}
		answers++
		m.pass(true)
		m.learn(f.moved...)
		switch {
		case behind:
			marks[i] = m.in()
			moved = append(moved, placed.owned(m, m.all())...)
		case marks[i].Incarnation != again.Incarnation:
			marks[i] = f.mark
			moved = append(moved, placed.owned(m, m.all())...)
		default:
			marks[i] = f.mark
			moved = append(moved, placed.owned(m, f.moved)...)
		}
	}
	if answers == 0 {
		if lost == nil {
			lost = fmt.Errorf("%w: no shard answered within %v", eventlog.ErrUnavailable, movedPatience)
		}
		return nil, since, fmt.Errorf("moved: %w", lost)
	}
	return moved, s.mark(since.Incarnation, marks), nil
}

// meet checks that a shard that answers is in the incarnation that the log took it to be in. If
// this process hears of the shard for the first time, meet enters its incarnation.
func (m *member) meet(f *flight, store string) error {
	in, first := m.in().Incarnation.Store, false
	if m.in() == (eventlog.Mark{}) {
		in, first = f.mark.Incarnation.Store, true
	}
	if !first && m.isUnentered() {
		return fmt.Errorf("%w: it was asked what it holds, and that was not entered", eventlog.ErrRewound)
	}
	if in != store {
		return fmt.Errorf("%w: it was in the incarnation %q when the newest leader epoch began, and is in %q", eventlog.ErrRewound, store, in)
	}
	if first {
		m.enter(f.moved, f.mark)
	}
	return nil
}

// ask calls Changes of a shard, without waiting for the answer, unless such a call is in progress
// already.
func (s *Set) ask(ctx context.Context, m *member, since eventlog.Mark) *flight {
	if f := m.flight; f != nil && (!f.ended() || f.since == since) {
		return f
	}
	f := &flight{since: since, done: make(chan struct{})}
	m.flight = f
	s.running.Go(func() {
		defer close(f.done)
		f.moved, f.mark, f.err = s.askNow(context.WithoutCancel(ctx), m, since)
	})
	return f
}

// askNow calls Changes of a shard, and notes whether it answered.
func (s *Set) askNow(ctx context.Context, m *member, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	within, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	if since == (eventlog.Mark{}) && m.commits.Load() > 0 {
		// The store of the shard would take a commit that was given up for one of the incarnation
		// that it enters now.
		return nil, since, fmt.Errorf("%w: a commit that was given up may still be in progress", eventlog.ErrUnavailable)
	}
	began := time.Now()
	answered := func(eventlog.Mark, error) {}
	if since == (eventlog.Mark{}) {
		answered = m.asks()
	}
	moved, mark, err := m.store.Changes(within, since)
	answered(mark, err)
	switch {
	case err == nil || !isLoss(err):
		m.answered()
	case ctx.Err() == nil && s.ctx.Err() == nil:
		m.failed(err, time.Since(began))
	}
	return moved, mark, err
}

func (f *flight) ended() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// await waits for the shards that answer: until all have, or movedPatience has passed, or ctx ends.
func (s *Set) await(ctx context.Context, flights []*flight) {
	patience := time.NewTimer(movedPatience)
	defer patience.Stop()
	for i, m := range s.members {
		if m.out() != nil {
			continue
		}
		select {
		case <-flights[i].done:
		case <-patience.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// enter finds out which incarnation every shard is in, and makes all of them enter the newest
// epoch. A lost shard is taken to be in the incarnation in which that epoch began, with what was
// known of it before: nothing, if it was never heard.
func (s *Set) enter(ctx context.Context) ([]eventlog.Bounds, eventlog.Mark, error) {
	s.routing.Lock()
	defer s.routing.Unlock()
	s.entering.Store(true)
	over := make(chan struct{})
	s.enters.Store(&over)
	defer func() {
		s.enters.Store(nil)
		close(over)
	}()
	bounds, mark, err := s.tryEnter(ctx)
	for try := 1; errors.Is(err, eventlog.ErrRewound) || errors.Is(err, eventlog.ErrStale); try++ {
		if try == enterMax {
			err = fmt.Errorf("moved: %w: epochs began %d times meanwhile", eventlog.ErrUnavailable, enterMax)
			break
		}
		bounds, mark, err = s.tryEnter(ctx)
	}
	for _, m := range s.members {
		if err == nil {
			m.pass(m.heard.Load())
		} else {
			m.keep(err)
		}
	}
	s.entering.Store(err != nil)
	return bounds, mark, err
}

// tryEnter returns ErrRewound or ErrStale if an epoch began meanwhile.
func (s *Set) tryEnter(ctx context.Context) ([]eventlog.Bounds, eventlog.Mark, error) {
	none := func(m *member, err error) ([]eventlog.Bounds, eventlog.Mark, error) {
		return nil, eventlog.Mark{}, fmt.Errorf("%v: moved: %w", m, err)
	}
	flights := make([]*flight, len(s.members))
	for i, m := range s.members {
		if m.flight = nil; !m.hangs() || m == s.home() {
			flights[i] = s.ask(ctx, m, eventlog.Mark{})
		}
	}
	var epoch eventlog.KeyValue // read after shard 0 answered
	marks := make([]eventlog.Mark, len(s.members))
	stores := make([]string, len(s.members))
	var all []eventlog.Bounds
	var placed *table
	for i, m := range s.members {
		var err error
		if f := flights[i]; f == nil {
			err = fmt.Errorf("%w: %v is not asked, because it was slow to fail", eventlog.ErrUnavailable, m)
		} else {
			select {
			case <-f.done:
				err = f.err
			case <-ctx.Done():
				err = fmt.Errorf("%w: %w", eventlog.ErrUnavailable, context.Cause(ctx))
			}
			m.flight = nil
			if err == nil {
				m.enter(f.moved, f.mark)
			}
		}
		if m == s.home() && err == nil {
			if epoch, err = eventlog.Get(ctx, m.store, eventlog.EpochKey); err != nil {
				return none(m, err)
			}
			if epoch.Version != m.in().Incarnation.Epoch {
				return none(m, eventlog.ErrRewound)
			}
			if err := s.stillWhole(ctx); err != nil {
				return none(m, err)
			}
			if placed, err = readTable(ctx, m.store); err != nil { // in this epoch, or it is ErrRewound
				return none(m, err)
			}
		} else if err == nil && m.in().Incarnation.Epoch != epoch.Version {
			err = s.catchUp(ctx, m, epoch.Version)
		}
		if err != nil && (!isLoss(err) || m == s.home() || ctx.Err() != nil) {
			return none(m, err)
		}
		marks[i] = m.in()
		began, is := recorded(epoch, i)
		if !is {
			began = marks[i].Incarnation.Store
		}
		if stores[i] = marks[i].Incarnation.Store; err != nil {
			stores[i] = began
			m.leaveOut(began, s.table.Load())
		}
		m.heard.Store(err == nil)
		all = append(all, placed.owned(m, m.all())...)
	}
	id, err := json.Marshal(stores)
	if err != nil {
		return nil, eventlog.Mark{}, fmt.Errorf("encode the shards' incarnations: %w", err)
	}
	if !maps.Equal(s.table.Load().placed, placed.placed) { // if nothing has moved, reads that are in progress need not begin anew
		s.table.Store(placed)
	}
	return all, s.mark(eventlog.Incarnation{Store: string(id), Epoch: epoch.Version}, marks), nil
}

// stores returns the shards' incarnations in that of the set.
func (s *Set) stores(of eventlog.Incarnation) (stores []string, err error) {
	if err := json.Unmarshal([]byte(of.Store), &stores); err != nil || len(stores) != len(s.members) {
		return nil, fmt.Errorf("moved in %+v: this is not an incarnation of this store", of)
	}
	return stores, nil
}

// recorded returns the incarnation of a shard in which the newest epoch began; false: that is
// unknown.
func recorded(epoch eventlog.KeyValue, shard int) (store string, is bool) {
	all, err := eventlog.EpochStore(epoch)
	if err != nil {
		return "", false
	}
	return storeOf(all, shard)
}

// storeOf returns the incarnation of a shard in that of a set; false: the set had no such shard.
func storeOf(set string, shard int) (store string, is bool) {
	var stores []string
	if json.Unmarshal([]byte(set), &stores) != nil || shard >= len(stores) {
		return "", false
	}
	return stores[shard], true
}

// catchUp gives a shard the epoch that shard 0 is in. ErrRewound or ErrStale: another epoch began
// meanwhile, or the shard was rewound.
func (s *Set) catchUp(ctx context.Context, m *member, epoch eventlog.Version) error {
	kv, err := eventlog.Get(ctx, s.home().store, eventlog.EpochKey)
	if err != nil {
		return err
	}
	if kv.Version != epoch {
		return eventlog.ErrRewound
	}
	before := m.in().Incarnation
	err = m.write(ctx, func(ctx context.Context) error {
		return m.copyEpoch(ctx, before.Epoch, eventlog.Put{Key: kv.Key, Version: kv.Version, Value: kv.Value})
	})
	if err != nil && !errors.Is(err, eventlog.ErrStale) && !errors.Is(err, eventlog.ErrRewound) {
		return err
	}
	all, mark, err := s.askNow(ctx, m, eventlog.Mark{})
	if err != nil {
		return err
	}
	if mark.Incarnation.Store != before.Store || mark.Incarnation.Epoch != epoch {
		return eventlog.ErrRewound
	}
	m.enter(all, mark)
	return nil
}

// copyEpoch puts EpochKey on a shard, in place of the version before.
func (m *member) copyEpoch(ctx context.Context, before eventlog.Version, put eventlog.Put) error {
	out, err := m.store.Commit(ctx, []eventlog.Entry{{Checks: []eventlog.Check{{Key: eventlog.EpochKey, Version: before}}, Puts: []eventlog.Put{put}, UsesReserve: true}})
	if err != nil {
		return err
	}
	return out[0].Err
}

// mark makes the set's mark of the shards' marks.
func (s *Set) mark(in eventlog.Incarnation, marks []eventlog.Mark) eventlog.Mark {
	at, err := json.Marshal(marks)
	if err != nil {
		panic(fmt.Sprintf("cannot encode %v as JSON: %v", marks, err)) // numbers and strings
	}
	return eventlog.Mark{Incarnation: in, Place: string(at)}
}

func (s *Set) marks(of eventlog.Mark) (marks []eventlog.Mark, err error) {
	if err := json.Unmarshal([]byte(of.Place), &marks); err != nil || len(marks) != len(s.members) {
		return nil, fmt.Errorf("moved since %+v: this is not a mark of this store", of)
	}
	return marks, nil
}
