package weir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/door/inbox"
	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/closing"
	"github.com/weir-log/weir/internal/node"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/cache"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/use/deliver"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/keys"
	"github.com/weir-log/weir/use/projection"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/stream"
)

// Options tune a Log. The zero value is right for nearly everybody.
type Options struct {
	// Partitioner chooses the partitions of events that are published. The default is that of
	// Kafka's clients, so that all doors agree: the murmur2 hash of the key. Events without a key
	// go to one partition for a while, then to another. Queues always have the default.
	Partitioner Partitioner
	// IdempotencyAge is how long PublishOnce remembers a key. Default 24 h.
	IdempotencyAge time.Duration
	// TailBytes bounds the memory for recent events, from which consumers near the end are served.
	// Default 64 MiB.
	TailBytes int64
	// PartitionsMax is how many partitions all topics may have together: beyond that, no topic is
	// created and no topic gets more partitions. Default 200,000.
	PartitionsMax int
	// CacheDir is a directory for files with batches that were read from the store, from which
	// consumers of older events are served. No other process may use it. Default: no cache.
	// docs/cache.md says when it helps.
	CacheDir string
	// CacheBytes bounds the space of these files. Default 1 GiB.
	CacheBytes int64
	// NoUpgrade: Open fails with ErrUpgradeDue for a store that an older weir made, and does not
	// upgrade it. There is no way back after an upgrade (docs/operations.md).
	NoUpgrade bool
	// Poll is how often the store is polled for events of other processes. A notification from the
	// store starts a poll immediately. Default 250 ms.
	Poll time.Duration
	// Tracer gets spans of publications, flushes, deliveries and handlers. Default: none. weirotel
	// has one for OpenTelemetry.
	Tracer Tracer
	// Logger gets the errors that are returned to no caller. Default slog.Default().
	Logger *slog.Logger
}

// Tracer starts spans, and makes the headers of events that carry their context. The names of the
// spans are publish, flush, mover, deliver, handle and work. Calls may come from many goroutines.
type Tracer interface {
	// Start begins a span, a child of the one in ctx, and returns a context that carries it. The
	// caller calls the returned function once, with the error that the work ended with.
	Start(ctx context.Context, name string, s eventlog.SpanInfo) (context.Context, func(error))
	// Inject returns the headers (traceparent, tracestate) that carry the span in ctx; none when
	// there is no span.
	Inject(ctx context.Context) []batch.RecordHeader
}

// Log is an open event log. All methods may be called concurrently.
type Log struct {
	store       eventlog.Store
	parts       *node.Node  // the fields from sql to projections are its parts
	sql         *sqlfn.Door // nil if the store is not PostgreSQL
	inbox       *inbox.Door // nil if the store is neither MariaDB, MySQL nor SQLite
	log         *eventlog.Log
	publisher   *publish.Publisher
	groups      *group.Coordinator
	queues      *queue.Queues
	streams     *stream.Streams
	projections *projection.Projections
	delivery    *deliver.Delivery
	opts        Options
	logger      *slog.Logger

	stopUses context.CancelFunc // ends the background work on the log
	stopLog  context.CancelFunc
	uses     sync.WaitGroup
	flushed  chan struct{} // closed when the log has ended
	ended    chan struct{} // closed when the store is closed, too, and the field closing is set
	closing  error

	mu     sync.Mutex // guards work and closed
	work   map[closer]struct{}
	closed bool        // no new consumer, worker or projector is accepted
	over   atomic.Bool // Close has closed all consumers, workers and projectors, or has stopped waiting for them: methods now return ErrClosed
}

// Open opens the log in the store that a URL names: postgres://USER:PASSWORD@HOST:PORT/DATABASE,
// mysql://USER:PASSWORD@HOST:PORT/DATABASE (MySQL or MariaDB), sqlite:PATH, s3://BUCKET/PREFIX or
// memory:, or several stores as shard:URL,URL (docs/shards.md). It creates missing tables, and
// needs a few store calls. Call Close when you are done. ctx bounds only the opening.
func Open(ctx context.Context, address string, opts Options) (*Log, error) {
	opened, err := store.OpenWith(ctx, address, store.Options{Logger: opts.logger(), Rules: keys.Rules(), NoUpgrade: opts.NoUpgrade})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", store.Redact(address), err)
	}
	cached, err := opts.cache(opened, address)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", store.Redact(address), err), opened.Close())
	}
	l, err := open(ctx, cached, opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", store.Redact(address), err), cached.Close())
	}
	return l, nil
}

// cache puts a cache in front of a store if there is a directory for it. address is the store's
// URL.
func (o Options) cache(opened eventlog.Store, address string) (eventlog.Store, error) {
	if o.CacheDir == "" {
		return opened, nil
	}
	return store.Cached(opened, address, cache.Options{Dir: o.CacheDir, Bytes: o.CacheBytes, Logger: o.logger()})
}

