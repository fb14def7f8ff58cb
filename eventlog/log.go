package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog/batch"
)

// Config sets a Log up. The zero value of every field means its default.
type Config struct {
	TailBytes       int64         // recent batches kept in memory for readers near the end; default 64 MiB
	Poll            time.Duration // how often the store is polled for other processes' writes; default 250 ms
	TotalPartitions int           // most partitions of all topics together: beyond it no topic is created and none grows; default 200,000
	DrainTimeout    time.Duration // how long Run goes on flushing after its context ended; default 5 s
	Logger          *slog.Logger  // default: slog.Default()
	Observer        Observer      // default: none
	Tracer          Tracer        // default: no spans

	limits limits
}

// limits are bounds that only tests change; 0: the default.
type limits struct {
	FlushBytes int   // most bytes of one flush; default 4 MiB, or what the store asks for
	QueueBytes int64 // most bytes waiting for a flush, after which callers wait; default 32 MiB, and at least two flushes
}

// Log is the event log that doors and uses call. All methods may be called concurrently. Nothing is
// appended, and nothing that other processes write is seen, unless Run is running.
type Log struct {
	store           Store
	cfg             Config
	tail            *tail
	appender        *appender
	prefetch        *prefetch
	outages         *outages
	catalog         atomic.Pointer[catalog]
	ids             producerIDs
	damage          reportedDamage
	health          atomic.Pointer[error] // the error of the last poll of the store; nil if the store answered it
	refusal         atomic.Pointer[error] // why the store takes no records; nil while it takes them
	mark            Mark                  // how far the follower has polled; only the follower uses it once Run runs
	changing        chan struct{}         // held by whoever changes a topic
	largeTime       time.Time             // up to when the large changes of topics have used their share of the time; guarded by changing
	catalogAt       Offset                // the end of partition 0 when the follower last read the catalog
	gate            gate                  // shut while the log enters another incarnation of the store
	rewindSuspected chan struct{}         // has a value when a rewind of the store is suspected
	readOnly        bool                  // the store is a Replica: nothing is written

	audit TopicAudit // nil: nobody is told who changes topics

	incarnation atomic.Pointer[incarnation]
	leftovers   atomic.Pointer[[]Partition] // not nil: empty partitions that no topic has, to be deleted together with those that leftPrefix lists
}

// Open reads the bounds of all partitions, the epochs of the store and the catalog of topics, with
// five store calls. If no epoch has begun in the current incarnation of the store, it begins one,
// with three calls more. If the store is a Replica, the log writes nothing: see ReadOnly.
func Open(ctx context.Context, store Store, cfg Config) (*Log, error) {
	flushBytes := cfg.flushBytes(store)
	cfg = cfg.withDefaults(flushBytes())
	outages := newOutages(cfg.Poll)
	cfg.Observer = outageObserver{cfg.Observer, outages}
	l := &Log{outages: outages, store: store, cfg: cfg, changing: make(chan struct{}, 1), rewindSuspected: make(chan struct{}, 1)}
	l.tail = newTail(cfg.TailBytes, l.topicOf)
	_, l.readOnly = behind(store)
	l.appender = newAppender(outageStore{store, outages}, l.tail, l.sealing, l.lingering, &l.gate, l.suspectRewind, l.epochVersion, flushBytes, cfg)
	l.appender.readOnly = l.readOnly
	l.prefetch = newPrefetch(l.read, l.tail.known, l.tail.incarnationNumber)
	if err := l.enter(ctx); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return l, nil
}

// flushBytes returns a function that says how many bytes a flush may have. What it says may change:
// a store made of shards may say less once a shard answers that was lost when the store was opened.
func (c Config) flushBytes(store Store) func() int {
	const usual = 4 << 20
	costly, is := As[Costly](store)
	return func() int {
		most := c.limits.FlushBytes
		if is && most == 0 {
			most = costly.FlushBytes()
		}
		return cmp.Or(most, usual)
	}
}

