package deliver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/recovered"
	"github.com/weir-log/weir/internal/retry"
	"github.com/weir-log/weir/use/publish"
)

// Failure describes an event whose handler failed for good.
type Failure struct {
	From        *Partition
	Topic       string // the event's topic
	Partition   int32
	Event       Event
	Err         error // the error of the last attempt; a *recovered.Error if the handler panicked
	Attempts    int   // how often this process tried the event
	FirstFailed time.Time
	Group       string
	Consumer    string // Subscription.Name
}

// DeadLetter decides what becomes of an event that failed for good. It returns the dead letters to
// publish instead. If it returns none, the event is dropped, which is logged. If it returns an
// error, or panics, the partition halts at the event until Consumer.Resume; so it does if a dead
// letter is too large for its topic or invalid.
//
// Publishing the dead letters and committing the event as handled are one change of the log, except
// on a store made of shards (Consumer.commitLetters).
type DeadLetter func(ctx context.Context, f Failure) ([]publish.Event, error)

// ToDeadLetterTopic publishes what Letter returns.
func ToDeadLetterTopic(_ context.Context, f Failure) ([]publish.Event, error) {
	return []publish.Event{f.Letter()}, nil
}

// ErrHalt is what a DeadLetter returns that does nothing but stop the partition at the event.
var ErrHalt = errors.New("the event was given up, and DeadLetter is Halt")

// Headers of a dead letter, in addition to the headers of the event. Times are in RFC 3339.
const (
	HeaderReason      = "weir.dlt.reason"       // the last error, cut after 4 KiB
	HeaderAttempts    = "weir.dlt.attempts"     // how often the event was tried
	HeaderGroup       = "weir.dlt.group"        // the consumer group
	HeaderConsumer    = "weir.dlt.consumer"     // the consumer's name
	HeaderTopic       = "weir.dlt.topic"        // where the event is stored
	HeaderPartition   = "weir.dlt.partition"    //
	HeaderOffset      = "weir.dlt.offset"       //
	HeaderTime        = "weir.dlt.time"         // when the event was published
	HeaderFirstFailed = "weir.dlt.first_failed" // when it failed for the first time
)

const (
	deadLetterSuffix = ".dlt"
	// reasonMax bounds the reason in a header. letterExtra is by how much max.message.bytes of a
	// dead-letter topic that weir creates exceeds that of the event's topic.
	reasonMax   = 4 << 10
	letterExtra = 64 << 10
)

// DeadLetterTopic is the name of a topic's dead-letter topic.
func DeadLetterTopic(topic string) string { return topic + deadLetterSuffix }

// Letter is the event with the same key, value and headers, and with the headers above, for the
// dead-letter topic of its topic. Its time is that of the publication.
func (f *Failure) Letter() publish.Event {
	e := &f.Event
	headers := append(make([]batch.RecordHeader, 0, len(e.Headers)+9), e.Headers...)
	add := func(key, value string) {
		headers = append(headers, batch.RecordHeader{Key: key, Value: []byte(value)})
	}
	add(HeaderReason, shorten(f.Err.Error(), reasonMax))
	add(HeaderAttempts, strconv.Itoa(f.Attempts))
	add(HeaderGroup, f.Group)
	add(HeaderConsumer, f.Consumer)
	add(HeaderTopic, f.Topic)
	add(HeaderPartition, strconv.Itoa(int(f.Partition)))
	add(HeaderOffset, strconv.FormatInt(e.Offset, 10))
	if e.Timestamp != batch.NoTimestamp {
		add(HeaderTime, time.UnixMilli(e.Timestamp).UTC().Format(time.RFC3339Nano))
	}
	add(HeaderFirstFailed, f.FirstFailed.UTC().Format(time.RFC3339Nano))
	return publish.Event{Topic: DeadLetterTopic(f.Topic), Key: e.Key, Value: e.Value, Headers: headers}
}

// shorten cuts a text to at most that many bytes, between characters.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

func (p *Partition) failure(e Event, err error, attempts int) Failure {
	first := p.trouble.first
	if first.IsZero() {
		first = time.Now()
	}
	return Failure{
		From: p, Topic: p.name.Topic, Partition: p.name.Partition, Event: e, Err: err, Attempts: attempts, FirstFailed: first,
		Group: p.c.sub.Group, Consumer: p.c.sub.Name,
	}
}

