package group

import (
	"context"
	"fmt"

	"github.com/weir-log/weir/eventlog"
)

// Beside is a second place in which a group's positions are committed, such as the transactions of SQL sessions, which no key may wait for. Which of the
// two says where the group is, it decides:
//
//   - A key that was put without a mark begins anew there: a client of another protocol, or somebody who reset the group, said so.
//   - A key with a mark goes on with what was committed before. Of the two, the farther one counts. So who commits such a key, from however
//     old a view, takes nothing back that was committed beside it meanwhile.
type Beside interface {
	// Positions tells where the group is in some partitions.
	Positions(ctx context.Context, group string, of []TopicPartition) ([]Position, error)
	// Mark is the metadata of a key that goes on from a position.
	Mark(next eventlog.Offset, from Position) string
}

// Position is where a group is in a partition.
type Position struct {
	Offset eventlog.Offset // −1: it has committed nothing there
	Base   int64           // what the next position is built on, in Beside's own words
}

// placed overlays what keys say with what was committed beside them, and returns the bases: one trip.
func (p *Peer) placed(ctx context.Context, committed map[TopicPartition]eventlog.Offset, of []TopicPartition) (map[TopicPartition]int64, error) {
	if p.cfg.Beside == nil || len(of) == 0 {
		return nil, nil
	}
	found, err := p.cfg.Beside.Positions(ctx, p.cfg.Group, of)
	if err != nil {
		return nil, fmt.Errorf("where the group is: %w (%w)", ErrUnavailable, err)
	}
	bases := make(map[TopicPartition]int64, len(of))
	for i, tp := range of {
		bases[tp] = found[i].Base
		if delete(committed, tp); found[i].Offset >= 0 {
			committed[tp] = found[i].Offset
		}
	}
	return bases, nil
}

// mark has offsets that go on from where the group is say so: one trip where the peer committed others before.
func (p *Peer) mark(ctx context.Context, grants []*Assigned, offsets []Committed) error {
	if p.cfg.Beside == nil {
		return nil
	}
	var ask []TopicPartition
	var of []*Assigned
	p.mu.Lock()
	for i, a := range grants {
		if !offsets[i].Onward {
			a.base = nil // it begins anew, also where the commit seems to fail
		} else if a.base == nil {
			ask, of = append(ask, a.TopicPartition), append(of, a)
		}
	}
	p.mu.Unlock()
	if len(ask) > 0 {
		found, err := p.cfg.Beside.Positions(ctx, p.cfg.Group, ask)
		if err != nil {
			return fmt.Errorf("where the group is: %w (%w)", ErrUnavailable, err)
		}
		p.mu.Lock()
		for i, a := range of {
			a.base = &found[i].Base
		}
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, a := range grants {
		o := &offsets[i]
		if !o.Onward || a.base == nil {
			continue
		}
		mark := p.cfg.Beside.Mark(o.Offset, Position{Offset: a.Position, Base: *a.base})
		if o.Metadata != "" && mark != "" {
			mark += "; "
		}
		o.Metadata = mark + o.Metadata
	}
	return nil
}