func (c Config) withDefaults(flushBytes int) Config {
	c.limits.QueueBytes = cmp.Or(c.limits.QueueBytes, max(32<<20, 2*int64(flushBytes)))
	c.TailBytes = cmp.Or(c.TailBytes, 64<<20)
	c.TotalPartitions = cmp.Or(c.TotalPartitions, totalPartitions)
	c.Poll = cmp.Or(c.Poll, 250*time.Millisecond)
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

// Run appends, follows other processes, enforces retention and compacts until ctx ends; if the log
// is ReadOnly it only follows. Then it flushes what was submitted, for at most Config.DrainTimeout,
// and returns. Later submits get ErrClosed.
func (l *Log) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return l.appender.run(ctx) })
	g.Go(func() error { return l.follow(ctx) })
	g.Go(func() error { return l.retain(ctx) })
	if !l.readOnly {
		g.Go(func() error { return l.compactAll(ctx) })
	}
	defer l.prefetch.calls.Wait()
	return g.Wait()
}

// FlushNow makes the log write the records that wait because of weir.linger.ms. It does not wait
// until they are written.
func (l *Log) FlushNow() { l.appender.flushNow() }

// EndLinger is FlushNow, and lets no records wait because of weir.linger.ms from now on. A program
// calls it when its doors drain, so that they can answer their clients before they close the
// connections.
func (l *Log) EndLinger() { l.appender.endLinger() }

// Healthy returns nil while the store answers and accepts records; otherwise the last poll's error,
// or why records are refused. A log that is ReadOnly need not accept records.
func (l *Log) Healthy() error {
	if err := l.reachable(); err != nil || l.readOnly {
		return err
	}
	return l.Refusing()
}

// Submit queues an entry for the next flush. Entries that one goroutine submits one after the other
// enter the log in that order. Submit waits while the queue is full, until ctx ends; after it
// returned only the ctx of Ticket.Wait matters. The batches' bytes belong to the log from here on.
//
// A batch of an idempotent producer (Batch.Producer) is an entry by itself. Such batches are in
// order among those of their producer, and not with other entries: one may join an earlier batch of
// its producer that still waits.
func (l *Log) Submit(ctx context.Context, e Entry) *Ticket {
	t := &Ticket{entry: e}
	if len(e.Batches) == 1 && e.Batches[0].Producer != nil {
		t.shared = (*producedBatch)(&t.entry.Batches[0])
	}
	return l.appender.submit(ctx, t)
}

// SubmitLate is Submit for an entry that is built when a flush takes it, so that many callers who
// change one key can share one entry. build runs once, in the appender, where all writers wait for
// it: it must not block, and its work must have a bound. false means that there is nothing to
// commit, and the ticket is done. A panic of build is the ticket's error. size estimates the entry
// in bytes.
func (l *Log) SubmitLate(ctx context.Context, size int64, build func() (Entry, bool)) *Ticket {
	return l.appender.submit(ctx, &Ticket{build: build, built: make(chan struct{}), size: size})
}

// SubmitUpkeep is Submit for an entry by which this process keeps what others take over otherwise:
// a lease, a heartbeat. It goes before entries that were submitted with Submit, and does not wait
// while their queue is full, so clients cannot keep it out. It must be small, and not be sent for
// each request of a client.
func (l *Log) SubmitUpkeep(ctx context.Context, e Entry) *Ticket {
	return l.appender.submit(ctx, &Ticket{entry: e, upkeep: true})
}

// Append submits an entry and waits until it is durable.
func (l *Log) Append(ctx context.Context, e Entry) (Outcome, error) {
	return l.Submit(ctx, e).Wait(ctx)
}

// Publish appends records without a batch to a partition, and returns the first one's offset once
// they are durable. Records that many callers publish concurrently become one batch, encoded as the
// topic's settings say. The records of one call are contiguous and keep their timestamps; 0 means
// now.
func (l *Log) Publish(ctx context.Context, p Partition, records ...batch.Record) (Offset, error) {
	if err := checkLoose(records); err != nil {
		return 0, fmt.Errorf("publish %d records to partition %d: %w", len(records), p, err)
	}
	t := l.appender.submit(ctx, &Ticket{shared: looseRecords{p, records}, size: looseSize(records)})
	out, err := t.Wait(ctx)
	if err != nil {
		return 0, fmt.Errorf("publish %d records to partition %d: %w", len(records), p, err)
	}
	return out.Base[0], nil
}

// publishMax is the most bytes that one call may publish: the records become one batch, which
// readers hold in memory as a whole.
const publishMax = 16 << 20

