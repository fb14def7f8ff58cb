package sqlfn

import (
	"context"
	"slices"

	"github.com/weir-log/weir/eventlog"
)

const (
	// laneShare: topics with at least this part of a full chunk's rows or bytes leave the main lane.
	laneShare = 16
	// lanesMax bounds the lanes beside the main one. When there are as many, further backlogs stay in the main lane.
	lanesMax = 16
)

// lane is topics with a backlog. They have a bookmark of their own, and the main lane goes on without them: so the events of other topics
// wait for one chunk of a backlog at a time. A topic is in one lane, so its rows are still moved in the order of rounds and ids.
//
// A lane's rounds have the goals of the main lane's. When it has reached the same one there is nothing left that the main lane passed by,
// and its topics go back.
type lane struct {
	topics []eventlog.TopicID
	mark   bookmark
	first  row // of the last chunk
}

// current is the bookmark of the lane that the last poll looked into.
func (i *inbox) current() *bookmark {
	if i.at != nil {
		return &i.at.mark
	}
	return &i.mark
}

// next chooses the lane of the next poll: the main lane every other time, between them the others in turn.
func (i *inbox) next() *lane {
	i.turn++
	if len(i.lanes) == 0 || i.turn%2 == 1 {
		return nil
	}
	return i.lanes[i.turn/2%len(i.lanes)]
}

// split gives the topics of which a full chunk of the main lane has the most a lane of their own.
func (i *inbox) split(c *chunk) {
	if i.at != nil || !c.full || len(i.lanes) >= lanesMax {
		return
	}
	rows, bytes := make(map[eventlog.TopicID]int), make(map[eventlog.TopicID]int)
	var all, large []eventlog.TopicID
	total := 0
	for n := range c.rows {
		r := &c.rows[n]
		if rows[r.topic] == 0 {
			all = append(all, r.topic)
		}
		rows[r.topic]++
		bytes[r.topic] += len(r.key) + len(r.value)
		total += len(r.key) + len(r.value)
	}
	for _, topic := range all {
		if rows[topic]*laneShare >= len(c.rows) || total > 0 && bytes[topic]*laneShare >= total {
			large = append(large, topic)
		}
	}
	if len(large) == 0 {
		large = all // many small shares are a backlog together
	}
	i.lanes = append(i.lanes, &lane{topics: large, mark: i.mark, first: c.rows[0]})
	i.turn = 0 // the main lane is next: what waited behind this chunk has waited for one already
}

// merge ends a lane that has moved what the main lane has moved or is about to.
func (i *inbox) merge(l *lane) {
	if goal, _ := i.mark.aim(); l.mark.goal == "" && l.mark.done == goal {
		i.lanes = slices.DeleteFunc(i.lanes, func(x *lane) bool { return x == l })
	}
}

// pollLane looks for rows of a lane's topics. covered: the bookmark still holds.
func (i *inbox) pollLane(ctx context.Context, l *lane) (c *chunk, covered bool, err error) {
	mark := l.mark
	if mark.goal == "" {
		mark.goal, mark.next = i.mark.aim()
	}
	if c, err = i.lookFrom(ctx, mark, l); err != nil || !mark.covers(c.round) {
		return c, false, err
	}
	l.mark = c.round
	if len(c.rows) > 0 {
		l.mark.after, l.first = max(l.mark.after, c.rows[0].id-1), c.rows[0]
		return c, true, nil
	}
	l.mark.finish()
	i.merge(l)
	return c, true, nil
}

// topics are what a look into a lane is limited to, and what a look into the main lane leaves out; nil: nothing.
func (i *inbox) topics(l *lane) (only, without []eventlog.TopicID) {
	if l != nil {
		return l.topics, nil
	}
	for _, l := range i.lanes {
		without = append(without, l.topics...)
	}
	return nil, without
}

// oldest is the oldest row that is known to wait, behind those of c in other lanes.
func (i *inbox) oldest(c *chunk) (oldest row) {
	if len(c.rows) > 0 {
		oldest = c.rows[0]
	}
	for _, l := range i.lanes {
		if oldest.id == 0 || l.first.id < oldest.id {
			oldest = l.first
		}
	}
	return oldest
}
