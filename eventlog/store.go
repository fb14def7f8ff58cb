package eventlog

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"time"
)

type (
	// Offset is a record's position in its partition. The first is 0; there are no gaps.
	Offset int64

	// Partition is a partition's number, unique across all topics of a store and never used again.
	Partition int64

	// Version is a number that the writer of a key moves forward. 0 means: no such key.
	Version int64

	// Timestamp counts milliseconds since the Unix epoch, Kafka's unit. NoTimestamp means unknown.
	Timestamp int64

	// Mark says how far Moved has looked, and in which incarnation. The zero mark is the beginning.
	Mark struct {
		Incarnation Incarnation
		Place       string // the store's own note
	}

	// Incarnation names a life of a store. Two are different where the store may have lost its end in between.
	Incarnation struct {
		Store string  // what the store knows by itself: which server, since when it runs, which file
		Epoch Version // of EpochKey: processes that noticed a loss which the store did not know of put it anew
	}
)

// Next is the version that a change gives a key that is kept in memory and checked again. Steps are random: a key that was deleted and came back, or a
// store that lost its end and went on, does not come by a version that somebody remembers of what was lost.
func (v Version) Next() Version {
	const first, step = 1 << 53, 1 << 20 // 2^43 changes fit
	if v == 0 {
		return 1 + Version(rand.Int64N(first))
	}
	return v + 1 + Version(rand.Int64N(step))
}

const (
	// NoTimestamp is the timestamp of a batch whose records carry none.
	NoTimestamp Timestamp = -1

	// EpochKey is the key whose version is part of a store's incarnation.
	EpochKey = "incarnation"

	// Forget, given to Trim as the offset, removes the partition itself.
	Forget Offset = math.MaxInt64
)

// Batch is one run of records for one partition, in Kafka's record batch layout (magic 2).
// The bytes rest as the producer sent them; the base offset inside them means nothing until a
// reader patches it (batch.Patch).
//
// A batch with no records and no bytes opens its partition: it is created, empty, if it is not there.
// Records for a partition that was never opened, or was forgotten, are refused with ErrNoPartition.
type Batch struct {
	Partition Partition
	Records   int32     // how many offsets it takes
	MaxTime   Timestamp // of its newest record
	Bytes     []byte
}

// Entry is one caller's change: all of it happens, or none of it.
//
// Its batches take their offsets in the order given: two batches for one partition in one entry are neighbours.
type Entry struct {
	Batches []Batch
	Checks  []Check // every key must still be at its version
	Puts    []Put   // each key at most once

	// UsesReserve: the entry may use the space that a store keeps from records, for its records are few and it frees space.
	UsesReserve bool
}

// Check holds an entry back unless Key is at Version. Version 0 demands that there is no such key.
type Check struct {
	Key     string
	Version Version
}

// Put gives Key a new version and value. A nil Value forgets the key.
// With AddBase = n > 0, the base offset that the entry's n-th batch gets is appended to Value, in decimal digits.
type Put struct {
	Key     string
	Version Version
	Value   []byte
	AddBase int
}

// Outcome answers one Entry. With Err nil the entry is durable.
// Err is ErrStale when a check failed, ErrNoPartition when a partition is not there, ErrNoSpace when the store has no space
// for records: the entry certainly did not happen.
type Outcome struct {
	Base      []Offset // where each batch of the entry begins; 0 for one that only opens
	Duplicate bool     // set by the log, not by stores: the batch was there already, at Base
	Err       error
}

// Span asks for the batches of one partition from the one that holds From onwards.
// MaxBytes bounds them; 0 asks for the bounds alone.
type Span struct {
	Partition Partition
	From      Offset
	MaxBytes  int
}

// Bounds tells what a partition holds: the offsets [First, Next), in about Bytes bytes.
type Bounds struct {
	Partition   Partition
	First, Next Offset
	Bytes       int64
}

// Slice answers one Span. Batches is empty where From is outside [First, Next), and where the budget left nothing for it.
// Err is ErrNoPartition when there is no such partition, and a *DamagedError where the batch that holds From cannot be read back,
// which leaves the other spans alone. Its Next is where the next batch begins that is there. The log checks the bytes.
type Slice struct {
	Bounds  Bounds
	Batches []Placed
	Err     error
}

