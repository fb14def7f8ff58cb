package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/claims"
	"github.com/weir-log/weir/use/publish"
)

// DeadLetter is a message whose handling was given up.
type DeadLetter struct {
	ID        MessageID // the message's id
	Letter    MessageID // the dead letter's own id, which DeadLetters and Letters take
	Key       []byte
	Value     []byte
	Headers   []batch.RecordHeader // those that the message came with, and those that the queue added
	Reason    string               // attempts, expired, rejected or unreadable
	Error     string               // the error of the last attempt
	Attempts  string
	Worker    string
	Enqueued  time.Time
	Died      time.Time
	partition eventlog.Partition
	offset    eventlog.Offset
	rec       batch.Record
	rewound   <-chan struct{} // closed if the store is found rewound after the letter was read: then another letter may have this one's offset
}

// deadPage bounds the dead letters of one page, and deadBytes their size together; the first comes
// however large it is.
const (
	deadPage  = 1000
	deadBytes = 4 << 20
)

// DeadLetters lists the queue's dead letters that were neither redriven nor discarded, oldest
// first: those that come after the id `after`, or all if `after` is zero. It returns limit of them
// at most, and at most 1000 or about 4 MiB.
func (q *Queue) DeadLetters(ctx context.Context, after MessageID, limit int) ([]DeadLetter, error) {
	topic, err := q.deadTopic(ctx)
	if err != nil {
		return nil, err
	}
	limit = min(max(limit, 1), deadPage)
	rewound := q.log.IncarnationChanged()
	var letters []DeadLetter
	partitions := topic.Partitions
	if after != (MessageID{}) {
		at := number(topic, after.Partition)
		if at < 0 {
			return nil, nil
		}
		partitions = partitions[at:]
	}
	size := 0
	err = q.deadParts(ctx, partitions, func(p eventlog.Partition, mine *claims.Part) error {
		from := eventlog.Offset(0)
		if p == after.Partition {
			from = after.Offset + 1
		}
		bounds := q.owner.boundsOf(p)
		for o := max(from, mine.Floor); o < bounds.Next; o++ {
			if len(letters) == limit || size >= deadBytes {
				return errPageFull
			}
			if r, there := mine.At(o); there && r.Fate == claims.Done {
				continue
			}
			rec, err := q.records.read(ctx, p, o)
			if gone(err) {
				continue
			}
			if err != nil {
				return err
			}
			if size += batch.SealedSize(&rec); size > deadBytes && len(letters) > 0 {
				return errPageFull
			}
			letters = append(letters, letterOf(p, o, rec, rewound))
		}
		return nil
	})
	if err != nil && !errors.Is(err, errPageFull) {
		return nil, err
	}
	return letters, nil
}

// Letters finds dead letters by the ids that DeadLetters gave them. It leaves out those that were
// redriven or discarded, and those of other queues. It returns about 4 MiB at most, in the order in
// which they are given: to go on, call it with the ids after that of the last letter.
func (q *Queue) Letters(ctx context.Context, ids ...MessageID) ([]DeadLetter, error) {
	if len(ids) > deadPage {
		return nil, &eventlog.InvalidError{What: "number of dead letters", Value: fmt.Sprint(len(ids)), Why: fmt.Sprintf("one call takes at most %d", deadPage)}
	}
	topic, err := q.deadTopic(ctx)
	if err != nil {
		return nil, err
	}
	rewound := q.log.IncarnationChanged()
	states := make(map[eventlog.Partition]*claims.Part)
	var partitions []eventlog.Partition
	for _, id := range ids {
		if number(topic, id.Partition) >= 0 && states[id.Partition] == nil {
			partitions = append(partitions, id.Partition)
			states[id.Partition] = &claims.Part{}
		}
	}
	if _, err := q.log.Bounds(ctx, partitions...); err != nil { // from now on this process knows the letters that others made
		return nil, err
	}
	err = q.deadParts(ctx, partitions, func(p eventlog.Partition, mine *claims.Part) error { states[p] = mine; return nil })
	if err != nil {
		return nil, err
	}
	var letters []DeadLetter
	size := 0
	for _, id := range ids {
		mine := states[id.Partition]
		if mine == nil {
			continue
		}
		bounds, _ := q.log.Known(id.Partition)
		if r, there := mine.At(id.Offset); id.Offset < mine.Floor || id.Offset >= bounds.Next || there && r.Fate == claims.Done {
			continue
		}
		rec, err := q.records.read(ctx, id.Partition, id.Offset)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if size += batch.SealedSize(&rec); size > deadBytes && len(letters) > 0 {
			return letters, nil
		}
		letters = append(letters, letterOf(id.Partition, id.Offset, rec, rewound))
	}
	return letters, nil
}

