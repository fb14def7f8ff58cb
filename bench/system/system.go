// Package system has the systems that can be measured, each behind the same small interfaces.
package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/bench/fetch"
	"github.com/weir-log/weir/internal/s3test"
)

// Mode is how a system is set up.
type Mode string

// A durable system flushes before it acknowledges. A shipped one has its defaults.
const (
	Durable Mode = "durable"
	Shipped Mode = "shipped"
)

// System can be started and measured.
type System struct {
	Name    string
	About   string            // in a line
	Needs   string            // what must be there; "": nothing
	Program string            // that must be in PATH; "": none
	Fetch   string            // what `weir-bench fetch` has to have fetched, with spaces between; "": nothing
	Modes   map[Mode]Settings // what differs from the defaults, in words; at least one mode
	Ordered bool              // it promises order within a key
	Start   func(ctx context.Context, place Place, mode Mode) (Server, error)
	Lies    bool // it breaks a promise on purpose; listed only when asked for
}

// Missing says what has to be fetched or installed before the system can start; nil: nothing.
func (s System) Missing() error {
	var names []string
	var first error
	for _, name := range strings.Fields(s.Fetch) {
		if _, err := fetch.Dir(name); err != nil {
			names, first = append(names, name), cmp.Or(first, err)
		}
	}
	switch {
	case len(names) == 1:
		return first
	case len(names) > 1:
		return fmt.Errorf("%s are not here: `weir-bench fetch %s`", strings.Join(names, " and "), strings.Join(names, " "))
	}
	if s.Program != "" {
		if _, err := exec.LookPath(s.Program); err != nil {
			return fmt.Errorf("%s needs %s, and there is no %s in PATH", s.Name, s.Needs, s.Program)
		}
	}
	return nil
}

// OnPostgres reports whether the system keeps its data on PostgreSQL.
func (s System) OnPostgres() bool { return s.Needs == onPostgreSQL }

// Copies are those of each event that a lost machine leaves enough of, as its makers have it:
// three where brokers vote, two where a database has a standby (docs/cost.md). A bucket has its
// own. One is what was measured.
func (s System) Copies() int {
	name, _, _ := strings.Cut(s.Name, "+")
	switch {
	case slices.Contains([]string{"kafka", "nats", "kurrentdb"}, name):
		return 3
	case s.OnPostgres(), slices.Contains([]string{"weir-mysql", "redis", "valkey", "bullmq", "nisshi"}, name):
		return 2
	}
	return 1
}

// OnS3 reports whether the system keeps its data in a bucket. They are durable there by the word of
// S3; what stands for it here need not flush.
func (s System) OnS3() bool { return s.Needs == needsS3 }

// Exec reports whether the system is anybody's adapter.
func (s System) Exec() bool { return strings.HasPrefix(s.Name, ExecPrefix) }

// onPostgreSQL is what systems on PostgreSQL need.
const onPostgreSQL = "PostgreSQL"

// Settings are the settings of a system that matter to its promises.
type Settings map[string]string

// Place is where a system may keep its files, and nothing else does.
type Place struct {
	Dir  string
	Keep bool // the files are there when the system has closed, also those of its database

	// Postgres is the URL of a PostgreSQL that is there already: a system on PostgreSQL uses a
	// database of its own on it, and starts none. "": it starts one.
	Postgres string
}

// Server is a system that runs.
type Server interface {
	// Target returns a Log, a Queue or Streams, or several of them in one value, or Several.
	Target() any
	Close() error
}

// Several are values of which each is one target.
type Several []any

// As returns what a target is, or one of several.
func As[T any](target any) (t T, is bool) {
	if all, several := target.(Several); several {
		for _, one := range all {
			if t, is = one.(T); is {
				return t, true
			}
		}
		return t, false
	}
	t, is = target.(T)
	return t, is
}

// Described is a server that says itself what is only known when it runs: its settings, and whether
// it promises order within a key.
type Described interface {
	Described() (settings Settings, ordered bool)
}

// Elsewhere is a server that may be one that this process did not start: what it uses and what it
// writes is not known then.
type Elsewhere interface{ Elsewhere() bool }

// Distant is a server behind something that takes time, too.
type Distant interface {
	// Way returns how long it takes there and back with a value, at best; 0: it is not known.
	Way(ctx context.Context, value []byte) time.Duration
}

// Faulty is a server that something can be done to while it is measured.
type Faulty interface{ Faults() Faults }

// Faults are what can be done to a server; nil: that cannot.
type Faults struct {
	// Kill ends the server, or the database that it keeps its data on, without a warning.
	Kill func() (restart func() error, err error)
	// Pause stops its processes where they are.
	Pause func() (resume func(), err error)
	// Hold opens a transaction in its database that keeps a snapshot until it is released.
	Hold func(ctx context.Context) (release func(), err error)
}

