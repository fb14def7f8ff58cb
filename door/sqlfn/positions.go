package sqlfn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
)

// staleMax bounds how often positions are carried again because their groups moved on meanwhile.
const staleMax = 5

// carryEvery is the least time between two times that positions are carried: of many of one partition the last one will do.
const carryEvery = 100 * time.Millisecond

// positionsMax bounds what waits in memory.
const positionsMax = 10_000

const (
	// forgetEvery is how often positions of topics that are gone are looked for.
	forgetEvery = time.Hour
	// forgetMost bounds how many are removed at once.
	forgetMost = 10_000
)

// positions are what consumers committed with weir.commit_offset, on the way to where Kafka clients and tools look for it. Until they are
// carried their rows stay in the inbox; whoever loses this memory finds them there.
type positions struct {
	rows    []row // in the order of their ids
	doubt   bool  // another mover may have carried some of them
	carried time.Time
}

// add takes in those of some rows that are positions.
func (p *positions) add(rows []row) {
	for _, row := range rows {
		if row.group != "" {
			p.rows = append(p.rows, row)
		}
	}
}

// due tells how long positions may wait yet; negative: there are none.
func (p *positions) due() time.Duration {
	switch {
	case len(p.rows) == 0:
		return -1
	case len(p.rows) >= positionsMax:
		return 0
	}
	return max(0, carryEvery-time.Since(p.carried))
}

// carryPositions brings the positions that wait into their groups' keys. Those that it could not bring, as another mover was at it, wait on.
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
		rows = nil // too many to remember: they are found again where they are
		m.inbox.rewind()
	}
	m.positions = positions{rows: rows, doubt: err != nil, carried: time.Now()}
	return err
}

// tryPositions carries positions. Where that cannot be done as a whole, it goes group by group: what cannot be carried stays in the inbox,
// and the others go on.
func (m *Mover) tryPositions(ctx context.Context, rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	err := m.carryGroups(ctx, rows)
	if err == nil || passing(err) {
		return err
	}
	groups := make(map[string][]row)
	for _, row := range rows {
		groups[row.group] = append(groups[row.group], row)
	}
	for name, rows := range groups {
		if err := m.carryGroups(ctx, rows); passing(err) {
			return err
		} else if err != nil {
			m.leave("positions committed by SQL stay in weir.inbox: they cannot be carried to their group; tried again later", "group", name, "positions", len(rows), "err", err)
		}
	}
	return nil
}

// carryGroups carries positions, all in one transaction: one trip, and one for each group. Of several positions of one partition only the
// last counts.
func (m *Mover) carryGroups(ctx context.Context, rows []row) error {
	var ids []int64
	var guarded []position
	groups := make(map[string][]group.Committed)
	known := make(map[string]bool) // keys of which there is a younger position
	for i := len(rows) - 1; i >= 0; i-- {
		row := &rows[i]
		ids = append(ids, row.id)
		tp := group.TopicPartition{Topic: row.topic, Partition: row.partition}
		key := group.OffsetKey(row.group, tp)
		topic, found, err := m.topic(ctx, row)
		if err != nil {
			return err
		}
		if known[key] || !found { // where the topic is gone, so are its offsets
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
				return fmt.Errorf("carry positions of group %q: %w", name, err)
			}
			entries = append(entries, group.OffsetEntry(state, name, offsets))
		}
		err := m.inbox.carry(ctx, ids, guarded, entries)
		if !errors.Is(err, eventlog.ErrStale) || attempt == staleMax {
			return err
		}
	}
}

// forgetConsumers removes the positions of topics that are gone, which no consumer will ask for again. Where there are more than it may remove at
// once, the next step goes on.
func (m *Mover) forgetConsumers(ctx context.Context) {
	n, err := m.inbox.forgetConsumers(ctx, forgetMost)
	if err != nil && ctx.Err() == nil {
		m.cfg.Logger.Info("positions of topics that are gone are kept for now", "again", forgetEvery, "err", err)
	}
	if n < forgetMost {
		m.forgot = time.Now()
	}
}
