package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/chance"
	"github.com/weir-log/weir/internal/node"
	"github.com/weir-log/weir/use/queue"
)

// tailBytes bounds the recent events that the library keeps in memory.
const tailBytes = 16 << 20

// closeWithin bounds how long a consumer or a log may take to close.
const closeWithin = 30 * time.Second

// Library is the Go library, in this process, on a store.
type Library struct {
	log    *weir.Log
	queues *queue.Queues
	sql    *sqlTopic // nil: the store's database has no SQL for programs
	names  string
	open   func(context.Context) (eventlog.Store, error)
	logger *slog.Logger
}

// anew calls do with a library that is opened anew: it has nothing in memory that the store may
// have lost.
func (l *Library) anew(ctx context.Context, do func(*Library) error) error {
	fresh, err := OpenLibrary(ctx, l.open, l.names, l.logger)
	if err != nil {
		return err
	}
	return errors.Join(do(fresh), fresh.Close())
}

// OpenLibrary opens the library on a store that open opens. names begins the names of all that its
// protocols make.
func OpenLibrary(ctx context.Context, open func(context.Context) (eventlog.Store, error), names string, logger *slog.Logger) (*Library, error) {
	store, err := open(ctx)
	if err != nil {
		return nil, err
	}
	opened, parts, err := node.OpenLibrary(ctx, store, node.Config{Logger: logger, TailBytes: tailBytes})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	l := &Library{log: opened.(*weir.Log), queues: parts.Queues, names: names, open: open, logger: logger}
	l.sql = sqlOf(l, store, parts.SQL != nil, parts.Inbox != nil)
	return l, nil
}

// Close closes the log. It ends in bounded time, also if the store does not answer.
func (l *Library) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	err := l.log.Close(ctx)
	if l.sql != nil {
		err = errors.Join(err, l.sql.db.Close())
	}
	return err
}

// Protocols are publishing and consuming, a work queue, and event-sourced streams; and SQL, if the
// store's database has functions for that.
func (l *Library) Protocols() []Protocol {
	all := []Protocol{&libraryTopic{l}, &libraryQueue{l, "-queue"}, &libraryStreams{Library: l, suffix: "-streams"}}
	if l.sql == nil {
		return all
	}
	all = append(all, l.sql)
	if _, is := l.sql.dialect.(inPostgres); is {
		all = append(all, &sqlQueue{libraryQueue{l, "-sql-queue"}}, &sqlStreams{libraryStreams{Library: l, suffix: "-sql-streams"}})
	}
	return all
}

// sure marks an error after which the library's callers may rely on it that nothing happened: every
// one but ErrUnsure.
func sure(err error) error {
	if errors.Is(err, weir.ErrUnsure) {
		return err
	}
	return Refused(err)
}

// gone is err, unless that says that there is nothing of this name: then what was to be removed is
// removed.
func gone(err error, missing ...error) error {
	for _, m := range missing {
		if errors.Is(err, m) {
			return nil
		}
	}
	return err
}

// keyOf is the key of a writer's events, and the name of its stream.
func keyOf(writer int) string { return fmt.Sprintf("writer-%d", writer) }

// partitions of what a protocol creates.
const partitions = 4

// libraryTopic publishes to a topic, and consumes it as a group.
type libraryTopic struct{ *Library }

func (p *libraryTopic) topic() string { return p.names + "-topic" }

func (p *libraryTopic) Traits() Traits {
	return Traits{Name: "library", Where: "topic " + p.topic(), Ordered: true, Audited: true}
}

func (p *libraryTopic) Create(ctx context.Context) error {
	return p.log.EnsureTopic(ctx, weir.Topic{Name: p.topic(), Partitions: partitions})
}

func (p *libraryTopic) Write(ctx context.Context, writer int, events [][]byte) (Wrote, error) {
	all := make([]weir.Event, len(events))
	for i, e := range events {
		all[i] = weir.Event{Topic: p.topic(), Key: []byte(keyOf(writer)), Value: e}
	}
	_, err := p.log.Publish(ctx, all...)
	return Wrote{}, sure(err)
}

