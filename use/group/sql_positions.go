package group

import (
	"context"
	"fmt"

	"github.com/weir-log/weir/eventlog"
)

// Beside is a second place in which a group's offsets are committed: the transactions of SQL
// sessions, which cannot put a key. It decides which of the two counts:
//
//   - A key without a mark overrides what SQL committed: a client of another protocol put it, or a
//     reset of the group.
//   - A key with a mark continues from what was committed before. Of the key's offset and SQL's,
//     the higher one counts. So a commit of such a key takes back nothing that SQL has committed
//     meanwhile, however old its view is.
type Beside interface {
	// Positions returns the group's committed offsets in some partitions.
	Positions(ctx context.Context, group string, of []TopicPartition) ([]Position, error)
	// Keeps returns for each of some partitions whether SQL has committed an offset of the group
	// there.
	Keeps(ctx context.Context, group string, of []TopicPartition) ([]bool, error)
	// Mark returns the metadata of a key that continues from a position.
	Mark(next eventlog.Offset, from Position) string
	// Carried returns nil once the keys have all offsets that the groups have committed with SQL in
	// some partitions (nil: in all), ErrNotCarried if that takes longer than a few seconds, or
	// longer than ctx.
	Carried(ctx context.Context, groups []string, of []TopicPartition) error
	// Forget deletes what SQL committed for groups in some partitions (nil: in all), except what no
	// key has yet, and what open transactions have locked.
	Forget(ctx context.Context, groups []string, of []TopicPartition) error
}

// ErrNotCarried says that groups have committed offsets with SQL that the keys do not have yet. It
// is about these groups, and says nothing about others.
var ErrNotCarried = fmt.Errorf("%w: positions that SQL committed are not yet moved to the group", eventlog.ErrUnavailable)

// Position is a group's committed offset in a partition.
type Position struct {
	Offset eventlog.Offset // −1: it has committed nothing there
	Base   int64           // what the next position is based on; only Beside interprets it
}

// forgetBeside deletes what SQL committed for groups in some partitions (nil: in all). It comes
// before the keys are deleted: SQL would go on from what is left, and bring a deleted group back.
func (c *Coordinator) forgetBeside(ctx context.Context, groups []string, of []TopicPartition) error {
	if c.cfg.Beside == nil || len(groups) == 0 {
		return nil
	}
	err := c.cfg.Beside.Carried(ctx, groups, of)
	if err == nil {
		err = c.cfg.Beside.Forget(ctx, groups, of)
	}
	return err
}

// placed replaces the keys' offsets by the offsets that Beside says count, and returns their bases:
// one store call.
func (p *Peer) placed(ctx context.Context, committed map[TopicPartition]eventlog.Offset, of []TopicPartition) (map[TopicPartition]int64, error) {
	if p.beside == nil || len(of) == 0 {
		return nil, nil
	}
	found, err := p.beside.Positions(ctx, p.cfg.Group, of)
	if err != nil {
		return nil, fmt.Errorf("read the group's offsets: %w (%w)", ErrUnavailable, err)
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

// mark adds the mark to offsets that continue from the committed one: one store call if a base is
// not known.
func (p *Peer) mark(ctx context.Context, grants []*Assigned, offsets []Committed) error {
	if p.beside == nil {
		return nil
	}
	var ask []TopicPartition
	var of []*Assigned
	p.mu.Lock()
	for i, a := range grants {
		if !offsets[i].Onward {
			a.base = nil // this offset overrides what SQL committed, even if the commit seems to fail
		} else if a.base == nil {
			ask, of = append(ask, a.TopicPartition), append(of, a)
		}
	}
	p.mu.Unlock()
	if len(ask) > 0 {
		found, err := p.beside.Positions(ctx, p.cfg.Group, ask)
		if err != nil {
			return fmt.Errorf("read the group's offsets: %w (%w)", ErrUnavailable, err)
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
		mark := p.beside.Mark(o.Offset, Position{Offset: a.Position, Base: *a.base})
		if o.Metadata != "" && mark != "" {
			mark += "; "
		}
		o.Metadata = mark + o.Metadata
	}
	return nil
}
