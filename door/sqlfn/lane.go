package sqlfn

import (
	"cmp"
	"slices"

	"github.com/weir-log/weir/eventlog"
)

const (
	// laneShare: topics with at least 1/laneShare of a full chunk's rows or bytes leave the main
	// lane.
	laneShare = 16
	// lanesMax bounds the lanes besides the main lane. When there are as many, further backlogs
	// stay in the main lane.
	lanesMax = 16
	// laneTopicsMax bounds the topics of all lanes together: a look into the main lane compares
	// each row with all of them.
	laneTopicsMax = 256
)

// lane is a set of topics with a backlog. They have a bookmark of their own, and the main lane
// leaves them out: so the events of other topics wait for one chunk of a backlog at a time. A topic
// is in one lane, so its rows are still moved in the order of rounds and ids.
//
// weir.look defines rounds and goals. A lane's rounds have the main lane's goals. A lane that has
// reached the main lane's goal has moved all rows that the main lane left out: its topics go back.
// The main lane drops no goal before it is reached, so a lane's next goal is never older than its
// last.
type lane struct {
	topics []eventlog.TopicID
	mark   bookmark
	moved  row // the last row that was moved: rows that wait come after it
}

// current is the bookmark of the lane that the last poll looked into.
func (i *inbox) current() *bookmark {
	if i.at != nil {
		return &i.at.mark
	}
	return &i.mark
}

// next chooses the lane of the next poll: after another lane it is the main lane, after the main
// lane the lane that has waited longest.
func (i *inbox) next() *lane {
	if i.at != nil || len(i.lanes) == 0 {
		return nil
	}
	l := i.lanes[0]
	i.lanes = append(i.lanes[1:], l)
	return l
}

// split gives topics that have a large share of a full chunk of the main lane a lane of their own.
// The chunk was the new lane's first turn. Rows of no topic, for which others wait (acks, requests
// to create), stay in the main lane. So do the rows of a topic that is still to be created: later
// rows of it have its real id, and would pass them.
func (i *inbox) split(c *chunk) {
	_, taken := i.topics(nil)
	most := laneTopicsMax - len(taken)
	if !c.full || len(i.lanes) >= lanesMax || most <= 0 {
		return
	}
	rows, bytes := make(map[eventlog.TopicID]int), make(map[eventlog.TopicID]int)
	var all, large []eventlog.TopicID
	total := 0
	for n := range c.rows {
		r := &c.rows[n]
		if rows[r.topic] == 0 && r.topic != (eventlog.TopicID{}) && (i.made == nil || i.made(r.topic)) {
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
	if len(large) == 0 {
		return
	}
	if len(large) > most {
		slices.SortStableFunc(large, func(a, b eventlog.TopicID) int { return cmp.Compare(rows[b], rows[a]) })
		large = large[:most]
	}
	i.at = &lane{topics: large, mark: i.mark, moved: c.rows[len(c.rows)-1]}
	i.lanes = append(i.lanes, i.at)
}

// merge ends a lane that has moved all that the main lane has moved, or will have moved when its
// round ends.
func (i *inbox) merge(l *lane) {
	if goal, _ := i.mark.aim(); l.mark.goal == "" && l.mark.done == goal {
		i.lanes = slices.DeleteFunc(i.lanes, func(x *lane) bool { return x == l })
	}
}

// topics returns the topics to which a look into l is limited, or those that a look into the main
// lane (l is nil) leaves out. nil: no such limit.
func (i *inbox) topics(l *lane) (only, without []eventlog.TopicID) {
	if l != nil {
		return l.topics, nil
	}
	for _, l := range i.lanes {
		without = append(without, l.topics...)
	}
	return nil, without
}

// oldest returns the row with the lowest id of these: the first row of c, and the last row that
// each lane has moved.
func (i *inbox) oldest(c *chunk) (oldest row) {
	if len(c.rows) > 0 {
		oldest = c.rows[0]
	}
	for _, l := range i.lanes {
		if oldest.id == 0 || l.moved.id < oldest.id {
			oldest = l.moved
		}
	}
	return oldest
}
