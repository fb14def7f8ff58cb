package queue

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/claims"
)

// Stats counts a queue's messages; the partitions are counted at different moments.
type Stats struct {
	Ready   int64         // they may be claimed now
	Claimed int64         // workers have them, with leases that have not ended
	Waiting int64         // they wait for another attempt, in their partition
	Delayed int64         // they wait for the end of a delay, or more than a minute for another attempt; -1: unknown
	Dead    int64         // dead letters, neither redriven nor discarded
	Oldest  time.Duration // how long the oldest message that may be claimed has been in its partition; 0: none
}

// Stats counts the queue's messages: a few store calls and one more for each thousand partitions or
// 4 MiB of states. The oldest ready message of each partition is read once, in a store call for
// each thousand or 4 MiB of their batches.
func (q *Queue) Stats(ctx context.Context) (s Stats, err error) {
	if err := q.update(ctx); err != nil {
		return s, err
	}
	partitions, err := q.partitions(ctx)
	if err != nil {
		return s, err
	}
	now, latest, err := q.owner.clock.Now(ctx)
	if err != nil {
		return s, err
	}
	ends, err := q.log.Bounds(ctx, partitions...)
	if err != nil {
		return s, err
	}
	var ready []oldest
	err = q.owner.each(ctx, q.def.Load().keysOfParts(partitions), func(i int, st *claims.State) error {
		mine := st.Within(ends[i].Bounds)
		ready = append(ready, oldest{&s, mine.Partition, s.add(mine, now, ends[i].Bounds.Stable())})
		return ends[i].Err
	})
	if err == nil {
		err = q.owner.age(ctx, ready, latest)
	}
	if err != nil {
		return s, err
	}
	delayed, err := q.owner.delayed.counts(ctx)
	if err != nil {
		return s, err
	}
	s.Delayed = countIn(delayed, string(q.headerTo().Value))
	dead, err := q.deadTopic(ctx)
	if err != nil {
		return s, err
	}
	if ends, err = q.log.Bounds(ctx, dead.Partitions...); err != nil {
		return s, err
	}
	keys := make([]string, len(ends))
	for i, end := range ends {
		keys[i] = deadKey(q.id, end.Bounds.Partition)
	}
	return s, q.owner.each(ctx, keys, func(i int, st *claims.State) error {
		s.Dead += st.Within(ends[i].Bounds).Left(ends[i].Bounds.Next)
		return ends[i].Err
	})
}