// OpenPool is Open for the PostgreSQL database of a pool. The Log connects as the pool does, with
// its TLS and BeforeConnect (such as one that fetches a password), but has its own connections: it
// takes none from the pool, opens up to nine on the server, and the pool may be closed first. A
// pool that is configured for a transaction pooler (QueryExecModeExec or
// QueryExecModeSimpleProtocol) has the effect of weir_pooled=true in a URL.
func OpenPool(ctx context.Context, pool *pgxpool.Pool, opts Options) (*Log, error) {
	opened, err := postgres.OpenPool(ctx, pool, postgres.Options{Logger: opts.logger(), NoUpgrade: opts.NoUpgrade})
	if err != nil {
		return nil, fmt.Errorf("open the database of a pool: %w", err)
	}
	at := pool.Config().ConnConfig
	address := url.URL{Scheme: "postgres", Host: net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port))), Path: "/" + at.Database}
	cached, err := opts.cache(opened, address.String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the database of a pool: %w", err), opened.Close())
	}
	l, err := open(ctx, cached, opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the database of a pool: %w", err), cached.Close())
	}
	return l, nil
}

func (o Options) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.Default()
	}
	return o.Logger
}

// open is Open for a store that is already open. From here on the store belongs to the Log.
func open(ctx context.Context, store eventlog.Store, opts Options) (*Log, error) {
	logger := opts.logger()
	parts, err := node.Open(ctx, store, node.Config{
		TailBytes: opts.TailBytes, TotalPartitions: opts.PartitionsMax, Poll: opts.Poll, Logger: logger, Tracer: opts.Tracer,
		Partitioner: opts.Partitioner.adapted(), IdempotencyAge: opts.IdempotencyAge,
	})
	if err != nil {
		return nil, err
	}
	l := &Log{
		store: store, parts: parts, sql: parts.SQL, inbox: parts.Inbox, log: parts.Log, publisher: parts.Publisher, groups: parts.Groups,
		queues: parts.Queues, streams: parts.Streams, projections: parts.Projections, opts: opts, logger: logger,
		delivery: &deliver.Delivery{Log: parts.Log, Groups: parts.Groups, Publisher: parts.Publisher, Tracer: opts.Tracer, Logger: logger},
		flushed:  make(chan struct{}), ended: make(chan struct{}), work: make(map[closer]struct{}),
	}
	if parts.SQL != nil {
		l.delivery.SQL = parts.SQL
	}
	l.start(context.WithoutCancel(ctx), append(parts.Uses(), node.Part{Name: "queues", Run: l.queues.Run}))
	return l, nil
}

func init() {
	node.OpenLibrary = func(ctx context.Context, store eventlog.Store, cfg node.Config) (any, *node.Node, error) {
		l, err := open(ctx, store, Options{Poll: cfg.Poll, TailBytes: cfg.TailBytes, PartitionsMax: cfg.TotalPartitions, IdempotencyAge: cfg.IdempotencyAge, Logger: cfg.Logger})
		if err != nil {
			return nil, nil, err
		}
		return l, l.parts, nil
	}
}

// start starts everything that runs as long as the Log.
func (l *Log) start(ctx context.Context, parts []node.Part) {
	var logCtx context.Context
	logCtx, l.stopLog = context.WithCancel(ctx)
	ctx, l.stopUses = context.WithCancel(ctx)
	go func() {
		defer close(l.flushed)
		if err := l.log.Run(logCtx); err != nil {
			l.logger.Error("the log ended", "err", err)
		}
	}()
	for _, part := range parts {
		l.use(ctx, part.Name, part.Run)
	}
}

func (l *Log) use(ctx context.Context, name string, run func(context.Context) error) {
	l.uses.Go(func() {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			l.logger.Error("a part of the log ended", "part", name, "err", err)
		}
	})
}

// usable returns ErrClosed once the Log is closed. Every method of Log that can fail calls it
// first, except Close.
func (l *Log) usable() error {
	if l.over.Load() {
		return ErrClosed
	}
	return nil
}

// Healthy returns nil while the store answers and accepts events, otherwise the reason. It costs no
// store call.
func (l *Log) Healthy() error {
	if err := l.usable(); err != nil {
		return err
	}
	return l.log.Healthy()
}

// Close stops in order: consumers, projectors and workers finish and commit what they are handling
// (see Consumer.Close, Worker.Close), published events are flushed, the store is closed. It returns
// at the latest a second after ctx ends. What has not ended by then continues in the background,
// and the error names it. Acknowledged events are durable in any case. After Close all methods that
// can fail return ErrClosed. A second Close waits like the first.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	work := slices.Collect(maps.Keys(l.work))
	l.mu.Unlock()

	var err error
	if first {
		l.log.EndLinger()
		err = closing.All(ctx, work) // their handlers may use the Log until they return
		l.over.Store(true)
		l.stopUses()
		go l.end()
	}
	select {
	case <-l.ended:
		return errors.Join(err, l.closing)
	case <-ctx.Done():
		return errors.Join(err, fmt.Errorf("close: the store has not answered yet: %w", context.Cause(ctx)))
	}
}

// end flushes the log once nothing works on it, and closes the store.
func (l *Log) end() {
	l.uses.Wait()
	l.stopLog()
	<-l.flushed
	l.closing = l.store.Close()
	close(l.ended)
}

// closer is a consumer, a projector or a worker.
type closer interface{ Close(context.Context) error }

// begin starts a consumer, a projector or a worker, unless the Log was closed. Close will close it.
func (l *Log) begin(c closer, start func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.work[c] = struct{}{}
	start()
	return true
}

// forget removes c from the work that Log.Close ends: c was closed by its own Close.
func (l *Log) forget(c closer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.work, c)
}
