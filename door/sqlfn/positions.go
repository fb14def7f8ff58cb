package sqlfn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
)

// staleMax bounds the retries of carrying positions while their groups change.
const staleMax = 5

// carryEvery is the minimum time between two carries of positions: of several positions of one
// partition only the last counts.
const carryEvery = 100 * time.Millisecond

// positionsMax bounds the positions that wait in memory.
const positionsMax = 10_000

const (
	// forgetEvery is how often positions of deleted topics are removed.
	forgetEvery = time.Hour
	// forgetMost bounds how many positions one statement removes.
	forgetMost = 10_000
)

// positions are offsets that consumers committed with weir.commit_offset, on the way to the group's
// keys, which Kafka clients and tools read. Until they are carried their rows stay in the inbox, so
// that no mover can lose them.
type positions struct {
	rows    []row // in the order in which they were found, each once
	doubt   bool  // another mover may have carried some of them
	carried time.Time
}

// add adds the rows that are positions, except those that wait already: the main lane may find
// again what a lane has found.
func (p *positions) add(rows []row) {
	waits := make(map[int64]bool, len(p.rows))
	for _, row := range p.rows {
		waits[row.id] = true
	}
	for _, row := range rows {
		if row.group != "" && !waits[row.id] {
			p.rows = append(p.rows, row)
		}
	}
}

// due returns how long positions may still wait; negative: there are none.
func (p *positions) due() time.Duration {
	switch {
	case len(p.rows) == 0:
		return -1
	case len(p.rows) >= positionsMax:
		return 0
	}
	return max(0, carryEvery-time.Since(p.carried))
}

// carryPositions puts the waiting positions into their groups' keys. If another mover was faster
// they keep waiting.
func (m *Mover) carryPositions(ctx context.Context) error {
	rows := m.positions.rows
	m.positions.carried = time.Now()
	if m.positions.doubt {
		var err error
		if rows, err = m.inbox.still(ctx, rows); err != nil {
			return err
		}
	}
	err := m.tryPositions(ctx, rows)
	switch {
	case err == nil:
		rows = nil
	case len(rows) >= positionsMax:
		rows = nil // too many to remember: after rewind, polls find them again in the inbox
		m.inbox.rewind()
	}
	m.positions = positions{rows: rows, doubt: err != nil, carried: time.Now()}
	return err
}

// tryPositions carries positions in one transaction. If that fails because of the rows, it carries
// each group by itself; positions of a group that fails stay in the inbox.
func (m *Mover) tryPositions(ctx context.Context, rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	err := m.carryGroups(ctx, rows)
	if err == nil || isTransient(err) {
		return err
	}
	groups := make(map[string][]row)
	for _, row := range rows {
		groups[row.group] = append(groups[row.group], row)
	}
	for name, rows := range groups {
		if err := m.carryGroups(ctx, rows); isTransient(err) {
			return err
		} else if err != nil {
			m.skip("cannot move positions committed by SQL to their group; they stay in weir.inbox; trying again later", "group", name, "positions", len(rows), "err", err)
		}
	}
	return nil
}

// carryGroups carries positions in one transaction: one statement, and one for each group. Of
// several positions of one partition only the last counts.
func (m *Mover) carryGroups(ctx context.Context, rows []row) error {
	var ids []int64
	var guarded []position
	groups := make(map[string][]group.Committed)
	known := make(map[string]bool) // keys for which there is a younger position
	for i := len(rows) - 1; i >= 0; i-- {
		row := &rows[i]
		ids = append(ids, row.id)
		tp := group.TopicPartition{Topic: row.topic, Partition: row.partition}
		key := group.OffsetKey(row.group, tp)
		topic, found, err := m.topic(ctx, row)
		if err != nil {
			return err
		}
		if known[key] || !found { // a deleted topic's offsets are deleted, too
			continue
		}
		known[key] = true
		groups[row.group] = append(groups[row.group],
			group.Committed{TopicPartition: tp, Name: topic.Name, Offset: row.next, LeaderEpoch: -1, Metadata: mark(row.next, row.base)})
		guarded = append(guarded, position{key: key, base: row.base, next: row.next})
	}
	for attempt := 1; ; attempt++ {
		var entries []eventlog.Entry
		for name, offsets := range groups {
			state, err := m.log.Get(ctx, group.StateKey(name))
			if err != nil {
				return fmt.Errorf("move positions of group %q: %w", name, err)
			}
			entries = append(entries, group.OffsetEntry(state, name, offsets))
		}
		err := m.inbox.carry(ctx, ids, guarded, entries)
		if !errors.Is(err, eventlog.ErrStale) || attempt == staleMax {
			return err
		}
	}
}

// forget removes the positions of deleted topics, the places of messages whose records are deleted,
// and requests to create that ended long ago. If there are more than forgetMost of one of them, the
// next step continues.
func (m *Mover) forget(ctx context.Context) {
	positions, err := m.inbox.forgetConsumers(ctx, forgetMost)
	places := 0
	if err == nil {
		places, err = m.inbox.forgetEnqueued(ctx, forgetMost)
	}
	requests := 0
	if err == nil {
		requests, err = m.inbox.forgetCreations(ctx, forgetMost)
	}
	if err != nil && ctx.Err() == nil {
		m.cfg.Logger.Info("cannot delete what SQL left of deleted topics and records; trying again later", "again", forgetEvery, "err", err)
	}
	if max(positions, places, requests) < forgetMost {
		m.prunedAt = time.Now()
	}
}