// checkLoose reports why records cannot be sealed.
func checkLoose(records []batch.Record) error {
	if len(records) == 0 {
		return errors.New("at least 1 record is needed")
	}
	if size := looseSize(records); size > publishMax {
		return fmt.Errorf("%w: they have about %d bytes, the limit is %d", ErrTooLarge, size, publishMax)
	}
	for i, r := range records {
		if r.Timestamp < batch.NoTimestamp || r.Timestamp > batch.MaxTimestamp {
			return &InvalidError{What: "timestamp", Value: strconv.FormatInt(r.Timestamp, 10),
				Why: fmt.Sprintf("%d (unknown) to %d (the end of the year 9999) are allowed; this is the timestamp of record %d", batch.NoTimestamp, batch.MaxTimestamp, i)}
		}
	}
	return nil
}

// CheckDecoded refuses a record that no reader would decode, because it has too many headers.
func CheckDecoded(r *batch.Record) error {
	if n := r.DecodedSize(); n > batch.DecodedMax {
		return fmt.Errorf("%w: a record with %d headers takes %d bytes of memory besides its data, the limit is %d: send fewer headers", ErrTooLarge, len(r.Headers), n, batch.DecodedMax)
	}
	return nil
}

// looseSize estimates the bytes of records, in memory and sealed.
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

// seekPage is how many goals one store call has at most.
const seekPage = 1000

// Seek finds, for each goal, the base offset of the batch that the goal describes. Store.Seek says
// what it finds if there is none. It makes one store call for each thousand goals.
func (l *Log) Seek(ctx context.Context, goals []Goal) ([]Found, error) {
	found := make([]Found, 0, len(goals))
	for page := range slices.Chunk(goals, seekPage) {
		var some []Found
		err := l.ofNow(ctx, "seek", func() (err error) {
			some, err = l.store.Seek(ctx, page)
			return err
		})
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

// seekOne is Seek in one partition.
func (l *Log) seekOne(ctx context.Context, goal Goal) (Offset, error) {
	found, err := l.Seek(ctx, []Goal{goal})
	if err != nil {
		return 0, err
	}
	if err := found[0].Err; err != nil {
		return 0, fmt.Errorf("seek in partition %d: %w", goal.Partition, err)
	}
	return found[0].At, nil
}

// ofNow makes a call of the store (called), and returns its error, or ErrRewound if the store
// answered from an incarnation that the log has not entered yet.
func (l *Log) ofNow(ctx context.Context, op string, call func() error) error {
	err := l.called(ctx, op, call)
	if err == nil {
		return l.gate.readable(ctx)
	}
	if errors.Is(err, ErrRewound) {
		l.suspectRewind()
	}
	return err
}

// called makes a call of the store for a caller whose time may be over before the call or during
// it. If it is over before, the call is not made. In both cases the error is ErrOverloaded if a
// deadline ended the caller's time and the store answers others: then the store is not to blame.
func (l *Log) called(ctx context.Context, op string, call func() error) error {
	if ctx.Err() != nil {
		return l.late(ctx, time.Time{}, nil)
	}
	began := time.Now()
	err := call()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && !errors.Is(err, ErrUnsure) {
		if late := l.late(ctx, began, err); errors.Is(late, ErrOverloaded) {
			return late
		}
	}
	return l.failed(op, err)
}

// late returns the error of a call whose caller's time is over. began is when the call began, or
// zero if it was not made.
func (l *Log) late(ctx context.Context, began time.Time, err error) error {
	cause := context.Cause(ctx)
	if err == nil {
		err = cause
	}
	if !errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err) // no deadline passed: the caller went away, and waits for no answer
	}
	return fmt.Errorf("%w (%w)", l.Late(began), err)
}

// Late returns the error for a caller whose time ended while it waited for its turn, from began on:
// ErrOverloaded if the store answered somebody meanwhile, otherwise ErrUnavailable. If began is
// zero, it is ErrOverloaded if the store answers now.
func (l *Log) Late(began time.Time) error {
	if l.reachable() == nil && (began.IsZero() || l.outages.answeredAfter(began)) {
		return ErrOverloaded
	}
	return ErrUnavailable
}

