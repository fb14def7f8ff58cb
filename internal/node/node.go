// Package node puts together what each process that uses a store has: the log, the uses on it, and
// the movers that publish what SQL sessions committed. Doors stand on it.
package node

import (
	"context"
	"log/slog"
	"time"

	"github.com/weir-log/weir/door/inbox"
	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/projection"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/stream"
)

// Config sets a Node up. The zero value of every field means its default.
type Config struct {
	TailBytes       int64               // see eventlog.Config
	TotalPartitions int                 // likewise
	Poll            time.Duration       // see eventlog.Config; the mover of PostgreSQL has it, too
	DrainTimeout    time.Duration       // see eventlog.Config
	DrainClaims     time.Duration       // see sqlfn.Config
	Partitioner     publish.Partitioner // see publish.Config
	IdempotencyAge  time.Duration       // see publish.Config
	Groups          group.Config        // Beside and Logger are the node's
	NoAudit         bool                // it is not recorded what clients change
	Logger          *slog.Logger        // default: slog.Default()
	Observer        Observer            // default: none
	Tracer          eventlog.Tracer     // default: no spans
}

// Observer is told what the log and the movers do.
type Observer interface {
	eventlog.Observer
	sqlfn.Observer
	inbox.Observer
}

// Node is a log and all uses of it. Nothing happens in it until Log.Run, Queues.Run and the Uses
// run.
type Node struct {
	Store       eventlog.Store
	Log         *eventlog.Log
	Audit       *audit.Log // Log, which records what clients change
	Groups      *group.Coordinator
	Publisher   *publish.Publisher
	Queues      *queue.Queues
	Streams     *stream.Streams
	Projections *projection.Projections
	SQL         *sqlfn.Door // nil if the store is not PostgreSQL
	Inbox       *inbox.Door // nil if the store is neither MariaDB, MySQL nor SQLite

	movers []Part
}

// OpenLibrary opens the Go library on a store that is already open, and returns its *weir.Log and
// what that stands on. The root package sets it: a simulation runs the library on stores that no
// URL names, and weir verify --load acknowledges messages one by one.
var OpenLibrary func(ctx context.Context, store eventlog.Store, cfg Config) (library any, n *Node, err error)

// Part is something that runs as long as the node.
type Part struct {
	Name string
	Run  func(ctx context.Context) error
}

// Open puts a node on a store that is already open. It creates the tables of the store's SQL door,
// and needs a few store calls. The store still belongs to the caller.
func Open(ctx context.Context, store eventlog.Store, cfg Config) (*Node, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if err := eventlog.CheckOpen(ctx, store); err != nil { // before anything is installed
		return nil, err
	}
	sql, err := sqlfn.Attach(ctx, store)
	if err != nil {
		return nil, err
	}
	rows, err := inbox.Attach(ctx, store, cfg.Logger)
	if err != nil {
		return nil, err
	}
	settings := eventlog.Config{
		TailBytes: cfg.TailBytes, TotalPartitions: cfg.TotalPartitions, Poll: cfg.Poll, DrainTimeout: cfg.DrainTimeout, Logger: cfg.Logger, Tracer: cfg.Tracer,
	}
	if cfg.Observer != nil {
		settings.Observer = cfg.Observer
	}
	log, err := eventlog.Open(ctx, store, settings)
	if err != nil {
		return nil, err
	}
	n := &Node{Store: store, Log: log, Audit: audit.New(log, cfg.NoAudit, cfg.Logger), SQL: sql, Inbox: rows}
	n.use(cfg)
	n.move(cfg)
	return n, nil
}

// use makes the uses, each on those that it stands on.
func (n *Node) use(cfg Config) {
	var offsets group.Beside
	var acks queue.Beside
	var positions projection.Positions
	if n.SQL != nil {
		offsets, acks, positions = n.SQL, n.SQL, n.SQL
	}
	n.Publisher = publish.New(n.Log, publish.Config{
		Partitioner: cfg.Partitioner, IdempotencyAge: cfg.IdempotencyAge, Logger: cfg.Logger, Tracer: cfg.Tracer,
	})
	groups := cfg.Groups
	groups.Beside, groups.Logger = offsets, cfg.Logger
	n.Groups = group.New(n.Log, groups)
	// Queues do not have the caller's partitioner: what comes back from the wheel and from the dead
	// letters, and what SQL or another program enqueues, must be in the partition of its key.
	enqueuer := publish.New(n.Log, publish.Config{Logger: cfg.Logger, Tracer: cfg.Tracer})
	n.Queues = queue.New(n.Log, enqueuer, queue.Config{Logger: cfg.Logger, Tracer: cfg.Tracer, Beside: acks})
	n.Streams = stream.New(n.Log, stream.Config{Logger: cfg.Logger})
	n.Projections = projection.New(n.Log, n.Streams, n.Groups, positions, cfg.Logger)
}

// move makes the movers of what SQL sessions committed.
func (n *Node) move(cfg Config) {
	if n.SQL != nil {
		moving := sqlfn.Config{
			Poll: cfg.Poll, DrainClaims: cfg.DrainClaims, Logger: cfg.Logger, Tracer: cfg.Tracer, Queues: n.Queues, Streams: n.Streams,
		}
		if cfg.Observer != nil {
			moving.Observer = cfg.Observer
		}
		n.movers = append(n.movers, Part{"mover", sqlfn.New(n.Log, n.SQL, moving).Run})
	}
	var rows inbox.Observer
	if cfg.Observer != nil {
		rows = cfg.Observer
	}
	if n.Inbox != nil {
		n.movers = append(n.movers, Part{"mover", inbox.NewMover(n.Log, n.Inbox, n.Publisher, cfg.Logger, rows).Run})
	}
	if shards := inbox.NewShardMovers(n.Log, n.Store, n.Publisher, cfg.Logger, rows); shards != nil {
		n.movers = append(n.movers, Part{"movers", shards.Run})
	}
}

// Uses returns what runs on the log, except Log and Queues. Queues should end after these and after
// the doors, so that acknowledgements that came at the last moment are answered; Log ends last.
func (n *Node) Uses() []Part {
	return append([]Part{{"publisher", n.Publisher.Run}, {"groups", n.Groups.Run}, {"streams", n.Streams.Run}}, n.movers...)
}
