package queue

import (
	"context"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// Stats counts a queue's messages; the partitions are counted at different moments.
type Stats struct {
	Ready   int64         // may be claimed now
	Claimed int64         // with a lease that has not ended
	Waiting int64         // for another attempt, in their partition
	Dead    int64         // dead letters, neither redriven nor discarded
	Oldest  time.Duration // how long the oldest message that may be claimed has been in its partition; 0: none
}

// Stats counts the queue's messages: a few store calls and one more for each thousand partitions, and one for each partition whose oldest message is not
// cached.
func (q *Queue) Stats(ctx context.Context) (s Stats, err error) {
	partitions, err := q.partitions(ctx)
	if err != nil {
		return s, err
	}
	now, _, err := q.owner.clock.now(ctx)
	if err != nil {
		return s, err
	}
	ends, err := q.log.Bounds(ctx, partitions...)
	if err != nil {
		return s, err
	}
	parts := make(map[string]map[eventlog.Partition]*part)
	for _, prefix := range []string{statesOf(q.id), deadPrefix + q.id + "/"} {
		if err := q.owner.listParts(ctx, prefix, parts); err != nil {
			return s, err
		}
	}
	for _, end := range ends {
		if end.Err != nil {
			return s, end.Err
		}
		p := end.Bounds.Partition
		mine := partIn(parts[statesOf(q.id)], end.Bounds)
		oldest := mine.count(&s, now, end.Bounds.Next)
		if oldest < 0 {
			continue
		}
		rec, err := q.records.read(ctx, p, oldest)
		if err != nil && !gone(err) {
			return s, err
		}
		if err == nil && rec.Timestamp >= 0 {
			s.Oldest = max(s.Oldest, time.Duration(now-Time(rec.Timestamp))*time.Millisecond)
		}
	}
	dead, err := q.deadTopic(ctx)
	if err != nil {
		return s, err
	}
	if ends, err = q.log.Bounds(ctx, dead.Partitions...); err != nil {
		return s, err
	}
	for _, end := range ends {
		if end.Err != nil {
			return s, end.Err
		}
		mine := partIn(parts[deadPrefix+q.id+"/"], end.Bounds)
		s.Dead += mine.unresolved() + int64(max(end.Bounds.Next-mine.next, 0))
	}
	return s, nil
}

// count adds a partition's messages to s, and returns the oldest one that is ready; -1: none.
func (p *part) count(s *Stats, now Time, end eventlog.Offset) (oldest eventlog.Offset) {
	oldest = -1
	for _, r := range p.runs {
		switch {
		case r.fate == done:
		case r.until > now && r.fate == claimed:
			s.Claimed += r.n
		case r.until > now:
			s.Waiting += r.n
		default:
			s.Ready += r.n
			if oldest < 0 {
				oldest = r.from
			}
		}
	}
	if end > p.next {
		s.Ready += int64(end - p.next)
		if oldest < 0 {
			oldest = p.next
		}
	}
	return oldest
}

// partitions returns all partitions of the queue.
func (q *Queue) partitions(ctx context.Context) (all []eventlog.Partition, err error) {
	levels, err := q.levels(ctx)
	for _, t := range levels {
		all = append(all, t.Partitions...)
	}
	return all, err
}

// Condition is the state of one message.
type Condition struct {
	ID      MessageID
	State   string    // ready, claimed, waiting, delayed, dead, done or unknown
	Worker  string    // claimed: by whom
	Attempt int       // claimed: which one; waiting: how many failed
	Until   time.Time // claimed: when the lease ends; waiting and delayed: when it can be claimed; by the store's clock
	Error   string    // of the last attempt
}

// Peeked is an unfinished message and its state.
type Peeked struct {
	Condition
	Key, Value []byte
	Headers    []batch.RecordHeader
	Time       time.Time // when it was enqueued; zero: unknown
}

// Peek returns messages that are ready, claimed or waiting, partition by partition, the oldest first, and claims none: limit of them at most, never
// more than 1000 or about 4 MiB. It costs a trip for each partition, and reads the messages.
func (q *Queue) Peek(ctx context.Context, limit int) (peeked []Peeked, err error) {
	partitions, err := q.partitions(ctx)
	if err != nil {
		return nil, err
	}
	now, _, err := q.owner.clock.now(ctx)
	if err != nil {
		return nil, err
	}
	ends, err := q.log.Bounds(ctx, partitions...)
	if err != nil {
		return nil, err
	}
	limit = min(max(limit, 1), deadPage)
	size := 0
	for _, end := range ends {
		if end.Err != nil {
			return nil, end.Err
		}
		p := end.Bounds.Partition
		st, err := q.shard(p).fresh(ctx)
		if err != nil {
			return nil, err
		}
		mine := st.part(p)
		mine.trimmed(end.Bounds.First)
		for o := mine.floor; o < end.Bounds.Next && len(peeked) < limit && size < deadBytes; o++ {
			r, _ := mine.at(o)
			if o < mine.next && r.fate == done {
				continue
			}
			rec, err := q.records.read(ctx, p, o)
			if gone(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if q.isOthers(rec) {
				continue
			}
			size += batch.SealedSize(&rec)
			c := r.describe(Condition{ID: idOf(grant{partition: p, offset: o}, rec)}, now)
			c.Attempt += priorAttempts(rec)
			peeked = append(peeked, Peeked{Condition: c, Key: rec.Key, Value: rec.Value, Headers: rec.Headers, Time: enqueued(rec)})
		}
	}
	return peeked, nil
}

// searchMax bounds how many records Find reads in each partition where a message may be.
const searchMax = 100_000

// Find returns the state of a message. One that left its first partition is searched for among delayed messages, messages that
// came back from the wheel and dead letters, searchMax records of each partition; done means that it is in none of them.
func (q *Queue) Find(ctx context.Context, id MessageID) (Condition, error) {
	c := Condition{ID: id, State: "unknown"}
	partitions, err := q.partitions(ctx)
	if err != nil {
		return c, err
	}
	now, _, err := q.owner.clock.now(ctx)
	if err != nil {
		return c, err
	}
	if slices.Contains(partitions, id.Partition) {
		ends, err := q.log.Bounds(ctx, id.Partition)
		if err != nil {
			return c, err
		}
		if ends[0].Err != nil {
			return c, ends[0].Err
		}
		if id.Offset >= ends[0].Bounds.Next {
			return c, nil
		}
		st, err := q.shard(id.Partition).fresh(ctx)
		if err != nil {
			return c, err
		}
		mine := st.part(id.Partition)
		mine.trimmed(ends[0].Bounds.First)
		r, there := mine.at(id.Offset)
		if id.Offset >= mine.next || there && r.fate != done {
			return r.describe(c, now), nil
		}
	}
	c, found, err := q.findMoved(ctx, c)
	if found || err != nil {
		return c, err
	}
	if slices.Contains(partitions, id.Partition) || q.wasMine(ctx, id) {
		c.State = "done"
	}
	return c, nil
}

// wasMine reports whether an id may be that of a delayed message of this queue. If the wheel still has the record, its header says for which queue
// it is. If not, it may have been for any queue: true.
func (q *Queue) wasMine(ctx context.Context, id MessageID) bool {
	bounds, _ := q.log.Known(id.Partition)
	if !q.owner.wheel.has(id.Partition) || id.Offset >= bounds.Next {
		return false
	}
	rec, err := q.records.read(ctx, id.Partition, id.Offset)
	return err != nil || q.isTo(rec)
}

func (r run) describe(c Condition, now Time) Condition {
	c.Worker, c.Attempt, c.Error = r.worker, int(r.attempt), r.reason
	c.State = "ready"
	if r.until > now {
		c.State = fateNames[r.fate]
		c.Until = time.UnixMilli(int64(r.until))
	}
	return c
}

// findMoved looks for a message in the wheel, among messages that came back from there, and among the dead letters. It skips messages that are
// done.
func (q *Queue) findMoved(ctx context.Context, c Condition) (_ Condition, found bool, err error) {
	now, _, err := q.owner.clock.now(ctx)
	if err != nil {
		return c, false, err
	}
	if wheel, there := q.owner.wheel.known(); there {
		for _, p := range wheel.Partitions {
			if b, _ := q.log.Known(p); b.First >= b.Next {
				continue
			}
			rec, _, _, found, err := q.scan(ctx, &shard{owner: q.owner, name: "the wheel", key: wheelStateKey(p)}, p, c.ID)
			if err != nil {
				return c, false, err
			}
			if found && q.isTo(rec) {
				c.State, c.Attempt, c.Until = "delayed", priorAttempts(rec), time.UnixMilli(int64(dueOf(rec)))
				return c, true, nil
			}
		}
	}
	partitions, err := q.partitions(ctx)
	if err != nil {
		return c, false, err
	}
	for _, p := range partitions {
		_, at, r, found, err := q.scan(ctx, q.shard(p), p, c.ID)
		if err != nil {
			return c, false, err
		}
		if found && (MessageID{p, at}) != c.ID {
			return r.describe(c, now), true, nil
		}
	}
	letters, err := q.DeadLetters(ctx, MessageID{}, deadPage)
	read := 0
	for ; err == nil && len(letters) > 0 && read < searchMax; read += len(letters) {
		for _, l := range letters {
			if l.ID == c.ID {
				c.State, c.Worker, c.Error = "dead", l.Worker, l.Error
				return c, true, nil
			}
		}
		letters, err = q.DeadLetters(ctx, letters[len(letters)-1].Letter, deadPage)
	}
	return c, false, err // not found
}

// scan searches the newest searchMax records of a partition, without those that are done, for the message of this id.
func (q *Queue) scan(ctx context.Context, s *shard, p eventlog.Partition, id MessageID) (rec batch.Record, at eventlog.Offset, r run, found bool, err error) {
	st, err := s.fresh(ctx)
	if err != nil {
		return rec, 0, r, false, err
	}
	bounds, _ := q.log.Known(p)
	mine := st.part(p)
	mine.trimmed(bounds.First)
	records := newRecords(q.log, nil) // not q.records: what workers need stays cached there
	from := max(mine.floor, bounds.Next-searchMax)
	for o := from; o < bounds.Next; o++ {
		was, there := mine.at(o)
		if there && was.fate == done {
			continue
		}
		has, err := records.read(ctx, p, o)
		if err != nil {
			if noneIfGone(err) == nil {
				continue
			}
			return rec, 0, r, false, err
		}
		if idOf(grant{partition: p, offset: o}, has) == id && !q.isOthers(has) {
			rec, at, r, found = has, o, was, true // the newest counts
		}
	}
	return rec, at, r, found, nil
}
