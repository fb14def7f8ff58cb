package weir

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/weir-log/weir/eventlog"
)

// Failure describes an event whose handler failed for good.
type Failure struct {
	Event       Event
	Err         error // the error of the last attempt; a *PanicError if the handler panicked
	Attempts    int   // how often this process tried the event
	FirstFailed time.Time
	Group       string
	Consumer    string // Subscription.Name
}

// DeadLetter decides what becomes of an event that failed for good. It returns the dead letters to
// publish instead. If it returns none, the event is dropped, which is logged. If it returns an
// error, the partition halts at the event: the error is logged, and no more events of that
// partition are delivered until Consumer.Resume. The partition also halts if DeadLetter panics, or
// if a dead letter is too large for its topic or invalid.
//
// Publishing the dead letters and committing the event as handled are one change of the log: each
// dead letter is there once, also after a crash.
type DeadLetter func(ctx context.Context, f Failure) ([]Event, error)

// ToDeadLetterTopic is the default DeadLetter. It publishes the event to the topic `<topic>.dlt`,
// with the same key, value and headers, and with the headers below. If that topic does not exist it
// is created, with as many partitions as the event's topic and without retention: its events stay
// until they are deleted. For other settings create it beforehand, or alter it.
func ToDeadLetterTopic(_ context.Context, f Failure) ([]Event, error) {
	return []Event{f.DeadLetterEvent()}, nil
}

// Discard is a DeadLetter that drops the event.
func Discard(context.Context, Failure) ([]Event, error) { return nil, nil }

// Halt is a DeadLetter that stops the partition at the event.
func Halt(context.Context, Failure) ([]Event, error) { return nil, errHalt }

var errHalt = errors.New("the event was given up, and DeadLetter is Halt")

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
	// reasonMax bounds the reason in a header. deadLetterRoom is how much larger than its event a
	// dead letter may be.
	reasonMax      = 4 << 10
	deadLetterRoom = 64 << 10
)

// DeadLetterTopic is the name of a topic's dead-letter topic.
func DeadLetterTopic(topic string) string { return topic + deadLetterSuffix }

// DeadLetterEvent is what ToDeadLetterTopic publishes. A DeadLetter of your own may change it and
// return it. Its time is that of the publication.
func (f Failure) DeadLetterEvent() Event {
	e := f.Event
	headers := append(make([]Header, 0, len(e.Headers)+9), e.Headers...)
	add := func(key, value string) { headers = append(headers, Header{Key: key, Value: []byte(value)}) }
	add(HeaderReason, shorten(f.Err.Error(), reasonMax))
	add(HeaderAttempts, strconv.Itoa(f.Attempts))
	add(HeaderGroup, f.Group)
	add(HeaderConsumer, f.Consumer)
	add(HeaderTopic, e.Topic)
	add(HeaderPartition, strconv.Itoa(int(e.Partition)))
	add(HeaderOffset, strconv.FormatInt(e.Offset, 10))
	if !e.Time.IsZero() {
		add(HeaderTime, e.Time.UTC().Format(time.RFC3339Nano))
	}
	add(HeaderFirstFailed, f.FirstFailed.UTC().Format(time.RFC3339Nano))
	return Event{Topic: DeadLetterTopic(e.Topic), Key: e.Key, Value: e.Value, Headers: headers}
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

// bury publishes dead letters for an event, and commits next as the partition's offset with them.
// If the dead-letter topic is missing, bury creates it.
func (p *partition) bury(ctx context.Context, next eventlog.Offset, mark string, letters []Event) error {
	err := p.c.commitLetters(ctx, p, next, mark, letters)
	if !errors.Is(err, ErrUnknownTopic) {
		return err
	}
	if err := p.c.log.makeDeadLetterTopic(ctx, p.name.Topic); err != nil {
		return err
	}
	return p.c.commitLetters(ctx, p, next, mark, letters)
}

func (l *Log) makeDeadLetterTopic(ctx context.Context, topic string) error {
	of, err := l.log.Topic(ctx, topic)
	if err != nil {
		return err
	}
	_, err = l.log.CreateTopic(ctx, eventlog.TopicSpec{Name: DeadLetterTopic(topic), Partitions: len(of.Partitions), Config: map[string]string{
		"retention.ms":      "-1",
		"max.message.bytes": strconv.Itoa(min(of.MaxMessageBytes()+deadLetterRoom, 1<<31-1)),
	}})
	if errors.Is(err, eventlog.ErrTopicExists) {
		return nil // another process created it first
	}
	if err != nil {
		return fmt.Errorf("create the dead-letter topic: %w", err)
	}
	l.logger.Info("dead-letter topic created", "topic", DeadLetterTopic(topic))
	return nil
}
