package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/claims"
)

// Why a message became a dead letter.
const (
	reasonAttempts = "attempts"
	reasonExpired  = "expired"
	reasonRejected = "rejected"
	// reasonUnreadable: the message's batch cannot be decoded. The dead letter has no value, and
	// its error says where the batch is.
	reasonUnreadable = "unreadable"
)

// Headers that a queue adds to a message's own. Times are as in RFC 3339.
const (
	HeaderID       = "weir.queue.id"       // MessageID of where it was first enqueued
	HeaderQueue    = "weir.queue.name"     // the queue that gave it up, or handled it
	HeaderReason   = "weir.queue.reason"   // attempts, expired, rejected or unreadable
	HeaderError    = "weir.queue.error"    // the error of the last attempt
	HeaderAttempts = "weir.queue.attempts" // how many attempts there were
	HeaderEnqueued = "weir.queue.enqueued" // when it was first enqueued
	HeaderWorker   = "weir.queue.worker"   // who handled it, or failed last
)

const (
	deadSuffix = ".dlt"
	doneSuffix = ".done"
	// errorMax bounds the text of an error that is kept, and headersMax what a queue's headers add
	// to a message.
	errorMax   = 4 << 10
	headersMax = 64 << 10
)

// Nack gives back messages that could not be handled. They are delivered again after the queue's
// pause for that number of failed attempts; after the last attempt they become dead letters. Errors
// are those of Ack.
func (q *Queue) Nack(ctx context.Context, n Nack, receipts ...string) ([]error, error) {
	if n.Delay < 0 || n.Delay > delayMax {
		return nil, &eventlog.InvalidError{What: "delay", Value: n.Delay.String(), Why: fmt.Sprintf("0 to %v are allowed", delayMax)}
	}
	_, now, err := q.owner.clock.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("nack messages of queue %q: %w", q.name, err)
	}
	n.Error = shorten(n.Error, errorMax)
	errs, err := q.answer(ctx, receipts, func(e *claims.Edit, g claims.Grant, instead preparation, _ *change) error {
		r, err := e.Held(g)
		if err != nil {
			return err
		}
		to := claims.Run{Fate: claims.Done} // the record that replaces it, if any, was prepared
		if instead.until > 0 {
			to = claims.Run{Fate: claims.Waiting, Attempt: r.Attempt, Until: instead.until, Reason: shorten(n.Error, reasonKept)}
		}
		if n.Uncounted {
			to.Attempt--
		}
		e.Put(g.Offset, to)
		return nil
	}, func(ctx context.Context, g claims.Grant) (instead preparation, err error) {
		if n.Uncounted {
			return preparation{until: now}, nil
		}
		settings := q.def.Load().settings
		rec, err := q.records.read(ctx, g.Partition, g.Offset)
		if errors.Is(err, errUnreadable) {
			return q.deadLetter(ctx, g, q.runOf(g), reasonUnreadable, err.Error())
		}
		if err != nil {
			return instead, noneIfGone(err)
		}
		attempts := priorAttempts(rec) + int(g.Attempt)
		pause := n.Delay
		if !n.SetDelay {
			pause = settings.pause(int32(min(attempts, attemptsMax)))
		}
		here := preparation{until: now + claims.Time(pause.Milliseconds())}
		leaves := n.Reject || settings.Attempts > 0 && attempts >= settings.Attempts || pause > holdMax && !settings.KeyOrder
		if !leaves {
			return here, nil
		}
		if free, err := q.mayLeave(ctx, g); err != nil || !free {
			here.until = max(here.until, now+claims.Time(takenFor.Milliseconds()))
			return here, err
		}
		switch {
		case n.Reject:
			return q.deadLetter(ctx, g, q.runOf(g), reasonRejected, n.Error)
		case settings.Attempts > 0 && attempts >= settings.Attempts:
			return q.deadLetter(ctx, g, q.runOf(g), reasonAttempts, n.Error)
		}
		return q.putOffRecord(ctx, g, rec, attempts, now, here.until)
	})
	return q.staleIfPurged(ctx, receipts, errs), err
}

// holdMax is the longest wait of a message in its own partition. For longer waits it moves to the
// wheel, so that the partition's floor can rise. A queue with order by key does not move it: later
// messages of the key must wait as well.
const holdMax = time.Minute

