package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/claims"
)

// States of messages. Browse lists messages that are ready, claimed, waiting or delayed; done
// messages only of a queue with KeepDone.
const (
	Sent    = "sent"    // an SQL transaction that is committed enqueued it; it is not in the queue yet
	Ready   = "ready"   // it may be claimed now
	Claimed = "claimed" // a worker has it, with a lease that has not ended
	Waiting = "waiting" // it waits for another attempt, in its partition
	Delayed = "delayed" // it waits in the wheel
	Done    = "done"
	Dead    = "dead"    // it is a dead letter
	Unclear = "unclear" // it is done, or among messages that a search does not come to (searchBytes)
	Unknown = "unknown" // the queue has no such message
)

var browsable = []string{Ready, Claimed, Waiting, Delayed, Done}

// Browse says which messages Queue.Browse lists.
type Browse struct {
	State string    // Ready, Claimed, Waiting, Delayed or Done; "": any of the first three
	From  MessageID // the Next of the page before; zero: the beginning
	Limit int       // at most so many messages: 1 to 1000; 0: 100
}

// Page is a page of messages. It may be empty though others follow.
type Page struct {
	Messages []Peeked
	Next     MessageID // From of the next page; zero: there is none
}

// Peeked is a message and its state.
type Peeked struct {
	Condition
	Key, Value []byte
	Headers    []batch.RecordHeader
	Time       time.Time // when it was enqueued; zero: unknown
}

// browsedMax bounds the records that one page reads: most of those in the wheel may be for other
// queues.
const browsedMax = 10_000

// Browse returns a page of messages in a state, without claiming them. In each partition the oldest
// message comes first. A page has at most about 4 MiB. Browse costs a few trips, and one for each
// partition that has messages, or for each MiB of them. It reads up to 10,000 records.
//
// Between two pages messages change their states: some may come twice or not at all.
func (q *Queue) Browse(ctx context.Context, b Browse) (page Page, err error) {
	if b.State != "" && !slices.Contains(browsable, b.State) {
		return page, &eventlog.InvalidError{What: "state", Value: shorten(b.State, 64), Why: "messages are listed by " + strings.Join(browsable, ", ")}
	}
	places, err := q.places(ctx, b.State)
	if err != nil {
		return page, err
	}
	partitions := make([]eventlog.Partition, len(places))
	for i, p := range places {
		partitions[i] = p.partition
	}
	first := slices.Index(partitions, b.From.Partition)
	if first < 0 && b.From != (MessageID{}) {
		return page, &eventlog.InvalidError{What: "position", Value: b.From.String(), Why: "no message in this state is there: use the position of the page before, with the same state"}
	}
	first = max(first, 0)
	ends, err := q.log.Bounds(ctx, partitions[first:]...)
	if err != nil {
		return page, err
	}
	w := pageWriter{limit: min(max(cmp.Or(b.Limit, 100), 1), deadPage), left: browsedMax}
	var in []place
	var bounds []eventlog.Bounds
	var keys []string
	for i, end := range ends {
		if end.Err != nil {
			return page, end.Err
		}
		if end.Bounds.First < end.Bounds.Next {
			in, bounds, keys = append(in, places[first+i]), append(bounds, end.Bounds), append(keys, places[first+i].state)
		}
	}
	err = q.owner.each(ctx, keys, func(i int, st *claims.State) error {
		from := eventlog.Offset(0)
		if bounds[i].Partition == b.From.Partition {
			from = b.From.Offset
		}
		return w.add(ctx, q, in[i], st.Within(bounds[i]), bounds[i], from)
	})
	if errors.Is(err, errPageFull) {
		err = nil
	}
	return w.page, err
}

// errPageFull ends the listing: the page's Next is set.
var errPageFull = errors.New("the page is full")

// place is a partition that has messages of a queue.
type place struct {
	partition eventlog.Partition
	only      func() []eventlog.Offset // the only offsets that may have messages of the queue; nil: any
	state     string                   // the key of the state that says which of its messages are done; "": none
	// wants reports whether messages in a run are listed.
	wants func(claims.Run) bool
	// describe completes the state of a message; false: the record is not a message of the queue.
	describe func(batch.Record, claims.Run, Condition) (Condition, bool)
}

