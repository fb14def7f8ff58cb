package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog/batch"
)

// Config sets a Log up. The zero value of every field means its default.
type Config struct {
	FlushBytes     int           // most bytes gathered in one flush; default 4 MiB
	QueueBytes     int64         // most bytes waiting for a flush, after which callers wait; default 32 MiB
	TailBytes      int64         // recent batches kept in memory for readers near the end; default 64 MiB
	Poll           time.Duration // how often other processes' writes are looked for; default 250 ms
	RetentionEvery time.Duration // between two retention checks of a partition; default 5 min, as Kafka's log.retention.check.interval.ms
	ProducerExpiry time.Duration // an idempotent producer silent for so long is forgotten; default 24 h, as in Kafka
	DrainTimeout   time.Duration // how long Run goes on flushing after its context ended; default 5 s
	Logger         *slog.Logger  // default: slog.Default()
	Observer       Observer      // default: nobody looks
	Tracer         Tracer        // default: no spans
}

// Log is what doors and ways of use hold. All methods may be called at once. Nothing is appended,
// and nothing of other processes is seen, unless Run is running.
type Log struct {
	store     Store
	cfg       Config
	tail      *tail
	appender  *appender
	prefetch  *prefetch
	contact   *contact
	catalog   atomic.Pointer[catalog]
	ids       producerIDs
	damage    told
	health    atomic.Pointer[error] // of the last look at the store; nil while it answers
	refusal   atomic.Pointer[error] // why the store takes no records; nil while it takes them
	mark      Mark                  // how far the follower has looked; its own once Run runs
	catalogAt Offset                // the end of partition 0 when the follower last read the catalog
	gate      gate                  // shut while the log enters another incarnation of the store
	doubts    chan struct{}         // holds one value when the store showed less than before

	incarnation atomic.Pointer[incarnation]
}

// Open reads the bounds of all partitions, the store's epochs and the catalog of topics: four trips. It begins an epoch, with three trips more,
// when nobody has opened the store in its present incarnation yet.
func Open(ctx context.Context, store Store, cfg Config) (*Log, error) {
	cfg = cfg.withDefaults()
	contact := newContact(cfg.Poll)
	cfg.Observer = watching{cfg.Observer, contact}
	l := &Log{contact: contact, store: store, cfg: cfg, tail: newTail(cfg.TailBytes), doubts: make(chan struct{}, 1)}
	l.appender = newAppender(store, l.tail, l.sealing, &l.gate, l.poke, cfg)
	l.prefetch = newPrefetch(l.read, l.tail.known, l.tail.age)
	if err := l.enter(ctx); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return l, nil
}

func (c Config) withDefaults() Config {
	c.FlushBytes = cmp.Or(c.FlushBytes, 4<<20)
	c.QueueBytes = cmp.Or(c.QueueBytes, 32<<20)
	c.TailBytes = cmp.Or(c.TailBytes, 64<<20)
	c.Poll = cmp.Or(c.Poll, 250*time.Millisecond)
	c.RetentionEvery = cmp.Or(c.RetentionEvery, 5*time.Minute)
	c.ProducerExpiry = cmp.Or(c.ProducerExpiry, 24*time.Hour)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 5*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	c.Tracer = Traced(c.Tracer)
	return c
}

// Run appends, follows other processes and keeps retention until ctx ends. Then it flushes what was submitted,
// for at most Config.DrainTimeout, and returns. Later submits get ErrClosed.
func (l *Log) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return l.appender.run(ctx) })
	g.Go(func() error { return l.follow(ctx) })
	g.Go(func() error { return l.retain(ctx) })
	defer l.prefetch.trips.Wait()
	return g.Wait()
}

// Healthy is nil while the store answers and takes records. Else it is the last look's error, or why records are refused.
func (l *Log) Healthy() error {
	if err := l.reachable(); err != nil {
		return err
	}
	return l.Refusing()
}

// Submit queues an entry for the next flush. Entries submitted one after the other by one goroutine enter the log in that
// order. Submit waits while the queue is full, until ctx ends; after that only Ticket.Wait matters.
// The batches' bytes belong to the log from here on.
//
// A batch that carries a producer id, alone in an entry without checks and puts, is held to its sequence numbers:
// it is appended once, however often it is submitted.
func (l *Log) Submit(ctx context.Context, e Entry) *Ticket {
	return l.appender.submit(ctx, &Ticket{entry: e})
}

// SubmitLate is Submit for an entry that is made when a flush takes it, from all that was asked for until then: so that many
// callers who change one key need one entry and not one each. build runs once, in the appender, and must not wait for
// anything; false means that there is nothing to commit, and the ticket is done. size is about what the entry will take, in bytes.
func (l *Log) SubmitLate(ctx context.Context, size int64, build func() (Entry, bool)) *Ticket {
	return l.appender.submit(ctx, &Ticket{build: build, size: size})
}

// Append submits an entry and waits until it is durable.
func (l *Log) Append(ctx context.Context, e Entry) (Outcome, error) {
	return l.Submit(ctx, e).Wait(ctx)
}