// putOffRecord makes the record with which a message moves to the wheel.
func (q *Queue) putOffRecord(ctx context.Context, g claims.Grant, rec batch.Record, attempts int, now, due claims.Time) (none preparation, err error) {
	topic, err := q.owner.wheel.topic(ctx)
	if err != nil {
		return none, err
	}
	added := []batch.RecordHeader{{Key: HeaderPriorAttempts, Value: []byte(strconv.Itoa(attempts))}}
	if key, token := q.uniqueNamed(rec); key != "" && q.isEarlier(key) {
		added = append(added, batch.RecordHeader{Key: headerUnique, Value: []byte(q.currentKey(key) + " " + token)})
	}
	if _, is := header(rec, headerAvailable); !is && rec.Timestamp >= 0 {
		added = append(added, batch.RecordHeader{Key: headerAvailable, Value: timeText(time.UnixMilli(rec.Timestamp))})
	}
	if _, moved := header(rec, HeaderID); !moved {
		added = append(added, batch.RecordHeader{Key: HeaderID, Value: []byte(idOf(g, rec).String())})
		if at := enqueued(rec); !at.IsZero() {
			added = append(added, batch.RecordHeader{Key: HeaderEnqueued, Value: timeText(at)})
		}
	}
	headers := headersWith(rec, nil, append(added, q.delayHeaders(due)...)...)
	return preparation{
		topic: topic, partition: topic.Partitions[slotOf(now, due)], names: q.names(rec, g, false),
		record: batch.Record{Timestamp: int64(now), Key: rec.Key, Value: rec.Value, Headers: headers},
	}, nil
}

func noneIfGone(err error) error {
	if gone(err) {
		return nil
	}
	return err
}

// reasonKept bounds the error of a waiting message, which is kept in the partition's state.
const reasonKept = 256

// Nack says why, and for how long, a message is given back.
type Nack struct {
	Error    string        // the error of the attempt; at most 4 KiB are kept
	SetDelay bool          // Delay replaces the queue's own pause
	Delay    time.Duration // how long until the next attempt
	Reject   bool          // no further attempt: it becomes a dead letter now
	// Uncounted: the attempt does not count, since its worker was stopped. The message can be
	// claimed again immediately; Delay and Reject do not matter.
	Uncounted bool
}

// preparation is what a message's change needs: the record to append with it or, for a message that
// waits in its partition, the end of the wait.
type preparation struct {
	until     claims.Time // the end of its wait in its partition; 0: it does not wait there
	topic     eventlog.Topic
	partition eventlog.Partition
	record    batch.Record
	names     *named         // the unique key that it may hold; nil: none. uniques fills in what follows
	puts      []eventlog.Put // what becomes of the message's unique key
	unique    string         // the unique key whose value must say where the record is; "": none
	holder    holder         // who holds that unique key
}

func (p preparation) append(c *change) {
	c.put(p.puts)
	if p.topic.Version == 0 {
		return
	}
	nth, record := c.append(p.topic, p.partition, p.record)
	if p.unique != "" {
		c.put([]eventlog.Put{{Key: p.unique, Version: eventlog.Version(0).Next(), Value: p.holder.placeValue(p.partition, record), AddBase: nth + 1}})
	}
}

func (p preparation) bytes() int64 {
	if p.topic.Version == 0 {
		return 0
	}
	return int64(batch.SealedSize(&p.record))
}

// runOf returns the attempt of a grant, with its worker and the error of the attempt before if this
// process knows them.
func (q *Queue) runOf(g claims.Grant) claims.Run {
	attempt := claims.Run{Attempt: g.Attempt}
	if known := q.shard(g.Partition).known(); known != nil {
		if p, there := known.Find(g.Partition); there {
			r, _ := p.At(g.Offset)
			attempt.Worker, attempt.Reason = r.Worker, r.Reason
		}
	}
	return attempt
}

// deadLetter makes a message's dead letter, after its last attempt.
func (q *Queue) deadLetter(ctx context.Context, g claims.Grant, last claims.Run, why, text string) (preparation, error) {
	return q.copyTo(ctx, deadSuffix, g, last, []batch.RecordHeader{
		{Key: HeaderReason, Value: []byte(why)},
		{Key: HeaderError, Value: []byte(text)},
	})
}

// keepDone makes the copy of a handled message, if the queue keeps those, and frees its unique key.
func (q *Queue) keepDone(ctx context.Context, g claims.Grant) (preparation, error) {
	if q.def.Load().settings.KeepDone {
		return q.copyTo(ctx, doneSuffix, g, q.runOf(g), nil)
	}
	key, err := q.unique(ctx, g)
	return preparation{names: key}, err
}