// Sizer is a server that says how many bytes its data take on disk.
type Sizer interface {
	Size(ctx context.Context) (int64, error)
}

// Requester is a server that knows how many requests were made to a bucket. It is false if the
// system has none.
type Requester interface {
	Requests() (n Requests, has bool, err error)
}

// Requests are requests to a bucket since it was made.
type Requests = s3test.Counts

// Event is what is published. Events of one key stay in order.
type Event struct{ Key, Value []byte }

// partitionOf is the partition of a key in a system that has no partitions of its own.
func partitionOf(key []byte, partitions int) int {
	h := fnv.New32a()
	_, _ = h.Write(key)
	return int(h.Sum32() % uint32(partitions))
}

// Log is publish and subscribe. Its methods may be called concurrently.
type Log interface {
	Create(ctx context.Context, topic string, partitions int) error
	// Publish returns nil when the events are acknowledged, ErrUnsure if the outcome is unknown.
	Publish(ctx context.Context, topic string, events []Event) error
	// Consume delivers every event of the topic to a group of members, until ctx ends. Events of a
	// key are delivered by one member at a time.
	Consume(ctx context.Context, topic, group string, members int, deliver func(value []byte)) error
}

// Queue is a work queue. Its methods may be called concurrently.
type Queue interface {
	CreateQueue(ctx context.Context, queue string) error
	Enqueue(ctx context.Context, queue string, values [][]byte) error
	// Work takes messages until ctx ends. It calls got when a worker has a message, and acked when
	// its acknowledgement is as durable as the system makes it.
	Work(ctx context.Context, queue string, workers, batch int, got, acked func(value []byte)) error
	// Left is how many messages the queue still has, claimed ones included.
	Left(ctx context.Context, queue string) (int64, error)
}

// Streams are event-sourced streams. Its methods may be called concurrently.
type Streams interface {
	CreateStreams(ctx context.Context) error
	// Append appends at a version, or at AnyVersion, and returns the version afterwards, or a
	// Conflict.
	Append(ctx context.Context, stream string, expected int64, values [][]byte) (int64, error)
	// ReadStream returns the events of a stream from a version on with their versions, in order: at
	// most so many, and 0 is all.
	ReadStream(ctx context.Context, stream string, from int64, most int) (versions []int64, values [][]byte, err error)
}

// Tagged are streams whose events have tags. Its methods may be called concurrently.
type Tagged interface {
	CreateStreams(ctx context.Context) error
	// ReadTagged returns the events that have at least one of the tags, and a boundary: what
	// AppendWithin has to know of them.
	ReadTagged(ctx context.Context, tags []string) (values [][]byte, boundary any, err error)
	// AppendWithin appends an event with the tags to a stream, or returns ErrBoundary if an event
	// with one of them was appended since the boundary was read.
	AppendWithin(ctx context.Context, tags []string, boundary any, stream string, value []byte) error
}

// ErrBoundary refuses an event: others with one of its tags were appended meanwhile.
var ErrBoundary = errors.New("an event with one of the tags was appended meanwhile")

// AnyVersion appends whatever the version is.
const AnyVersion = -1

// Follower are streams that can be followed together, as a projection does.
type Follower interface {
	// Follow delivers every event of all streams, from the first one on, those of a stream in their
	// order, until ctx ends.
	Follow(ctx context.Context, deliver func(Followed)) error
}

// Followed is an event that a projection got.
type Followed struct {
	Stream  string
	Version int64
	Value   []byte
	Called  time.Time // when the command of the event arrived; zero: it is not known
	Saved   time.Time // when the projection had the event
}

// ErrUnsure: the outcome of a call is unknown. Every other error says that nothing was done.
var ErrUnsure = errors.New("the outcome is unknown")

// Conflict refuses an append: the stream is at another version.
type Conflict struct{ Actual int64 }

func (c *Conflict) Error() string { return fmt.Sprintf("the stream is at version %d", c.Actual) }

// All are the systems that can be measured, sorted by name; with lies, those that break a promise
// too.
func All(lies bool) []System {
	all := slices.Concat([]System{null()}, weirs(), weirQueues(), kafkas(), withAdapters(), pgqs(), redisStreams(), nisshis(), []System{bullMQ(), ferretDB(), kurrentDB(), pgPlain(), pgNotify(), messageDB(), natsJetStream(), pgmq()}, rivers())
	if lies {
		all = append(all, liars()...)
	}
	return all
}

// Find returns the system of a name. After exec: it is the command of an adapter.
func Find(name string) (System, error) {
	if strings.HasPrefix(name, ExecPrefix) {
		return execSystem(name), nil
	}
	for _, s := range All(true) {
		if s.Name == name {
			return s, nil
		}
	}
	return System{}, fmt.Errorf("there is no system %q; `weir-bench systems` lists them, and exec:COMMAND is an adapter of your own", name)
}

// closeWait bounds how long a system may take to stop.
const closeWait = 10 * time.Second