// Publish appends loose records to a partition and returns the first one's offset once they are durable. Records that
// many callers publish at once are sealed into one batch, as the topic's settings ask. Those of one call stay neighbours, and keep
// their timestamps; 0 stands for the present time.
func (l *Log) Publish(ctx context.Context, p Partition, records ...batch.Record) (Offset, error) {
	if err := checkLoose(records); err != nil {
		return 0, fmt.Errorf("publish %d records to partition %d: %w", len(records), p, err)
	}
	t := l.appender.submit(ctx, &Ticket{loose: records, partition: p})
	out, err := t.Wait(ctx)
	if err != nil {
		return 0, fmt.Errorf("publish %d records to partition %d: %w", len(records), p, err)
	}
	return out.Base[0], nil
}

// publishMax is the most that one call may publish, in bytes: the records become one batch, which readers hold as a whole.
const publishMax = 16 << 20

// checkLoose sees that the records can be sealed.
func checkLoose(records []batch.Record) error {
	if len(records) == 0 {
		return errors.New("there are none")
	}
	if size := looseSize(records); size > publishMax {
		return fmt.Errorf("%w: they have about %d bytes, and the limit is %d", ErrTooLarge, size, publishMax)
	}
	for i, r := range records {
		if r.Timestamp < batch.NoTimestamp || r.Timestamp > batch.MaxTimestamp {
			return &InvalidError{What: "timestamp", Value: strconv.FormatInt(r.Timestamp, 10),
				Why: fmt.Sprintf("the lowest is %d, for unknown, and the highest %d, the end of the year 9999; it is that of record %d", batch.NoTimestamp, batch.MaxTimestamp, i)}
		}
	}
	return nil
}

// looseSize is about how many bytes records take, in memory and sealed.
func looseSize(records []batch.Record) (n int64) {
	const each, eachHeader = 64, 16
	for _, r := range records {
		n += int64(each + len(r.Key) + len(r.Value))
		for _, h := range r.Headers {
			n += int64(eachHeader + len(h.Key) + len(h.Value))
		}
	}
	return n
}

// Seek finds the base offset of the batch that the goal describes; the partition's Next when there is none.
func (l *Log) Seek(ctx context.Context, p Partition, goal Goal) (Offset, error) {
	o, err := l.store.Seek(ctx, p, goal)
	return o, l.failed("seek", err)
}

// Trim moves the partition's First up to before, but not past its Next.
func (l *Log) Trim(ctx context.Context, p Partition, before Offset) error {
	if err := l.failed("trim", l.store.Trim(ctx, p, before)); err != nil {
		return fmt.Errorf("trim partition %d below %d: %w", p, before, err)
	}
	if before == Forget {
		l.tail.forget(func(other Partition) bool { return other == p })
	} else {
		l.tail.trim(p, before)
	}
	return nil
}

// Committed adds batches to the tail that this process committed by other ways than Submit, as the mover of the SQL door does, in the
// incarnation of the store that is given: readers at the end see them at once. If the log is in another incarnation, or about to enter
// one, it does nothing, and readers get the batches from the store. The batches' bytes belong to the log from here on.
func (l *Log) Committed(in Incarnation, placed []Placed) {
	if !l.gate.TryRLock() {
		return
	}
	defer l.gate.RUnlock()
	if !l.gate.shut && l.incarnation.Load().Incarnation == in {
		l.tail.append(placed)
	}
}

// Known returns the bounds of a partition as far as this process has seen them, without a trip to the store; false
// if it has seen nothing of it. All that was appended here is in them; what other processes did may be missing.
func (l *Log) Known(p Partition) (Bounds, bool) { return l.tail.known(p) }

// Bounds asks the store, in one trip, what the partitions hold now. Slice.Err is ErrNoPartition for one that is not there.
func (l *Log) Bounds(ctx context.Context, ps ...Partition) ([]Slice, error) {
	spans := make([]Span, len(ps))
	for i, p := range ps {
		spans[i].Partition = p
	}
	return l.read(ctx, spans, 0)
}

// List returns keyed state under prefix, in byte order, after a key.
func (l *Log) List(ctx context.Context, prefix, after string, limit int) ([]KeyValue, error) {
	kvs, err := l.store.List(ctx, prefix, after, limit)
	if err == nil {
		l.contact.heard()
	}
	return kvs, l.failed("list", err)
}

// Get returns one key's value; its Version is 0 when there is no such key.
func (l *Log) Get(ctx context.Context, key string) (KeyValue, error) {
	kvs, err := l.List(ctx, key, "", 1)
	if err != nil || len(kvs) == 0 || kvs[0].Key != key {
		return KeyValue{Key: key}, err
	}
	return kvs[0], nil
}

// ListAll calls visit for every key under prefix, a page of keys a trip.
func (l *Log) ListAll(ctx context.Context, prefix string, visit func(KeyValue) error) error {
	return l.ListPages(ctx, prefix, 1000, nil, visit)
}

// ListPages is ListAll with so many keys a trip. Before each trip it calls before, whose error ends it; nil: nothing.
func (l *Log) ListPages(ctx context.Context, prefix string, page int, before func() error, visit func(KeyValue) error) error {
	for after := ""; ; {
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		kvs, err := l.List(ctx, prefix, after, page)
		if err != nil {
			return fmt.Errorf("list %q after %q: %w", prefix, after, err)
		}
		for _, kv := range kvs {
			if err := visit(kv); err != nil {
				return err
			}
			after = kv.Key
		}
		if len(kvs) < page {
			return nil
		}
	}
}

// failed tells the observer of a store's error and passes it on.
func (l *Log) failed(op string, err error) error {
	if err != nil && !errors.Is(err, context.Canceled) {
		l.cfg.Observer.StoreFailed(op, err)
	}
	return err
}