// deadParts calls visit for the partitions that have dead letters, in their order. The Part that
// visit gets says which letters were redriven or discarded, as the store has it now. It costs one
// store call per thousand partitions or 4 MiB of states. ErrUnknownQueue if another process has
// purged the queue: that moves the states to keys of the queue's new id.
func (q *Queue) deadParts(ctx context.Context, partitions []eventlog.Partition, visit func(eventlog.Partition, *claims.Part) error) error {
	partitions = slices.DeleteFunc(slices.Clone(partitions), func(p eventlog.Partition) bool {
		b, known := q.log.Known(p)
		return known && b.First >= b.Next
	})
	keys := make([]string, len(partitions))
	for i, p := range partitions {
		keys[i] = deadKey(q.id, p)
	}
	asked := false
	return q.owner.each(ctx, keys, func(i int, st *claims.State) error {
		if len(st.Parts) == 0 && !asked {
			asked = true
			if err := q.redefine(ctx); err != nil {
				return err
			}
		}
		return visit(partitions[i], st.Within(q.owner.boundsOf(partitions[i])))
	})
}

func letterOf(p eventlog.Partition, o eventlog.Offset, rec batch.Record, rewound <-chan struct{}) DeadLetter {
	l := DeadLetter{
		ID: idOf(claims.Grant{Partition: p, Offset: o}, rec), Letter: MessageID{p, o}, Key: rec.Key, Value: rec.Value, Headers: rec.Headers,
		Enqueued: enqueued(rec), Died: time.UnixMilli(rec.Timestamp), partition: p, offset: o, rec: rec, rewound: rewound,
	}
	l.Reason, _ = header(rec, HeaderReason)
	l.Error, _ = header(rec, HeaderError)
	l.Attempts, _ = header(rec, HeaderAttempts)
	l.Worker, _ = header(rec, HeaderWorker)
	return l
}

// deadTopic returns the topic of the dead letters: a topic without partitions if it was deleted.
// The next dead letter creates it again.
func (q *Queue) deadTopic(ctx context.Context) (eventlog.Topic, error) {
	t, err := q.log.Topic(ctx, q.name+deadSuffix)
	if errors.Is(err, eventlog.ErrUnknownTopic) {
		return eventlog.Topic{}, nil
	}
	return t, err
}

func (q *Queue) deadShard(p eventlog.Partition) *shard {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.dead[p]
	if s == nil {
		s = newShard(q.owner, q, fmt.Sprintf("dead letters of queue %q", q.name), deadKey(q.id, p))
		q.dead[p] = s
	}
	return s
}

// Redrive moves dead letters back into the queue, each in one change, as new messages that have all
// their attempts. It returns how many it certainly moved; letters that were already moved or
// discarded do not count. After eventlog.ErrUnsure it may have moved more of them. To repeat it is
// safe.
func (q *Queue) Redrive(ctx context.Context, letters ...DeadLetter) (moved int, err error) {
	return q.takeLetters(ctx, letters, true, MessageID{})
}

// Discard drops dead letters, and returns how many. Its errors mean what those of Redrive mean.
func (q *Queue) Discard(ctx context.Context, letters ...DeadLetter) (dropped int, err error) {
	return q.takeLetters(ctx, letters, false, MessageID{})
}

// Replace drops a dead letter in place of which the message by was enqueued, as one that edits a
// message does; the audit names both. Its results mean what those of Discard mean.
func (q *Queue) Replace(ctx context.Context, letter DeadLetter, by MessageID) (dropped int, err error) {
	return q.takeLetters(ctx, []DeadLetter{letter}, false, by)
}