// giveUp publishes dead letters for an event that failed for good, and continues at next. If they
// are refused for good the partition halts.
func (p *Partition) giveUp(ctx, wait context.Context, f Failure, next eventlog.Offset) {
	letters, err := p.letters(ctx, f)
	if err != nil {
		p.halt(f, err)
		return
	}
	mark := fmt.Sprintf("dead letter of %d, %s", f.Event.Offset, rand.Text())
	for attempt := 1; len(letters) > 0; attempt++ {
		err := p.bury(ctx, next, mark, letters)
		if err == nil {
			p.unsure = false
			break
		}
		patience := wait
		p.unsure = p.unsure || errors.Is(err, eventlog.ErrUnsure) // the result of a later attempt does not resolve the outcome of this one
		var invalid *eventlog.InvalidError
		switch {
		case errors.Is(err, errNotNow):
			return
		case p.unsure:
			patience = ctx // pause until ctx ends: if wait ended the pause, the event might be delivered again although its dead letter was published
		case errors.Is(err, eventlog.ErrTooLarge) || errors.As(err, &invalid): // another attempt would be refused, too
			p.halt(f, fmt.Errorf("publish the dead letter: %w", err))
			return
		}
		p.c.logger.Error("a dead letter cannot be published; trying again", p.attrs("offset", f.Event.Offset, "err", err, "reason", f.Err)...)
		if !retry.Sleep(patience, writeRetry.Pause(attempt)) {
			return // the event comes again
		}
	}
	does := "event given up; it was published as a dead letter"
	if len(letters) == 0 {
		does = "event given up; no dead letter was published"
	}
	p.c.logger.Error(does, p.attrs("offset", f.Event.Offset, "attempts", f.Attempts, "reason", f.Err)...)
	p.trouble = trouble{}
	if len(p.reader.queue) > 0 {
		p.reader.take(1)
	}
	p.reader.next = max(p.reader.next, next)
	p.advance(next)
}

// writeRetry is the pauses between attempts to publish dead letters, or to append reactions.
var writeRetry = retry.Policy{First: retry.FirstDefault, Max: 10 * time.Second}

// halt stops the partition at an event.
func (p *Partition) halt(f Failure, err error) {
	p.c.logger.Error("partition halted: Resume tries the event again", p.attrs("offset", f.Event.Offset, "attempts", f.Attempts, "reason", f.Err, "err", err)...)
	p.trouble = trouble{}
	p.haltAt(err, f.Err)
}

// letters asks the subscription for an event's dead letters.
func (p *Partition) letters(ctx context.Context, f Failure) (letters []publish.Event, err error) {
	err = recovered.Do(func() (err error) {
		letters, err = p.c.sub.DeadLetter(ctx, f)
		return err
	})
	if panicked := (*recovered.Error)(nil); errors.As(err, &panicked) {
		p.c.logger.Error("DeadLetter panicked", "topic", p.name.Topic, "partition", p.name.Partition, "offset", f.Event.Offset, "panic", panicked.Value, "stack", string(panicked.Stack))
		return nil, err
	}
	return letters, err
}

// bury publishes dead letters for an event, and commits next as the partition's offset with them.
// If the dead-letter topic is missing, bury creates it.
func (p *Partition) bury(ctx context.Context, next eventlog.Offset, mark string, letters []publish.Event) error {
	err := p.c.commitLetters(ctx, p, next, mark, letters)
	if !errors.Is(err, eventlog.ErrUnknownTopic) {
		return err
	}
	if err := p.c.d.makeDeadLetterTopic(ctx, p.name.Topic); err != nil {
		return err
	}
	return p.c.commitLetters(ctx, p, next, mark, letters)
}

func (d *Delivery) makeDeadLetterTopic(ctx context.Context, topic string) error {
	of, err := d.Log.Topic(ctx, topic)
	if err != nil {
		return err
	}
	_, err = d.Log.CreateTopic(ctx, eventlog.TopicSpec{Name: DeadLetterTopic(topic), Partitions: len(of.Partitions), Config: map[string]string{
		"retention.ms":      "-1",
		"max.message.bytes": strconv.Itoa(min(of.MaxMessageBytes()+letterExtra, 1<<31-1)),
	}})
	if errors.Is(err, eventlog.ErrTopicExists) {
		return nil // another process created it first
	}
	if err != nil {
		return fmt.Errorf("create the dead-letter topic: %w", err)
	}
	d.Logger.Info("dead-letter topic created", "topic", DeadLetterTopic(topic))
	return nil
}