func (p *libraryTopic) Read(ctx context.Context, to *Reader) error {
	broken := make(chan error, 1)
	consumer, err := p.log.Consume(ctx, weir.Subscription{
		Group: p.topic(), Topics: []string{p.topic()},
		BatchHandler: func(_ context.Context, events []weir.Event) error {
			for _, e := range events {
				if err := to.Got(e.Value); err != nil {
					return err
				}
			}
			return to.Flush()
		},
		DeadLetter: func(_ context.Context, f weir.Failure) ([]weir.Event, error) { // only the history makes a handler fail
			select {
			case broken <- f.Err:
			default:
			}
			return nil, f.Err
		},
	})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case err = <-broken:
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	return errors.Join(err, consumer.Close(closing))
}

func (p *libraryTopic) Audit(ctx context.Context, to *Reader) error {
	return p.anew(ctx, func(fresh *Library) error { return (&libraryTopic{fresh}).readAll(ctx, to) })
}

// readAll passes on all that the topic has.
func (p *libraryTopic) readAll(ctx context.Context, to *Reader) error {
	bounds, err := p.log.Bounds(ctx, p.topic())
	if err != nil {
		return err
	}
	for i := range bounds {
		for e, err := range p.log.Read(ctx, weir.TopicPartition{Topic: p.topic(), Partition: int32(i)}, weir.Earliest) {
			if err == nil {
				err = to.Got(e.Value)
			}
			if err != nil {
				return err
			}
		}
	}
	return to.Flush()
}

func (p *libraryTopic) Remove(ctx context.Context) error {
	return errors.Join(
		gone(p.log.DeleteTopic(ctx, p.topic()), weir.ErrUnknownTopic),
		gone(p.log.DeleteGroup(ctx, p.topic()), weir.ErrUnknownGroup),
	)
}

// libraryQueue enqueues messages, claims them and acknowledges them.
type libraryQueue struct {
	*Library
	suffix string // of the name
}

func (p *libraryQueue) queue() string { return p.names + p.suffix }

func (p *libraryQueue) Traits() Traits {
	return Traits{Name: "library queue", Where: "queue " + p.queue() + " with its topic"}
}

func (p *libraryQueue) Create(ctx context.Context) error {
	return p.log.EnsureQueue(ctx, weir.Queue{Name: p.queue(), Partitions: partitions, Settings: weir.QueueSettings{Lease: queueLease, Attempts: -1}})
}

// deadLetters ends the name of the topic that a queue makes for its dead letters.
const deadLetters = ".dlt"

const (
	// queueLease is how long a message is kept from others after its claim's answer was lost.
	queueLease = 10 * time.Second
	claimMost  = queue.ClaimMax
	claimWait  = 5 * time.Second
)

func (p *libraryQueue) Write(ctx context.Context, writer int, events [][]byte) (Wrote, error) {
	messages := make([]weir.NewMessage, len(events))
	for i, e := range events {
		messages[i] = weir.NewMessage{Key: []byte(keyOf(writer)), Value: e}
	}
	_, err := p.log.Enqueue(ctx, p.queue(), messages...)
	return Wrote{}, sure(err)
}

func (p *libraryQueue) Read(ctx context.Context, to *Reader) error {
	for ctx.Err() == nil {
		err := p.queues.With(ctx, p.queue(), func(q *queue.Queue) error { return work(ctx, q, to) })
		if err != nil {
			return err
		}
	}
	return nil
}

// work claims some messages and acknowledges them.
func work(ctx context.Context, q *queue.Queue, to *Reader) error {
	messages, err := q.Claim(ctx, queue.Claim{Max: claimMost, Wait: claimWait, Worker: "weir verify --load"})
	if err != nil {
		return err
	}
	receipts := make([]string, len(messages))
	for i, m := range messages {
		receipts[i] = m.Receipt
		if err := to.Got(m.Value); err != nil {
			return err
		}
	}
	if err := to.Flush(); err != nil || len(messages) == 0 {
		return err
	}
	acking, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	outcomes, err := q.Ack(acking, receipts...)
	if err != nil {
		return err
	}
	var done [][]byte
	var failed error // the first: the others are like it
	for i, outcome := range outcomes {
		if outcome == nil {
			done = append(done, messages[i].Value)
		}
		failed = cmp.Or(failed, outcome)
	}
	return errors.Join(failed, to.Acked(done...))
}