// add counts the messages of a partition, and returns the oldest one that is ready; -1: none.
func (s *Stats) add(p *claims.Part, now claims.Time, end eventlog.Offset) (oldest eventlog.Offset) {
	oldest = -1
	for _, r := range p.Runs {
		switch {
		case r.Fate == claims.Done:
		case r.Until > now && r.Fate == claims.Claimed:
			s.Claimed += r.N
		case r.Until > now:
			s.Waiting += r.N
		default:
			s.Ready += r.N
			if oldest < 0 {
				oldest = r.From
			}
		}
	}
	if end > p.Next {
		s.Ready += int64(end - p.Next)
		if oldest < 0 {
			oldest = p.Next
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
	ID      MessageID // Sent: none yet
	State   string    // Sent, Ready, Claimed, Waiting, Delayed, Dead, Done, Unclear or Unknown
	Worker  string    // Claimed, Done and Dead: the worker that has or had the message
	Attempt int       // Claimed and Done: which attempt it is or was; Waiting and Delayed: how many failed
	Until   time.Time // Claimed: when the lease ends; Waiting and Delayed: when it can be claimed; by the store's clock
	Done    time.Time // Done: since when, by the store's clock; zero: the queue has no copy of it (KeepDone), or too many other copies
	Error   string    // the error of the last attempt
	Letter  MessageID // Dead: the dead letter, as Letters takes it
}

const (
	// searchBytes and searchRecords bound what one Find reads and decodes of the partitions where a
	// message may be. searchLetters bounds the dead letters that it reads.
	searchBytes   = 256 << 20
	searchRecords = 500_000
	searchLetters = 100_000
	// searchDone bounds the copies of finished messages that Find reads in a partition.
	searchDone = 100_000
	// searchesMax bounds how often one Find searches for a message that moves meanwhile.
	searchesMax = 5
)

// FindEnqueued is Find for a message that an SQL transaction enqueued, by the id that it got there.
func (q *Queue) FindEnqueued(ctx context.Context, id int64) (Condition, error) {
	if q.owner.beside == nil {
		return Condition{State: Unknown}, nil
	}
	def := q.def.Load()
	at, waits, found, err := q.owner.beside.Enqueued(ctx, append([]eventlog.TopicID{def.topicID}, def.levels...), id)
	switch {
	case err != nil:
		return Condition{}, err
	case !found:
		return Condition{State: Unknown}, nil
	case waits:
		return Condition{State: Sent}, nil
	}
	return q.Find(ctx, at)
}

// Find returns the state of a message. A message that left its first partition is searched for
// among delayed messages, messages that came back from the wheel and dead letters. Done means that
// the message is in none of these, whichever process moved it. If there are more of these than Find
// reads, or the message moves each time that it is searched for, it is Unclear.
func (q *Queue) Find(ctx context.Context, id MessageID) (Condition, error) {
	c := Condition{ID: id, State: Unknown}
	partitions, err := q.partitions(ctx)
	if err != nil {
		return c, err
	}
	now, _, err := q.owner.clock.Now(ctx)
	if err != nil {
		return c, err
	}
	isMine := slices.Contains(partitions, id.Partition)
	if isMine {
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
		mine := st.Part(id.Partition)
		mine.Trimmed(ends[0].Bounds.First)
		r, there := mine.At(id.Offset)
		if id.Offset >= mine.Next || there && r.Fate != claims.Done {
			return c.as(r, now), nil
		}
	}
	s := q.owner.searches
	s.id = id
	for searches := 1; ; searches++ {
		ends, err := q.ends(ctx)
		if err != nil {
			return c, err
		}
		at, found, err := q.findMoved(ctx, c, &s)
		if found || err != nil {
			return at, err
		}
		if isMine = isMine || q.wasMine(ctx, id); !isMine {
			break // it is not done, but unknown
		}
		came, err := q.cameSince(ctx, ends, &s)
		if err != nil {
			return c, err
		}
		if !came {
			break
		}
		if searches == searchesMax {
			s.cut = true
			break
		}
	}
	if isMine {
		c, err = q.findDone(ctx, c)
	}
	if s.cut && c.Done.IsZero() {
		c.State = Unclear
	}
	return c, err
}

// findDone looks for the copy of a finished message among searchDone records: the newest ones or,
// if more have come since the message's time, the first ones since then.
func (q *Queue) findDone(ctx context.Context, c Condition) (Condition, error) {
	c.State = Done
	topic, err := q.doneTopic(ctx)
	if err != nil {
		return c, err
	}
	for _, p := range topic.Partitions {
		ends, err := q.log.Bounds(ctx, p)
		if err == nil {
			err = ends[0].Err
		}
		if err != nil {
			return c, err
		}
		b := ends[0].Bounds
		from := max(b.First, b.Next-searchDone)
		if rec, err := q.records.read(ctx, c.ID.Partition, c.ID.Offset); err == nil && rec.Timestamp != batch.NoTimestamp {
			after, err := q.log.Seek(ctx, []eventlog.Goal{{Partition: p, At: eventlog.Timestamp(rec.Timestamp)}})
			if err == nil {
				err = after[0].Err
			}
			if err != nil {
				return c, err
			}
			from = min(from, after[0].At)
		} else if err != nil && !gone(err) {
			return c, err
		}
		records := newRecords(q.log, nil) // not q.records: what workers need stays cached there
		for o := from; o < min(b.Next, from+searchDone); o++ {
			rec, err := records.read(ctx, p, o)
			if gone(err) {
				continue
			}
			if err != nil {
				return c, err
			}
			if idOf(claims.Grant{Partition: p, Offset: o}, rec) == c.ID {
				return describeDone(rec, c), nil
			}
		}
	}
	return c, nil
}

// wasMine reports whether an id may be that of a delayed message of this queue. If the wheel still
// has the record, its header says for which queue it is. If not, it may have been for any queue:
// then wasMine returns true.
func (q *Queue) wasMine(ctx context.Context, id MessageID) bool {
	bounds, _ := q.log.Known(id.Partition)
	if !q.owner.wheel.has(id.Partition) || id.Offset >= bounds.Next {
		return false
	}
	rec, err := q.records.read(ctx, id.Partition, id.Offset)
	return err != nil || q.isTo(rec)
}

// as returns the condition of a message with a run's fate.
func (c Condition) as(r claims.Run, now claims.Time) Condition {
	c.Worker, c.Attempt, c.Error = r.Worker, int(r.Attempt), r.Reason
	c.State = Ready
	if r.Until > now {
		c.State = r.Fate.String()
		c.Until = time.UnixMilli(int64(r.Until))
	}
	return c
}

// ends returns where each partition ends that a message may move to: those of the wheel, of the
// queue and of its dead letters. It is one store call, and two more for a topic that this process
// does not know. Afterwards this process knows what others had appended there before the call.
func (q *Queue) ends(ctx context.Context) (map[eventlog.Partition]eventlog.Offset, error) {
	partitions, err := q.partitions(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{wheelTopic, q.name + deadSuffix} {
		topic, err := q.log.Topic(ctx, name)
		if err != nil && !errors.Is(err, eventlog.ErrUnknownTopic) {
			return nil, err
		}
		partitions = append(partitions, topic.Partitions...)
	}
	held, err := q.log.Bounds(ctx, partitions...)
	if err != nil {
		return nil, err
	}
	ends := make(map[eventlog.Partition]eventlog.Offset)
	for i, p := range partitions {
		if held[i].Err == nil { // otherwise its topic was deleted
			ends[p] = held[i].Bounds.Next
		}
	}
	return ends, nil
}

// cameSince reports whether a message came into one of these partitions after they had the ends in
// before. If it did, findMoved may have missed it, as it was where that had not searched yet, and
// went where that had searched. If it did not, it stayed where it was meanwhile.
func (q *Queue) cameSince(ctx context.Context, before map[eventlog.Partition]eventlog.Offset, s *search) (bool, error) {
	ends, err := q.ends(ctx)
	if err != nil {
		return false, err
	}
	for p, end := range ends {
		if end <= before[p] {
			continue
		}
		since := &claims.Part{Partition: p, Floor: before[p], Next: before[p]}
		m, err := q.scanPartition(ctx, since, end, s, func(batch.Record, MessageID) bool { return true })
		if m != nil || err != nil {
			return m != nil, err
		}
	}
	return false, nil
}

// findMoved looks for a message in the wheel, among messages that came back from there, and among
// the dead letters. It skips messages that are done.
func (q *Queue) findMoved(ctx context.Context, c Condition, s *search) (_ Condition, found bool, err error) {
	now, _, err := q.owner.clock.Now(ctx)
	if err != nil {
		return c, false, err
	}
	if c, found, err = q.findDelayed(ctx, c, s); found || err != nil {
		return c, found, err
	}
	var spans []scanned
	partitions, err := q.partitions(ctx)
	if err != nil {
		return c, false, err
	}
	for _, p := range partitions {
		spans = append(spans, scanned{p, q.def.Load().keyOf(p)})
	}
	m, err := q.scan(ctx, spans, s, func(_ batch.Record, at MessageID) bool { return at != c.ID })
	if err != nil {
		return c, false, err
	}
	if m != nil {
		return c.as(m.run, now), true, nil
	}
	letters, err := q.DeadLetters(ctx, MessageID{}, deadPage)
	for read := 0; err == nil && len(letters) > 0; {
		if read += len(letters); read > searchLetters {
			s.cut = true
			break
		}
		for _, l := range letters {
			if l.ID == c.ID {
				c.State, c.Worker, c.Error, c.Letter = Dead, l.Worker, l.Error, l.Letter
				return c, true, nil
			}
		}
		letters, err = q.DeadLetters(ctx, letters[len(letters)-1].Letter, deadPage)
	}
	return c, false, err // not found
}

// findDelayed looks for a message in the wheel.
func (q *Queue) findDelayed(ctx context.Context, c Condition, s *search) (_ Condition, found bool, err error) {
	err = q.owner.delayed.catchUp(ctx)
	if errors.Is(err, errManyDelayed) {
		return q.searchWheel(ctx, c, s)
	}
	if err != nil {
		return c, false, err
	}
	at := q.owner.delayed.find(q, c.ID)
	keys := make([]string, len(at))
	for i := range at {
		keys[i] = wheelStateKey(at[i].Partition)
	}
	err = q.owner.each(ctx, keys, func(i int, st *claims.State) error {
		mine := st.Within(q.owner.boundsOf(at[i].Partition))
		if r, there := mine.At(at[i].Offset); at[i].Offset < mine.Floor || there && r.Fate == claims.Done {
			return nil
		}
		rec, err := newRecords(q.log, nil).read(ctx, at[i].Partition, at[i].Offset) // not q.records: what workers need stays cached there
		if err == nil && q.isTo(rec) {
			c, found = describeDelayed(rec, c), true
		}
		return noneIfGone(err)
	})
	return c, found, err
}

// searchWheel looks for a message among the messages of all queues in the wheel.
func (q *Queue) searchWheel(ctx context.Context, c Condition, s *search) (_ Condition, found bool, err error) {
	var spans []scanned
	wheel, _ := q.owner.wheel.known()
	for _, p := range wheel.Partitions {
		spans = append(spans, scanned{p, wheelStateKey(p)})
	}
	m, err := q.scan(ctx, spans, s, func(rec batch.Record, _ MessageID) bool { return q.isTo(rec) })
	if m == nil || err != nil {
		return c, false, err
	}
	return describeDelayed(m.record, c), true, nil
}
