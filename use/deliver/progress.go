package deliver

import (
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
)

// progress is how far a partition's events are handled, and what the group knows of it:
//
//	            committed        claimed         handled
//	───────────────┼────────────────┼───────────────┼──────────►
//	 in the store  │ by transactions│ to be         │ to be
//	               │ of the handler,│ committed     │ handled
//	               │ to be proven   │               │
//
// Mostly all three are equal or claimed is 0. handled is below committed only after a seek, or when
// the store was rewound: then sought is set.
type progress struct {
	handled   eventlog.Offset // everything below was handled
	epoch     int32           // the leader epoch in which the handled events were read
	committed eventlog.Offset // the group's committed offset, as last seen
	claimed   eventlog.Offset // what the handler's transactions committed, unless they were rolled back; counts only above committed
	sought    bool            // commit handled, also if it is below committed
	informed  bool            // the committer knows that there is something to commit
}

// known is the committed offset if no transaction of the handler was rolled back.
func (g *progress) known() eventlog.Offset { return max(g.committed, g.claimed) }

// seek moves to an offset, which is to be committed.
func (g *progress) seek(to eventlog.Offset, epoch int32) {
	g.handled, g.epoch, g.claimed, g.sought = to, epoch, 0, true
}

// advance raises the handled offset, unless there was a seek meanwhile. Only run calls it.
func (p *Partition) advance(to eventlog.Offset) {
	p.mu.Lock()
	wake, claimed, began := false, eventlog.Offset(0), p.tx.epoch
	if g := &p.progress; p.seen == p.control.seeks && to > g.handled {
		g.handled, g.epoch = to, p.reader.epoch
		if p.tx.upTo > 0 {
			g.claimed = max(g.claimed, min(p.tx.upTo, to))
			if claimed = g.claimed; to >= p.tx.upTo {
				p.tx.upTo = 0 // upTo becomes claimed only once
			}
		}
		wake = g.handled != g.committed && !g.informed
		g.informed = g.informed || wake
	}
	p.mu.Unlock()
	if claimed > 0 {
		p.c.member().Claimed(p.key, p.since, claimed, began)
	}
	if wake {
		p.c.wakeCommits()
	}
}

// goBack lowers the handled offset to the end that the partition has after the store was rewound,
// and makes sure that this offset gets committed, although it is below the committed offset.
func (p *Partition) goBack(to eventlog.Offset) {
	p.mu.Lock()
	if g := &p.progress; p.seen == p.control.seeks { // there was no seek meanwhile
		g.sought = g.sought || g.handled > to
		g.handled, g.epoch, g.claimed = min(g.handled, to), p.reader.epoch, 0
	}
	p.mu.Unlock()
	p.c.wakeCommits()
}

// uncommitted returns the handled offset, and whether it must be committed. It need not be if a
// transaction of the handler has claimed that offset.
func (p *Partition) uncommitted() (c group.Committed, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := &p.progress
	g.informed = false
	c = group.Committed{TopicPartition: p.key, Name: p.name.Topic, Offset: g.handled, LeaderEpoch: g.epoch, Since: p.since}
	c.Onward = g.handled >= g.known() && !g.sought
	return c, (g.handled != g.known() || g.sought) && !p.control.lost
}

func (p *Partition) wasCommitted(upTo eventlog.Offset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress.committed, p.progress.sought = upTo, false
}

// unproven returns the offset that the handler's transactions committed, unless they were rolled
// back, and whether that must be checked.
func (p *Partition) unproven() (claimed eventlog.Offset, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.progress.claimed, p.progress.claimed > p.progress.committed && !p.control.lost
}

// proved notes whether the claimed offset was found committed.
func (p *Partition) proved(claimed eventlog.Offset, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.progress.claimed != claimed: // there was a seek or another claim meanwhile
	case is:
		p.progress.committed = claimed
	default:
		p.progress.claimed = 0
	}
}