// trimPage is how many partitions one store call trims at most: a commit to one of them may wait
// until all are trimmed.
const trimPage = 256

// Trim moves the partition's First up to before, but not past its Next.
func (l *Log) Trim(ctx context.Context, p Partition, before Offset) error {
	return l.TrimFound(ctx, nil, Trim{p, before})[0]
}

// HeartbeatEvery returns how often a process puts a key on this store only to say that it lives: as
// often as the caller usually does (usual), or less often if commits cost money.
func (l *Log) HeartbeatEvery(usual time.Duration) time.Duration {
	if store, is := As[Costly](l.store); is {
		return max(usual, store.HeartbeatEvery())
	}
	return usual
}

// CommitEvery returns the least time from one commit to the next on this store; 0: there is none.
// What must be written within a time, such as a heartbeat within a session, may wait so long first.
func (l *Log) CommitEvery() time.Duration {
	if store, is := As[Costly](l.store); is {
		return store.CommitEvery()
	}
	return 0
}

// TrimFound is Trim of any number of partitions, below offsets that the caller found by reading. It
// returns the error of each trim, and makes one store call for hundreds of them. changed is what
// IncarnationChanged returned before that read: if the log has entered another incarnation since,
// TrimFound does nothing and answers ErrRewound, because other records may have the offsets now.
func (l *Log) TrimFound(ctx context.Context, changed <-chan struct{}, trims ...Trim) []error {
	errs := make([]error, 0, len(trims))
	var rest error // why the trims that are left are not tried; nil: they are
	for some := range slices.Chunk(trims, trimPage) {
		each, err := []error(nil), rest
		if rest == nil {
			each, err = l.trimFound(ctx, changed, some)
		}
		if rest = err; errors.Is(err, ErrUnsure) {
			rest = fmt.Errorf("%w: not tried, because of another trim: %v", ErrUnavailable, err)
		}
		for i, t := range some {
			failed := err
			if err == nil {
				failed = each[i]
			}
			if failed != nil {
				failed = fmt.Errorf("trim partition %d below %d: %w", t.Partition, t.Before, failed)
			}
			errs = append(errs, failed)
		}
	}
	return errs
}

// trimFound is TrimFound of so many partitions that one store call can trim them.
func (l *Log) trimFound(ctx context.Context, changed <-chan struct{}, trims []Trim) (errs []error, err error) {
	if l.readOnly {
		return nil, ErrReadOnly // not an error of the store
	}
	l.gate.RLock() // the log enters no other incarnation meanwhile, and the store trims only in the incarnation that the log is in
	defer l.gate.RUnlock()
	select {
	case <-changed:
		return nil, ErrRewound
	default:
	}
	err = l.called(ctx, "trim", func() (err error) {
		errs, err = l.store.Trim(ctx, trims)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, t := range trims {
		if errs[i] == nil {
			l.tail.trim(t.Partition, t.Before)
		}
	}
	return errs, nil
}

// Committed adds to the tail the batches that this process committed without Submit, as the mover
// of the SQL door does: readers at the end see them immediately. in is the incarnation in which
// they were committed. If the log is in another, or about to enter another, Committed does nothing,
// and readers get the batches from the store. The batches' bytes belong to the log from here on.
func (l *Log) Committed(in Incarnation, placed []Placed) {
	if !l.gate.TryRLock() {
		return
	}
	defer l.gate.RUnlock()
	if !l.gate.shut && l.incarnation.Load().Incarnation == in {
		l.tail.append(placed)
	}
}

// In reports whether the log is in this incarnation of its store and may write there: it is not
// about to enter another, and the store is not closed. What commits without Submit asks first.
func (l *Log) In(in Incarnation) bool {
	if !l.gate.TryRLock() {
		return false
	}
	defer l.gate.RUnlock()
	return !l.gate.shut && l.incarnation.Load().Incarnation == in
}

// Known returns the bounds of a partition as this process knows them, without a store call; false
// if it knows none. All that was appended through this log is in them; what other processes did may
// be missing.
func (l *Log) Known(p Partition) (Bounds, bool) { return l.tail.known(p) }

// Bounds reads from the store, in one call, what the partitions hold now. Slice.Err is
// ErrNoPartition for a partition that does not exist. It fails if the shard of one of them does not
// answer.
func (l *Log) Bounds(ctx context.Context, ps ...Partition) ([]Slice, error) {
	slices, err := l.EachBounds(ctx, ps...)
	for _, s := range slices {
		if s.Err != nil && !errors.Is(s.Err, ErrNoPartition) {
			return nil, fmt.Errorf("read %d partitions: %w", len(ps), s.Err)
		}
	}
	return slices, err
}

// EachBounds is Bounds, but if a partition's shard does not answer, only its Slice.Err says so.
func (l *Log) EachBounds(ctx context.Context, ps ...Partition) ([]Slice, error) {
	spans := make([]Span, len(ps))
	for i, p := range ps {
		spans[i].Partition = p
	}
	return l.read(ctx, spans, 0)
}

// List returns, in byte order, at most limit keys that begin with prefix and are greater than
// after. While the log enters another incarnation of the store, List waits, at most entryPatience:
// an incarnation begins with each restart of a server, and with the first process on a store.
func (l *Log) List(ctx context.Context, prefix, after string, limit int) ([]KeyValue, error) {
	var kvs []KeyValue
	err := l.onceEntered(ctx, func() (err error) {
		kvs, err = l.listNow(ctx, prefix, after, limit)
		return err
	})
	return kvs, err
}

// onceEntered repeats a read of keys while the log enters another incarnation of the store, at most
// for entryPatience.
func (l *Log) onceEntered(ctx context.Context, read func() error) error {
	until := time.Now().Add(entryPatience)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		changed := l.IncarnationChanged()
		err := read()
		if !errors.Is(err, ErrRewound) || time.Now().After(until) {
			return err
		}
		timer := time.NewTimer(pause) // if the log finds that nothing changed, changed stays open
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return err
		}
	}
}