// RedriveAll moves back all dead letters that exist now, at most perSecond a second; 0: no limit.
func (q *Queue) RedriveAll(ctx context.Context, perSecond float64) (moved int, err error) {
	swept, err := q.Sweep(ctx, Sweep{PerSecond: perSecond})
	return swept.Taken, err
}

// Sweep sets how all dead letters are redriven or discarded.
type Sweep struct {
	Discard   bool          // drop the dead letters; otherwise they are redriven
	PerSecond float64       // how many to take in a second at most; 0: as fast as it goes
	Until     MessageID     // the last one to take; zero: the newest one now. A message that fails again meanwhile is left for the next sweep
	For       time.Duration // stop after so long; 0: when all are taken

	// Turn waits until a page of letters may be in memory, about 4 MiB or one letter; the sweep
	// calls done when the page is taken. nil: no limit.
	Turn func(context.Context) (done func(), err error)
}

// Swept is the result of a sweep. Until is zero if all were taken; otherwise another sweep with
// this Until continues.
type Swept struct {
	Taken int
	Until MessageID
}

// Sweep redrives or discards dead letters until none is left, the time is over or ctx ends.
func (q *Queue) Sweep(ctx context.Context, s Sweep) (done Swept, err error) {
	topic, err := q.deadTopic(ctx)
	if err != nil {
		return done, err
	}
	if s.Until == (MessageID{}) {
		if s.Until, err = q.lastLetter(ctx, topic); err != nil || s.Until == (MessageID{}) {
			return done, err
		}
	}
	if s.Turn == nil {
		s.Turn = func(context.Context) (func(), error) { return func() {}, nil }
	}
	for began := time.Now(); ; {
		page := deadPage
		if s.PerSecond > 0 {
			page = min(page, max(int(s.PerSecond/10), 1))
		}
		taken, more, err := q.sweepPage(ctx, s, topic, page)
		if err == nil && !more {
			return Swept{Taken: done.Taken}, nil
		}
		if more {
			done.Taken, done.Until = done.Taken+taken, s.Until
		}
		if err != nil {
			return done, err
		}
		var due time.Duration
		if s.PerSecond > 0 {
			due = time.Until(began.Add(time.Duration(float64(done.Taken) / s.PerSecond * float64(time.Second))))
		}
		if s.For > 0 && time.Since(began)+due >= s.For {
			due = min(due, max(s.For-time.Since(began), 0))
			s.For = -1
		}
		timer := time.NewTimer(due)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return done, context.Cause(ctx)
		}
		if s.For < 0 {
			return done, nil
		}
	}
}

// sweepPage takes the first letters, up to s.Until. It returns more == false if there was none.
func (q *Queue) sweepPage(ctx context.Context, s Sweep, topic eventlog.Topic, page int) (taken int, more bool, err error) {
	release, err := s.Turn(ctx)
	if err != nil {
		return 0, false, err
	}
	defer release()
	letters, err := q.DeadLetters(ctx, MessageID{}, page)
	if err != nil {
		return 0, false, err
	}
	last := number(topic, s.Until.Partition)
	n := 0
	for n < len(letters) {
		at := number(topic, letters[n].partition)
		if at > last || at == last && letters[n].offset > s.Until.Offset {
			break
		}
		n++
	}
	if n == 0 {
		return 0, false, nil
	}
	taken, err = q.takeLetters(ctx, letters[:n], !s.Discard, MessageID{})
	return taken, true, err
}

// tellTaken records who redrives or discards dead letters. It does so in an entry of its own,
// before they are taken: to take them may need several entries, which other operations share.
func (q *Queue) tellTaken(ctx context.Context, letters []DeadLetter, back bool, by MessageID) error {
	verb := audit.DeadLetterDiscard
	if back {
		verb = audit.DeadLetterRedrive
	}
	ids := make([]string, len(letters))
	for i, l := range letters {
		ids[i] = l.ID.String()
	}
	if len(ids) == 0 {
		return nil
	}
	var after any
	if by != (MessageID{}) {
		after = map[string]any{"replaced_by": by.String()}
	}
	return audit.Of(q.log).Record(ctx, audit.Event{Verb: verb, Object: q.name, Before: map[string]any{"ids": ids}, After: after})
}