// errHandled is why nobody audits a queue.
var errHandled = errors.New("the messages of a queue that were handled cannot be read again")

func (p *libraryQueue) Audit(context.Context, *Reader) error { return errHandled }

func (p *libraryQueue) Remove(ctx context.Context) error {
	return errors.Join(
		gone(p.log.DeleteQueue(ctx, p.queue()), weir.ErrUnknownQueue),
		gone(p.log.DeleteTopic(ctx, p.queue()), weir.ErrUnknownTopic),
		gone(p.log.DeleteTopic(ctx, p.queue()+deadLetters), weir.ErrUnknownTopic),
	)
}

// libraryStreams appends to a stream for each writer, and reads the streams by version.
type libraryStreams struct {
	*Library
	suffix   string // of the name
	category *weir.Category
	versions versions
	next     nextVersions
}

func (p *libraryStreams) name() string { return p.names + p.suffix }

func (p *libraryStreams) Traits() Traits {
	return Traits{Name: "library streams", Where: "category " + p.name(), Ordered: true, Versioned: true, Audited: true}
}

func (p *libraryStreams) Create(ctx context.Context) (err error) {
	p.category, err = p.log.EnsureCategory(ctx, weir.CategorySpec{Name: p.name(), Partitions: partitions})
	return err
}

func (p *libraryStreams) Write(ctx context.Context, writer int, events [][]byte) (Wrote, error) {
	stream := keyOf(writer)
	expected, err := p.versions.of(writer, func() (int64, error) {
		state, err := p.category.State(ctx, stream)
		return state.Version, err
	})
	if err != nil {
		return Wrote{}, Refused(err) // nothing was sent
	}
	all := make([]weir.NewStreamEvent, len(events))
	for i, e := range events {
		all[i] = weir.NewStreamEvent{ID: eventID(), Type: "load", Data: e}
	}
	appended, err := p.category.Append(ctx, stream, weir.ExpectedVersion(expected), all...)
	if err != nil {
		p.versions.forget(writer)
		return Wrote{}, sure(err)
	}
	p.versions.set(writer, appended.Version)
	return Wrote{Version: appended.First}, nil
}

// eventID is a random id of an event.
func eventID() string { return fmt.Sprintf("%016x%016x", chance.Uint64(), chance.Uint64()) }

func (p *libraryStreams) Read(ctx context.Context, to *Reader) error {
	return p.next.follow(ctx, func(next map[string]int64) error { return p.readFrom(ctx, next, to) })
}

// readFrom reads what streams have from the versions in next on, and moves these.
func (p *libraryStreams) readFrom(ctx context.Context, next map[string]int64, to *Reader) error {
	streams, err := p.category.List(ctx, "", "", 1000)
	if err != nil {
		return err
	}
	for _, s := range streams {
		for e, err := range p.category.Events(ctx, s.Stream, weir.StreamRange{From: next[s.Stream]}) {
			if err == nil {
				err = to.GotAt(e.Data, e.Version)
			}
			if err != nil {
				return err
			}
			next[s.Stream] = e.Version + 1
		}
	}
	return to.Flush()
}

func (p *libraryStreams) Audit(ctx context.Context, to *Reader) error {
	return p.anew(ctx, func(fresh *Library) error {
		category, err := fresh.log.Category(ctx, p.name())
		if err != nil {
			return err
		}
		return (&libraryStreams{Library: fresh, suffix: p.suffix, category: category}).readFrom(ctx, map[string]int64{}, to)
	})
}

func (p *libraryStreams) Remove(ctx context.Context) error {
	return gone(p.log.DeleteTopic(ctx, p.name()), weir.ErrUnknownTopic)
}