// places returns where messages in a state are.
func (q *Queue) places(ctx context.Context, state string) (places []place, err error) {
	switch state {
	case Delayed:
		var only func(eventlog.Partition) func() []eventlog.Offset
		err := q.owner.delayed.catchUp(ctx)
		switch {
		case err == nil:
			only = func(p eventlog.Partition) func() []eventlog.Offset {
				return func() []eventlog.Offset { return q.owner.delayed.offsets(q, p) }
			}
		case errors.Is(err, errManyDelayed):
			only = func(eventlog.Partition) func() []eventlog.Offset { return nil }
		default:
			return nil, err
		}
		wheel, _ := q.owner.wheel.known()
		for _, p := range wheel.Partitions {
			places = append(places, place{p, only(p), wheelStateKey(p), func(r claims.Run) bool { return r.Fate != claims.Done }, func(rec batch.Record, _ claims.Run, c Condition) (Condition, bool) {
				return describeDelayed(rec, c), q.isTo(rec)
			}})
		}
		return places, nil
	case Done:
		topic, err := q.doneTopic(ctx)
		for _, p := range topic.Partitions {
			places = append(places, place{p, nil, "", func(claims.Run) bool { return true }, func(rec batch.Record, _ claims.Run, c Condition) (Condition, bool) {
				return describeDone(rec, c), true
			}})
		}
		return places, err
	}
	now, _, err := q.owner.clock.Now(ctx)
	if err != nil {
		return nil, err
	}
	wants := func(r claims.Run) bool {
		return r.Fate != claims.Done && (state == "" || Condition{}.as(r, now).State == state)
	}
	partitions, err := q.partitions(ctx)
	for _, p := range partitions {
		places = append(places, place{p, nil, q.def.Load().keyOf(p), wants, func(rec batch.Record, r claims.Run, c Condition) (Condition, bool) {
			c = c.as(r, now)
			c.Attempt += priorAttempts(rec)
			return c, !q.isOthers(rec)
		}})
	}
	return places, err
}

// doneTopic returns the topic of finished messages; without partitions if the queue has never kept
// one.
func (q *Queue) doneTopic(ctx context.Context) (eventlog.Topic, error) {
	t, err := q.log.Topic(ctx, q.name+doneSuffix)
	if errors.Is(err, eventlog.ErrUnknownTopic) {
		return eventlog.Topic{}, nil
	}
	return t, err
}

func describeDelayed(rec batch.Record, c Condition) Condition {
	c.State, c.Attempt, c.Until = Delayed, priorAttempts(rec), time.UnixMilli(int64(dueOf(rec)))
	return c
}

// describeDone adds what the copy of a finished message says.
func describeDone(rec batch.Record, c Condition) Condition {
	c.State, c.Done = Done, time.UnixMilli(rec.Timestamp)
	c.Worker, _ = header(rec, HeaderWorker)
	attempts, _ := header(rec, HeaderAttempts)
	c.Attempt, _ = strconv.Atoi(attempts) // 0 if somebody else published the record
	return c
}

// pageWriter fills a page.
type pageWriter struct {
	page  Page
	limit int
	left  int // how many records may still be read
	size  int // the bytes of the messages so far
}

// add adds messages of a place, from an offset on. If the page is full before their end, it sets
// the page's Next, and returns errPageFull.
func (w *pageWriter) add(ctx context.Context, q *Queue, in place, mine *claims.Part, bounds eventlog.Bounds, from eventlog.Offset) error {
	records := newRecords(q.log, nil) // not q.records: what workers need stays cached there
	var only []eventlog.Offset
	if in.only != nil {
		only = in.only()
	}
	for o := max(mine.Floor, from); o < bounds.Stable(); o++ {
		if in.only != nil {
			next, _ := slices.BinarySearch(only, o)
			if next == len(only) {
				return nil
			}
			o = only[next]
		}
		r, below := mine.At(o)
		if !in.wants(r) {
			if !below {
				return nil // no message from here on is in a run, so none is wanted
			}
			o = r.End() - 1
			continue
		}
		if len(w.page.Messages) == w.limit || w.size >= deadBytes || w.left == 0 {
			w.page.Next = MessageID{in.partition, o}
			return errPageFull
		}
		w.left--
		rec, err := records.read(ctx, in.partition, o)
		if gone(err) {
			continue
		}
		if err != nil {
			return err
		}
		c, is := in.describe(rec, r, Condition{ID: idOf(claims.Grant{Partition: in.partition, Offset: o}, rec)})
		if is {
			w.size += batch.SealedSize(&rec)
			w.page.Messages = append(w.page.Messages, Peeked{Condition: c, Key: rec.Key, Value: rec.Value, Headers: rec.Headers, Time: enqueued(rec)})
		}
	}
	return nil
}