// lastLetter returns the last record of the dead-letter topic, in the order of its partitions;
// zero: there is none.
func (q *Queue) lastLetter(ctx context.Context, topic eventlog.Topic) (last MessageID, err error) {
	ends, err := q.log.Bounds(ctx, topic.Partitions...)
	if err != nil {
		return last, err
	}
	for _, end := range ends {
		if end.Err != nil {
			return last, end.Err
		}
		if b := end.Bounds; b.Next > b.First {
			last = MessageID{b.Partition, b.Next - 1}
		}
	}
	return last, nil
}

// takeLetters ends dead letters; back: they become messages again. It refuses letters that were
// read before the store was found rewound.
func (q *Queue) takeLetters(ctx context.Context, letters []DeadLetter, back bool, by MessageID) (taken int, err error) {
	topics := make(map[int]eventlog.Topic) // by priority
	for _, l := range letters {
		if priority := priorityOf(l.rec); back && topics[priority].Version == 0 {
			if topics[priority], err = q.topicBack(ctx, priority); err != nil {
				return 0, fmt.Errorf("take dead letters: %w", err)
			}
		}
	}
	now, _, err := q.owner.clock.Now(ctx)
	if err != nil {
		return 0, err
	}
	if err := q.tellTaken(ctx, letters, back, by); err != nil {
		return 0, fmt.Errorf("take dead letters: %w", err)
	}
	defer q.wakeClaims() // also for those that were moved before an error
	for len(letters) > 0 {
		p := letters[0].partition
		n, bytes := 0, int64(0)
		for n < len(letters) && letters[n].partition == p && n < movesMax && (n == 0 || bytes < movesBytes) {
			bytes += int64(batch.SealedSize(&letters[n].rec))
			n++
		}
		some := letters[:n]
		letters = letters[n:]
		changed, unknown := 0, 0
		tried := make(map[eventlog.Offset]bool)
		err := q.deadShard(p).do(ctx, &op{bytes: bytes, apply: func(st *claims.State, c *change) (bool, error) {
			unknown = 0
			mine := st.Part(p)
			bounds, _ := q.log.Known(p)
			mine.Trimmed(bounds.First)
			mine.Reach(slices.MaxFunc(some, func(a, b DeadLetter) int { return cmp.Compare(a.offset, b.offset) }).offset + 1)
			e := claims.Edit{Part: mine}
			for _, l := range some {
				if isClosed(l.rewound) {
					return false, fmt.Errorf("%w: this id may be another letter now; list the dead letters again", eventlog.ErrRewound)
				}
				if r, there := e.At(l.offset); !there || r.Fate == claims.Done {
					if was, is := mine.At(l.offset); c.maybeDone && tried[l.offset] && (!is || was.Fate == claims.Done) {
						unknown++ // the earlier attempt took it, or somebody else did
					}
					continue
				}
				tried[l.offset] = true
				e.Put(l.offset, claims.Run{Fate: claims.Done})
				if back {
					topic := topics[priorityOf(l.rec)]
					n := publish.Default(&publish.Event{Key: l.Key}, len(topic.Partitions))
					c.append(topic, topic.Partitions[n], q.again(l, now))
				}
			}
			changed = e.Len()
			return e.Apply(), nil
		}})
		if err != nil {
			return taken, fmt.Errorf("take dead letters of queue %q: %w", q.name, err)
		}
		if taken += changed; unknown > 0 {
			return taken, fmt.Errorf("take dead letters of queue %q: %w: %d were taken by a first attempt whose answer was lost, or by somebody else", q.name, eventlog.ErrUnsure, unknown)
		}
	}
	return taken, nil
}

// again returns the message that a dead letter becomes: it keeps its id and its time, and starts
// with its first attempt. Other queues that read the topic skip it.
func (q *Queue) again(l DeadLetter, now claims.Time) batch.Record {
	return batch.Record{
		Timestamp: int64(now), Key: l.Key, Value: l.Value,
		Headers: headersWith(l.rec, []string{HeaderReason, HeaderError, HeaderAttempts, HeaderQueue, HeaderWorker},
			q.headerTo(), batch.RecordHeader{Key: HeaderPriorAttempts, Value: []byte("0")}),
	}
}