// Placed is a batch at its place in the log. Its bytes belong to the reader.
type Placed struct {
	Base Offset
	Batch
}

// Goal is what Seek looks for. One of the two is given.
type Goal struct {
	// At looks for the first batch whose newest record is not older, beginning with the batch that holds From.
	At   Timestamp
	From Offset // below First: First
	// Bytes, when positive, looks for the highest batch boundary that leaves at least so many bytes
	// behind it: trimming there never leaves less.
	Bytes int64
}

// KeyValue is one keyed value. Age is how long ago it was put, by the store's own clock.
type KeyValue struct {
	Key     string
	Version Version
	Value   []byte
	Age     time.Duration
}

// Store keeps batches and a little keyed state. It knows nothing of topics, groups or Kafka.
// store/storetest is this contract as tests. All methods may be called at once, from any number of
// processes: the store is the only judge of order.
//
// An error from any method that matches ErrUnavailable means that certainly nothing happened and that trying again
// may work. One that matches ErrUnsure (Commit and Trim only) means that it may have happened.
//
// A store may lose its end: a standby is promoted that lacks the last commits, a backup is copied back. It is in another incarnation
// then, as far as it can know. Commit and Trim, and Moved with a mark, answer ErrRewound when the store is no longer in the incarnation that Moved
// told this Store value last. Moved with the zero mark tells the one that it is in now. A process that joins others on a store, or
// comes back to it, begins no new incarnation.
type Store interface {
	// Commit makes every entry durable before it returns, in one trip.
	// Entries are independent: one that fails leaves the others alone; outcomes come in the entries' order.
	// A key that one entry puts is named by no other entry of the flush, so all may be judged by what was there before;
	// many may check a key that none puts.
	// Offsets are dense, and become visible to readers in order.
	// The store does not keep or change the bytes after it returns.
	Commit(ctx context.Context, flush []Entry) ([]Outcome, error)

	// Read returns, for each span, whole batches from the one holding From onwards, in one trip for all spans.
	// Those of a span have at most its MaxBytes, those of all at most maxBytes, and earlier spans come first. Only the first batch of the
	// first span that has any comes however large it is (KIP-74). Budget is this rule.
	// It never returns a record that a crash could still undo.
	Read(ctx context.Context, spans []Span, maxBytes int) ([]Slice, error)

	// Moved lists the bounds of the partitions that changed since the mark, and the mark to ask with next.
	// With the zero mark it lists all partitions. It may list one that did not change. A forgotten
	// partition is not listed. A mark is good only with the Store value that gave it.
	Moved(ctx context.Context, since Mark) ([]Bounds, Mark, error)

	// Seek finds the base offset of the batch that the goal describes, or First, or the goal's From, where that batch begins below.
	// Where no batch is young enough it finds Next; where fewer bytes are held than the goal asks for, First.
	Seek(ctx context.Context, p Partition, goal Goal) (Offset, error)

	// Trim moves the partition's First up to before, but not past Next and never down. Whole batches below it
	// are forgotten, at once or in the store's own time. Forget removes the partition; once it
	// is gone Trim does nothing.
	Trim(ctx context.Context, p Partition, before Offset) error

	// List returns keyed state under prefix, in byte order of the keys, after a key, at most limit of them.
	List(ctx context.Context, prefix, after string, limit int) ([]KeyValue, error)

	io.Closer
}

// Waker is an optional upgrade: a store that can say at once that another process wrote.
// A wake is a hint. It may come late, or not at all, or for nothing: the follower polls as well.
type Waker interface {
	// Wake returns a channel that receives after other processes committed, until ctx ends.
	Wake(ctx context.Context) (<-chan struct{}, error)
}

// Writable is an optional upgrade: a store that can tell that it takes no records, such as when its disk is full.
type Writable interface {
	// Writable returns a refusal while records are refused: ErrNoSpace, or what else is wrong. An error means that it cannot be told.
	// The log asks with every look at the store, so the answer costs little while all is well.
	Writable(ctx context.Context) (refusal, err error)
}
