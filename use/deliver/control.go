package deliver

import (
	"context"
	"fmt"
	"slices"

	"github.com/weir-log/weir/eventlog"
)

// Assigned is a partition that a consumer works on.
type Assigned struct {
	TopicPartition
	Next      eventlog.Offset // offset of the next event to be handled
	Committed eventlog.Offset // the group's committed offset: where another consumer would start
	Paused    bool
	Halted    error // why it has halted, until Resume or Seek; nil: it has not
	GaveUp    error // why it gave up the event at which it has halted; nil: it did not
}

// Assigned lists the partitions that this consumer works on now, sorted by topic and number.
func (c *Consumer) Assigned() []Assigned {
	var list []Assigned
	for _, p := range c.all() {
		p.mu.Lock()
		if !p.control.lost {
			list = append(list, Assigned{TopicPartition: p.name, Next: p.progress.handled, Committed: p.progress.committed, Paused: p.control.paused, Halted: p.control.halted, GaveUp: p.control.gaveUp})
		}
		p.mu.Unlock()
	}
	return list
}

// pauses records which partitions are paused in this consumer.
type pauses struct {
	all    bool
	except map[TopicPartition]bool // exceptions for single partitions
}

func (p *pauses) holds(tp TopicPartition) bool {
	if on, is := p.except[tp]; is {
		return on
	}
	return p.all
}

func (p *pauses) set(on bool, tps []TopicPartition) {
	if len(tps) == 0 {
		*p = pauses{all: on}
		return
	}
	if p.except == nil {
		p.except = make(map[TopicPartition]bool)
	}
	for _, tp := range tps {
		p.except[tp] = on
	}
}

// Pause stops the delivery of partitions: all, or those named. After it returns, no further call of
// the handler begins for them. It does not wait for a running call. The partitions stay assigned to
// this consumer. Pause also applies to partitions that this consumer gets later, but not to other
// consumers.
func (c *Consumer) Pause(tps ...TopicPartition) { c.pause(true, tps) }

// Resume continues paused partitions: all, or those named. A partition that halted at an event
// tries the event again.
func (c *Consumer) Resume(tps ...TopicPartition) { c.pause(false, tps) }

func (c *Consumer) pause(on bool, tps []TopicPartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pauses.set(on, tps)
	for _, p := range c.partitions {
		if len(tps) == 0 || slices.Contains(tps, p.name) {
			p.pause(on)
		}
	}
}

// Seek moves partitions to another position: all of this consumer, or those named, which must be
// assigned to it. If it returns nil, the new position is committed. It does not wait for a running
// call of the handler, so a handler may call Seek; the result of that call no longer changes the
// position. After an error some partitions may have moved; their positions are committed later.
func (c *Consumer) Seek(ctx context.Context, to Position, tps ...TopicPartition) error {
	if c.Over() {
		return fmt.Errorf("seek to %v: %w", to, eventlog.ErrClosed)
	}
	all := slices.DeleteFunc(c.all(), (*Partition).isLost) // a lost partition is there until its running call returns
	partitions := all
	if len(tps) > 0 {
		partitions = nil
		for _, p := range all {
			if slices.Contains(tps, p.name) {
				partitions = append(partitions, p)
			}
		}
		for _, tp := range tps {
			if !slices.ContainsFunc(partitions, func(p *Partition) bool { return p.name == tp }) {
				return fmt.Errorf("seek %s/%d to %v: %w", tp.Topic, tp.Partition, to, ErrNotAssigned)
			}
		}
	}
	places := make([]Place, len(partitions))
	for i, p := range partitions {
		places[i] = Place{p.name, p.reader.id}
	}
	epoch := c.d.Log.LeaderEpoch() // read before the offsets; not p.reader.epoch, which may be older than the offsets
	offsets, err := to.Resolve(ctx, c.d.Log, places)
	if err != nil {
		return fmt.Errorf("seek to %v: %w", to, err)
	}
	for i, p := range partitions {
		p.seek(offsets[i], epoch)
	}
	if err = c.commit(ctx, partitions...); err != nil {
		c.wakeCommits()
		return fmt.Errorf("commit the seek to %v: %w", to, err)
	}
	for i, p := range partitions {
		if p.lostBefore(offsets[i]) { // then commit skipped it
			return fmt.Errorf("seek %s/%d to %v: %w", p.name.Topic, p.name.Partition, to, ErrNotAssigned)
		}
	}
	return nil
}
