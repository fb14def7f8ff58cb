package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/publish"
)

// DeadLetter is a message that was given up.
type DeadLetter struct {
	ID        MessageID // of the message
	Letter    MessageID // of the dead letter: what Redrive and Discard want
	Key       []byte
	Value     []byte
	Headers   []batch.RecordHeader // those that the message came with, and those that the queue added
	Reason    string               // attempts, expired or rejected
	Error     string               // of the last attempt
	Attempts  string
	Worker    string
	Enqueued  time.Time
	Died      time.Time
	partition eventlog.Partition
	offset    eventlog.Offset
	rec       batch.Record
}

// deadPage bounds the dead letters of one page.
const deadPage = 1000

// DeadLetters lists the queue's dead letters that were neither redriven nor discarded, oldest first, after one of them; the zero id begins
// with the first. At most limit, 1000.
func (q *Queue) DeadLetters(ctx context.Context, after MessageID, limit int) ([]DeadLetter, error) {
	topic, err := q.deadTopic(ctx)
	if err != nil {
		return nil, err
	}
	limit = min(max(limit, 1), deadPage)
	var letters []DeadLetter
	begun := after == MessageID{}
	for _, p := range topic.Partitions {
		from := eventlog.Offset(0)
		if !begun {
			if p != after.Partition {
				continue
			}
			begun, from = true, after.Offset+1
		}
		bounds, _ := q.log.Known(p)
		st, err := q.deadShard(p).fresh(ctx)
		if err != nil {
			return nil, err
		}
		mine := st.part(p)
		mine.trimmed(bounds.First)
		for o := max(from, mine.floor); o < bounds.Next && len(letters) < limit; o++ {
			if r, there := mine.at(o); there && r.fate == done {
				continue
			}
			rec, err := q.records.read(ctx, p, o)
			if errors.Is(err, errNoRecord) {
				continue
			}
			if err != nil {
				return nil, err
			}
			letters = append(letters, letterOf(p, o, rec))
		}
	}
	return letters, nil
}

func letterOf(p eventlog.Partition, o eventlog.Offset, rec batch.Record) DeadLetter {
	l := DeadLetter{
		ID: idOf(grant{partition: p, offset: o}, rec), Letter: MessageID{p, o}, Key: rec.Key, Value: rec.Value, Headers: rec.Headers,
		Enqueued: enqueued(rec), Died: time.UnixMilli(rec.Timestamp), partition: p, offset: o, rec: rec,
	}
	l.Reason, _ = header(rec, HeaderReason)
	l.Error, _ = header(rec, HeaderError)
	l.Attempts, _ = header(rec, HeaderAttempts)
	l.Worker, _ = header(rec, HeaderWorker)
	return l
}

func (q *Queue) deadTopic(ctx context.Context) (eventlog.Topic, error) {
	return q.owner.topic(ctx, q.name+deadSuffix, 1, 1<<20+headersMax)
}

func (q *Queue) deadShard(p eventlog.Partition) *shard {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.dead[p]
	if s == nil {
		s = &shard{owner: q.owner, q: q, what: fmt.Sprintf("dead letters of queue %q", q.name), key: deadKey(q.id, p)}
		q.dead[p] = s
	}
	return s
}

// Redrive moves dead letters back into the queue, each in one change: as new messages, with all attempts before them. It says how many it
// moved: letters that were moved or discarded already are none.
func (q *Queue) Redrive(ctx context.Context, letters ...DeadLetter) (moved int, err error) {
	return q.takeLetters(ctx, letters, true)
}

// Discard drops dead letters, and says how many.
func (q *Queue) Discard(ctx context.Context, letters ...DeadLetter) (dropped int, err error) {
	return q.takeLetters(ctx, letters, false)
}

// RedriveAll moves all dead letters back that there are now, at most so many a second; 0: as fast as it goes.
func (q *Queue) RedriveAll(ctx context.Context, perSecond float64) (moved int, err error) {
	began := time.Now()
	var after MessageID
	for {
		page := deadPage
		if perSecond > 0 {
			page = min(page, max(int(perSecond/10), 1))
		}
		letters, err := q.DeadLetters(ctx, after, page)
		if err != nil || len(letters) == 0 {
			return moved, err
		}
		var live []DeadLetter
		for _, l := range letters {
			if l.Died.Before(began) || !l.Died.After(began) { // one that fails again meanwhile is left for the next time
				live = append(live, l)
			}
		}
		n, err := q.Redrive(ctx, live...)
		moved += n
		if err != nil {
			return moved, err
		}
		if len(live) < len(letters) {
			return moved, nil
		}
		after = letters[len(letters)-1].Letter
		if perSecond > 0 {
			due := began.Add(time.Duration(float64(moved) / perSecond * float64(time.Second)))
			select {
			case <-time.After(time.Until(due)):
			case <-ctx.Done():
				return moved, context.Cause(ctx)
			}
		}
	}
}

// takeLetters ends dead letters; back: they become messages again.
func (q *Queue) takeLetters(ctx context.Context, letters []DeadLetter, back bool) (taken int, err error) {
	levels, err := q.levels()
	if err != nil {
		return 0, err
	}
	for len(letters) > 0 {
		p := letters[0].partition
		n, bytes := 0, int64(0)
		for n < len(letters) && letters[n].partition == p && n < movesMax && (n == 0 || bytes < movesBytes) {
			bytes += int64(batch.SealedSize(&letters[n].rec))
			n++
		}
		some := letters[:n]
		letters = letters[n:]
		changed := 0
		err := q.deadShard(p).do(ctx, &op{bytes: bytes, apply: func(st *state, c *change) (bool, error) {
			mine := st.part(p)
			bounds, _ := q.log.Known(p)
			mine.trimmed(bounds.First)
			changed = 0
			for _, l := range some {
				if more := int64(l.offset + 1 - mine.next); more > 0 {
					mine.runs = append(mine.runs, run{n: more, fate: waiting})
					mine.next = l.offset + 1
				}
				if r, there := mine.at(l.offset); !there || r.fate == done {
					continue
				}
				mine.set(l.offset, run{n: 1, fate: done})
				changed++
				if back {
					topic := levels[min(priorityOf(l.rec), len(levels)-1)]
					n := publish.Default(&publish.Event{Key: l.Key}, len(topic.Partitions))
					c.append(topic, topic.Partitions[n], l.again())
				}
			}
			mine.tidy()
			return changed > 0, nil
		}})
		taken += changed
		if err != nil {
			return taken, fmt.Errorf("take dead letters of queue %q: %w", q.name, err)
		}
	}
	q.ring()
	return taken, nil
}

// again is the message that a dead letter becomes: it keeps its id and when it was enqueued, and begins with its first attempt.
func (l DeadLetter) again() batch.Record {
	r := batch.Record{Timestamp: time.Now().UnixMilli(), Key: l.Key, Value: l.Value}
	for _, h := range l.rec.Headers {
		switch h.Key {
		case HeaderReason, HeaderError, HeaderAttempts, HeaderQueue, HeaderWorker:
		default:
			r.Headers = append(r.Headers, h)
		}
	}
	return r
}

// fresh is the state as the store has it now: two trips.
func (s *shard) fresh(ctx context.Context) (*state, error) {
	kv, err := s.owner.log.Get(ctx, s.key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.what, err)
	}
	return s.parse(kv)
}