// entryPatience is how long List and Get wait for the log to enter the store's incarnation.
const entryPatience = 5 * time.Second

// listNow is List that does not wait.
func (l *Log) listNow(ctx context.Context, prefix, after string, limit int) (kvs []KeyValue, err error) {
	err = l.ofNow(ctx, "list", func() (err error) {
		kvs, err = l.store.List(ctx, prefix, after, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	l.outages.answered()
	return kvs, nil
}

// lister is the type of Store.List.
type lister func(ctx context.Context, prefix, after string, limit int) ([]KeyValue, error)

// Get returns one key's value; its Version is 0 when there is no such key. It waits as List does.
func (l *Log) Get(ctx context.Context, key string) (KeyValue, error) {
	found := KeyValue{Key: key}
	err := l.onceEntered(ctx, func() error {
		var kv KeyValue
		err := l.ofNow(ctx, "list", func() (err error) {
			kv, err = Get(ctx, l.store, key)
			return err
		})
		if err == nil {
			found = kv
			l.outages.answered()
		}
		return err
	})
	return found, err
}

const (
	getPage  = 1000    // how many keys GetAll reads with a store call
	getBytes = 4 << 20 // about how many bytes of values it reads with a store call
)

// GetAll calls visit for each of the keys, in their order, with a store call for each thousand keys
// or 4 MiB of values. The Version of a key that does not exist is 0. It waits as List does. An
// error of visit ends it.
func (l *Log) GetAll(ctx context.Context, keys []string, visit func(KeyValue) error) error {
	return l.GetPages(ctx, keys, getBytes, nil, visit)
}

// GetPages is GetAll that reads about maxBytes of values with each store call. Before each store
// call it calls before, if that is not nil; an error of before ends it.
func (l *Log) GetPages(ctx context.Context, keys []string, maxBytes int, before func() error, visit func(KeyValue) error) error {
	for len(keys) > 0 {
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		var kvs []KeyValue
		page := keys[:min(len(keys), getPage)]
		err := l.onceEntered(ctx, func() (err error) {
			kvs, err = l.getNow(ctx, page, maxBytes)
			return err
		})
		if err != nil {
			return err
		}
		for _, kv := range kvs {
			if err := visit(kv); err != nil {
				return err
			}
		}
		keys = keys[len(kvs):]
	}
	return nil
}

// getNow is a store call of GetAll that does not wait.
func (l *Log) getNow(ctx context.Context, keys []string, maxBytes int) (kvs []KeyValue, err error) {
	err = l.ofNow(ctx, "get", func() (err error) {
		kvs, err = l.store.Get(ctx, keys, maxBytes)
		return err
	})
	if err != nil {
		return nil, err
	}
	l.outages.answered()
	return kvs, nil
}

// Get reads one key of a store, in one call; the Version is 0 if there is no such key. It calls
// Store.List. If the store is made of shards it calls Store.Get instead: List might have to ask all
// shards there, because any of them may have keys that begin with this one.
func Get(ctx context.Context, store Store, key string) (KeyValue, error) {
	if _, is := As[Sharded](store); !is {
		return lister(store.List).get(ctx, key)
	}
	kvs, err := store.Get(ctx, []string{key}, 0)
	if err != nil {
		return KeyValue{Key: key}, err
	}
	return kvs[0], nil
}

func (list lister) get(ctx context.Context, key string) (KeyValue, error) {
	kvs, err := list(ctx, key, "", 1)
	if err != nil || len(kvs) == 0 || kvs[0].Key != key {
		return KeyValue{Key: key}, err
	}
	return kvs[0], nil
}

// listPage is how many keys ListAll reads with a store call.
const listPage = 1000

// ListAll calls visit for every key under prefix, with a store call for each thousand keys.
func (l *Log) ListAll(ctx context.Context, prefix string, visit func(KeyValue) error) error {
	return lister(l.List).pages(ctx, prefix, listPage, nil, visit)
}

// ListPages is ListAll that reads page keys with each store call. Before each store call it calls
// before, if that is not nil; an error of before ends the listing.
func (l *Log) ListPages(ctx context.Context, prefix string, page int, before func() error, visit func(KeyValue) error) error {
	return lister(l.List).pages(ctx, prefix, page, before, visit)
}

// ListEach is ListPages of several prefixes, all of which begin with under and none of which begins
// with another. A key that is one of the prefixes itself may be visited or not. One store call
// brings the keys of several prefixes if they follow each other in the store. So ListEach never
// makes more calls than there are prefixes and pages of their keys together, nor more than there
// are pages of all keys that begin with under.
func (l *Log) ListEach(ctx context.Context, under string, prefixes []string, page int, before func() error, visit func(KeyValue) error) error {
	if len(prefixes) == 1 {
		return l.ListPages(ctx, prefixes[0], page, before, visit)
	}
	rest := slices.Compact(slices.Sorted(slices.Values(prefixes)))
	for after := ""; len(rest) > 0; {
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		after = max(after, rest[0])
		kvs, err := l.List(ctx, under, after, page)
		if err != nil {
			return fmt.Errorf("list %q after %q: %w", under, after, err)
		}
		for _, kv := range kvs {
			after = kv.Key
			for len(rest) > 0 && kv.Key > rest[0] && !strings.HasPrefix(kv.Key, rest[0]) {
				rest = rest[1:]
			}
			if len(rest) == 0 {
				return nil
			}
			if strings.HasPrefix(kv.Key, rest[0]) {
				if err := visit(kv); err != nil {
					return err
				}
			}
		}
		if len(kvs) < page {
			return nil
		}
	}
	return nil
}

// AllUnder returns every key under prefix from list, which is a store's List, with a store call for
// each page of keys. It has no limit for the number of keys. A use that counts its keys before it
// adds one may still have more than its limit, because several processes can add one at the same
// time; the use needs all of them.
func AllUnder(ctx context.Context, list func(ctx context.Context, prefix, after string, limit int) ([]KeyValue, error),
	prefix string, page int) (all []KeyValue, err error) {
	err = lister(list).pages(ctx, prefix, page, nil, func(kv KeyValue) error {
		all = append(all, kv)
		return nil
	})
	return all, err
}

func (list lister) pages(ctx context.Context, prefix string, page int, before func() error, visit func(KeyValue) error) error {
	for after := ""; ; {
		if before != nil {
			if err := before(); err != nil {
				return err
			}
		}
		kvs, err := list(ctx, prefix, after, page)
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

// failed reports an error of the store to the observer, and returns it.
func (l *Log) failed(op string, err error) error {
	if err != nil && !errors.Is(err, context.Canceled) {
		l.cfg.Observer.StoreFailed(op, err)
	}
	return err
}