// copyTo makes a copy of a message for another topic of the queue, after its last attempt. There is
// no copy if the log no longer has the message, or if the message is another queue's.
func (q *Queue) copyTo(ctx context.Context, suffix string, g claims.Grant, last claims.Run, headers []batch.RecordHeader) (preparation, error) {
	rec, err := q.records.read(ctx, g.Partition, g.Offset)
	switch {
	case errors.Is(err, errNoRecord), err == nil && q.isOthers(rec):
		return preparation{}, nil
	case errors.Is(err, errUnreadable):
		rec = batch.Record{Timestamp: batch.NoTimestamp}
	case err != nil:
		return preparation{}, err
	}
	topic, err := q.owner.topic(ctx, q.def.Load().ownerOfLetters(), q.name+suffix, 1, batch.SealedSize(&rec)+headersMax)
	if err != nil {
		return preparation{}, err
	}
	headers = append(headers,
		batch.RecordHeader{Key: HeaderID, Value: []byte(idOf(g, rec).String())},
		batch.RecordHeader{Key: HeaderQueue, Value: []byte(q.name)},
		batch.RecordHeader{Key: HeaderAttempts, Value: []byte(strconv.Itoa(priorAttempts(rec) + int(last.Attempt)))},
		batch.RecordHeader{Key: HeaderWorker, Value: []byte(last.Worker)})
	if at := enqueued(rec); !at.IsZero() {
		headers = append(headers, batch.RecordHeader{Key: HeaderEnqueued, Value: timeText(at)})
	}
	_, now, err := q.owner.clock.Now(ctx)
	if err != nil {
		return preparation{}, err
	}
	headers = headersWith(rec, []string{headerUnique, headerTo, HeaderPriorAttempts, headerAvailable}, headers...)
	return preparation{
		topic: topic, partition: topic.Partitions[0], names: q.names(rec, g, true),
		record: batch.Record{Timestamp: int64(now), Key: rec.Key, Value: rec.Value, Headers: headers},
	}, nil
}

// bury makes a message a dead letter, if its claim is still the last one. The caller has checked
// that the message may leave its partition (unacked).
func (q *Queue) bury(ctx context.Context, g claims.Grant, why, text string) error {
	letter, err := q.deadLetter(ctx, g, q.runOf(g), why, text)
	if err == nil {
		err = q.uniques(ctx, &letter)
	}
	if err != nil {
		return err
	}
	return q.change(ctx, g.Partition, &op{bytes: letter.bytes(), apply: func(s *claims.State, c *change) (bool, error) {
		if _, err := s.Part(g.Partition).Held(g); err != nil {
			return false, err
		}
		s.Part(g.Partition).Resolve(g, claims.Run{Fate: claims.Done})
		letter.append(c)
		return true, nil
	}})
}

// noAnswer is the error of an attempt whose worker never answered.
const noAnswer = "the lease of its last attempt ended without an answer"

// buriesMax bounds how many messages of a partition one process makes dead letters at a time.
const buriesMax = 64

// buryAll makes dead letters of messages whose last lease ended. For each partition one such call
// runs at a time; a later claim finds the remaining messages.
func (q *Queue) buryAll(p eventlog.Partition, spent []claims.Grant) {
	if len(spent) == 0 {
		return
	}
	q.mu.Lock()
	busy := q.burying[p]
	q.burying[p] = true
	q.mu.Unlock()
	if busy {
		return
	}
	over := func() {
		q.mu.Lock()
		delete(q.burying, p)
		q.mu.Unlock()
	}
	if !q.owner.start(func(ctx context.Context) {
		defer over()
		report := func(g claims.Grant, err error) {
			if err != nil && !errors.Is(err, ErrStaleReceipt) && ctx.Err() == nil {
				q.owner.logger.Warn("a message that failed too often could not be made a dead letter; trying again", "queue", q.name, "partition", p, "offset", g.Offset, "err", err)
			}
		}
		taken, err := q.takeOver(ctx, p, spent[:min(len(spent), takenMost)])
		if err != nil {
			report(spent[0], err)
			return
		}
		var burying errgroup.Group
		burying.SetLimit(buriesMax)
		for _, g := range taken {
			burying.Go(func() error {
				report(g, q.bury(ctx, g, reasonAttempts, noAnswer))
				return nil
			})
		}
		_ = burying.Wait() // each logs its own error
	}) {
		over()
	}
}

// shorten cuts a text to at most `most` bytes, between characters.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
