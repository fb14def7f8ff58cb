package eventlog

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/chance"
)

type (
	// Offset is a record's position in its partition. The first is 0; there are no gaps, except
	// where compaction removed records.
	Offset int64

	// Partition is a partition's number, unique across all topics of a store and never used again.
	Partition int64

	// Version is a number that the writer of a key raises with each change. 0 means: no such key.
	Version int64

	// Timestamp counts milliseconds since the Unix epoch, Kafka's unit. NoTimestamp means unknown.
	Timestamp int64

	// Mark is where the next call of Changes continues, and in which incarnation. The zero mark is
	// the beginning.
	Mark struct {
		Incarnation Incarnation
		Place       string // how far the last call got, in a form that only the store reads
	}

	// Incarnation identifies a period of the store without a rewind. Two incarnations differ if the
	// store may have been rewound in between.
	Incarnation struct {
		Store string  // the store's own identity: when its server started, for example, or which file it is
		Epoch Version // the version of EpochKey; a process raises it if it notices a rewind that the store did not notice
	}
)

// String is the mark as it appears in error messages, which people read in the log and at /readyz.
func (m Mark) String() string {
	if m == (Mark{}) {
		return "the beginning"
	}
	return "the last poll"
}

// String names an incarnation for people.
func (in Incarnation) String() string {
	if in == (Incarnation{}) {
		return "no incarnation"
	}
	return fmt.Sprintf("%q in leader epoch %d", in.Store, in.Epoch-1)
}

// Next returns a version for the next change of a key that is cached and checked later. Steps are
// random, so that a key that was deleted and put again, or is in a rewound store, does not get a
// version that some process remembers.
func (v Version) Next() Version {
	const first, step = 1 << 53, 1 << 20 // 2^43 changes fit
	if v == 0 {
		return 1 + Version(chance.N(first))
	}
	return v + 1 + Version(chance.N(step))
}

const (
	// NoTimestamp is the timestamp of a batch whose records carry none.
	NoTimestamp Timestamp = -1

	// EpochKey is the key whose version is part of a store's incarnation.
	EpochKey = "incarnation"
)

// ReplacedKey is the key of the state of a partition's compaction. Its version tells those who keep
// copies of stored batches whether batches of the partition were replaced since: every entry that
// replaces some puts the key, and nobody deletes it while the partition exists.
func ReplacedKey(p Partition) string { return CompactPrefix + strconv.FormatInt(int64(p), 10) }

// Batch is one run of records for one partition, in Kafka's record batch layout (magic 2). The
// bytes are stored as the producer sent them; the base offset inside them means nothing until a
// reader patches it (batch.Patch).
//
// A batch with no records and no bytes creates its partition, empty, if it does not exist. Records
// for a partition that was never created, or was deleted, are refused with ErrNoPartition.
type Batch struct {
	Partition Partition
	Records   int32     // how many offsets it takes; after compaction it may have fewer records
	MaxTime   Timestamp // the time of its newest record
	Bytes     []byte

	// Producer is the batch's header if an idempotent producer sent it: the log checks its sequence
	// numbers, and appends the batch once, however often it is submitted. Such a batch is the only
	// content of its entry. Stores ignore it.
	Producer *batch.Header
}

// Entry is one caller's change: all of it happens, or none of it.
//
// Its batches take their offsets in the order given: two batches for one partition in one entry are
// contiguous.
type Entry struct {
	Batches []Batch
	Checks  []Check // every key must still be at its version
	Puts    []Put   // each key at most once

	// Forgets are the partitions that the entry deletes, with all that they hold; missing ones are
	// ignored. Such an entry is the only one in its flush, and has no batches for these partitions.
	Forgets []Partition

	// Replaces rewrite stored batches, each of another partition (compaction). Such an entry is the
	// only one in its flush, and has no batches and no Forgets. For each partition it puts
	// ReplacedKey, at a version that the key never had. A copy that no log reads yet need not put
	// it (store/storecopy).
	Replaces []Replace

	// UsesReserve: the entry may use the space that a store reserves for deletion, because it has
	// few records and frees space.
	UsesReserve bool

	// Stays: the log does not withdraw the entry when its caller stops waiting (Ticket.Wait). It is
	// for an entry whose effect counts more than its answer, such as one by which a process leaves.
	// Stores and SubmitLate ignore it.
	Stays bool
}

// Check refuses an entry with ErrStale unless Key is at Version. Version 0 demands that the key
// does not exist.
//
// Holdable: the entry is also refused, with ErrHeld, while a transaction of a user of the store
// holds Key, or while a change of Key that such a transaction committed is not moved into the log
// yet. A store without such transactions ignores the field.
type Check struct {
	Key      string
	Version  Version
	Holdable bool
}

// Put gives Key a new version and value. A nil Value deletes the key. With AddBase = n > 0, the
// base offset of the n-th batch of the entry is appended to Value, in decimal digits.
type Put struct {
	Key     string
	Version Version
	Value   []byte
	AddBase int

	// Secret: once the key has another value or is deleted, a store drops this value as soon as it
	// can. So the value must not stay in one object with batches, which are kept as long as their
	// records.
	Secret bool
}

// Replace puts Batches in the place of the stored batches that hold the offsets [From, To). The new
// batches take exactly these offsets, in order; they may be fewer or more than the stored ones. The
// partition's bounds stay, except Bytes.
//
// The entry is refused with ErrStale unless From is at or above the partition's First, a stored
// batch begins at From, and a stored batch ends at To. So it is refused if these batches were
// trimmed, or replaced by batches with other boundaries.
type Replace struct {
	Partition Partition
	From, To  Offset
	Batches   []Batch // at least one; their field Partition is that of the Replace, and none is newer (MaxTime) than the newest one that they replace
}

// Check returns an error unless the batches take the offsets [From, To). Stores call it before they
// change anything.
func (r Replace) Check() error {
	end := r.From
	for _, b := range r.Batches {
		if b.Records <= 0 || b.Partition != r.Partition {
			return fmt.Errorf("replace [%d, %d) of partition %d: a new batch takes %d offsets of partition %d", r.From, r.To, r.Partition, b.Records, b.Partition)
		}
		end += Offset(b.Records)
	}
	if end != r.To || r.From >= r.To {
		return fmt.Errorf("replace [%d, %d) of partition %d: the new batches end at %d", r.From, r.To, r.Partition, end)
	}
	return nil
}

// Outcome is the answer to one Entry. If Err is nil, the entry is durable. With these the entry
// certainly did not happen:
//
//   - ErrStale: a check failed, or batches to replace are not there.
//   - ErrHeld: a transaction holds a key.
//   - ErrNoPartition: a partition does not exist.
//   - ErrNoSpace: the store has no space for records.
//   - ErrSpansShards: the entry does not live on one shard (Sharded stores only).
//
// If a shard of a Sharded store does not answer, Err of its entries is ErrUnavailable, ErrUnsure or
// ErrRewound; the other entries of the flush happen.
type Outcome struct {
	Base      []Offset // the base offset of each batch; 0 for a batch that only creates its partition
	Duplicate bool     // set by the log, not by stores: the batch had been appended before, at Base
	Err       error
}

// Span asks for the batches of one partition from the one that holds From onwards.
// MaxBytes bounds them; 0 asks only for the bounds.
type Span struct {
	Partition Partition
	From      Offset
	MaxBytes  int
}

// Bounds is what a partition holds: the offsets [First, Next), in about Bytes bytes.
type Bounds struct {
	Partition   Partition
	First, Next Offset
	Bytes       int64
}

// Stable returns the end that readers see, which is Kafka's last stable offset: they read the
// records in [First, Stable), and begin here at the latest. There are no transactions yet, so it is
// Next. A transaction that is open will hold it back to its first record: then only this changes.
//
// What does not read stays with Next, as in Kafka: appends, retention, trims, lag, and whether an
// offset is within the partition. So do readers of topics to which only weir writes: no client has
// a transaction open there.
func (b Bounds) Stable() Offset { return b.Next }

// Lag returns how many of the offsets that a partition holds come at or after committed.
func (b Bounds) Lag(committed Offset) int64 { return int64(max(0, b.Next-max(committed, b.First))) }

// Slice is the answer to one Span. Batches is empty if From is outside [First, Next), or if earlier
// spans used the budget. The log checks the bytes, not the store. Err does not affect other spans:
//
//   - ErrNoPartition: the partition does not exist.
//   - a *DamagedError: the batch that holds From cannot be read back. Its Next is where the next
//     batch begins.
//   - ErrUnavailable: the partition's shard does not answer (Sharded stores only).
type Slice struct {
	Bounds  Bounds
	Batches []Placed
	Err     error
}

// Placed is a batch with its base offset. Its bytes belong to the reader.
type Placed struct {
	Base Offset
	Batch
}

// End returns the offset after the batch.
func (b Placed) End() Offset { return b.Base + Offset(b.Records) }

// Goal is what Seek looks for in a partition: At, or Bytes.
type Goal struct {
	Partition Partition
	// At looks for the first batch whose newest record is not older than At, beginning with the
	// batch that holds From.
	At   Timestamp
	From Offset // an offset below First counts as First
	// Bytes, if positive, looks for the highest batch boundary with at least so many bytes after
	// it: trimming there never leaves less.
	Bytes int64
}

// Found is the answer to one Goal. Err is one of:
//
//   - ErrNoPartition: the partition does not exist.
//   - ErrUnavailable: the partition's shard does not answer (Sharded stores only).
//   - an error that says how the partition is damaged.
type Found struct {
	At  Offset
	Err error
}

// Trim asks for the removal of a partition's records below Before.
type Trim struct {
	Partition Partition
	Before    Offset
}

// KeyValue is one keyed value.
type KeyValue struct {
	Key     string
	Version Version
	Value   []byte
	Age     time.Duration // how long ago it was put, by the store's clock; it may be too low, never too high; at least 0
	Now     Timestamp     // a lower bound of the store's clock when the value was read; 0: the key does not exist
	NowMax  Timestamp     // an upper bound of the store's clock when the value was read; 0: the clock was at Now
}

// Past returns the earlier of this process's clock and, if kv has it, the store's: whatever expires
// before that time has expired by both clocks. What is deleted because of its age is judged by it.
// Otherwise one process whose clock is ahead would delete what all others keep.
func (kv KeyValue) Past() time.Time {
	now := time.Now()
	if by := time.UnixMilli(int64(kv.Now)); kv.Now != 0 && by.Before(now) {
		return by
	}
	return now
}

// Store keeps batches and a little keyed state. It knows nothing of topics, groups or Kafka.
// store/storetest is this contract as tests. All methods may be called concurrently, from any
// number of processes: only the store decides the order.
//
// An error from any method that matches ErrUnavailable means that certainly nothing happened and
// that trying again may work. An error that matches ErrUnsure (Commit and Trim only) means that it
// may have happened.
//
// A store may be rewound: a standby is promoted that lacks the last commits, or a backup is
// restored. If the store notices that, it is in another incarnation. Commit, Read, Seek, Trim, List
// and Get, and Changes with a mark, answer ErrRewound if the store is no longer in the incarnation
// that Changes returned last to this Store value; before the first Changes, nothing is checked.
// Once a commit that changes EpochKey was answered, no commit of an earlier incarnation happens any
// more, not even one that was in progress. Changes with the zero mark returns the current
// incarnation, in its mark. A process that opens a store in use, or reconnects to it, begins no new
// incarnation.
//
// These methods are the whole contract. A store may also have optional interfaces, which As finds:
//
//	interface  who asks                                 without it
//	Waker      the log's follower                       the follower polls
//	Costly     the log, and heartbeats                  a commit costs nothing but time
//	Replica    the log when it starts                   this process may write
//	Writable   the log after each poll                  only a failed commit shows a refusal
//	Sharded    the log, doors with tables of their own  one shard: an entry may combine anything
//	Wrapper    As                                       the store is not around another one
type Store interface {
	// Commit makes every entry durable before it returns, in one round trip. Entries are
	// independent: one that fails does not affect the others; outcomes come in the order of the
	// entries. A key that one entry puts is in no other entry of the flush, so all entries are
	// checked against the state before the flush. A key that no entry puts may be in many checks.
	// Offsets are dense, and become visible to readers in order. The store does not keep or change
	// the bytes after Commit returns; if an outcome is ErrUnsure, it may keep them until it gives
	// up the commit.
	Commit(ctx context.Context, flush []Entry) ([]Outcome, error)

	// Read returns, for each span, whole batches from the one that holds From, in one round trip
	// for all spans. The batches of a span have at most its MaxBytes, those of all spans at most
	// maxBytes; earlier spans come first. One exception: the first batch of the first span that has
	// any may be larger (KIP-74). Budget implements this rule. Read never returns a record that a
	// crash could still undo.
	Read(ctx context.Context, spans []Span, maxBytes int) ([]Slice, error)

	// Changes returns the bounds of the partitions that changed since the mark, and the mark for
	// the next call. With the zero mark it returns all partitions. It may return a partition that
	// did not change, never a deleted partition. A mark is valid only with the Store value that
	// returned it.
	Changes(ctx context.Context, since Mark) ([]Bounds, Mark, error)

	// Seek finds, for each goal, the base offset of the batch that the goal describes, but not
	// below First or the goal's From. If no batch is young enough it finds Next; if fewer bytes are
	// held than the goal asks for, First. It makes one round trip for all goals, or a number of
	// trips that grows with the logarithm of the partitions' records.
	Seek(ctx context.Context, goals []Goal) ([]Found, error)

	// Trim raises the First of each trim's partition to Before, but not past Next. Batches that are
	// wholly below it are deleted, immediately or later. A trim of a deleted partition does
	// nothing. It makes one round trip for all trims, or a few, whose number does not grow with the
	// trims. A partition in which batches were replaced may need round trips of its own. errs has
	// an element for each trim: nil, or why only this trim failed. Then its partition is damaged
	// or, if the store is Sharded, its shard does not answer (ErrUnavailable, ErrUnsure,
	// ErrRewound). A partition may be in several trims.
	Trim(ctx context.Context, trims []Trim) (errs []error, err error)

	// List returns, in byte order, at most limit keys that begin with prefix and are greater than
	// after.
	List(ctx context.Context, prefix, after string, limit int) ([]KeyValue, error)

	// Get returns the values of keys, in the order given, in one round trip for all keys. The
	// Version of a key that does not exist is 0. The values have at most maxBytes together: the
	// answer ends before the first value with which they would have more. One exception: it has at
	// least one key, and the first value may be larger. Different keys may be read at different
	// moments.
	Get(ctx context.Context, keys []string, maxBytes int) ([]KeyValue, error)

	io.Closer
}

// Waker is an optional interface: a store that can notify of other processes' commits. A wake-up is
// a hint: it may be late, lost or needless, and the follower polls as well.
type Waker interface {
	// Wake returns a channel that receives after other processes committed, until ctx ends.
	Wake(ctx context.Context) (<-chan struct{}, error)
}

// Costly is an optional interface: a store of which each commit costs money.
type Costly interface {
	// HeartbeatEvery returns how often a process may put a key only to say that it lives. It is not
	// more often than CommitEvery.
	HeartbeatEvery() time.Duration
	// CommitEvery returns the least time from one commit to the next, which is how long an entry
	// may wait until the store lets it be sent.
	CommitEvery() time.Duration
	// FlushBytes returns how many bytes of batches one commit should have at most; its last entry
	// may exceed that. One larger commit costs less than two, and where commits take long, larger
	// ones are faster. 0: as for other stores. The log asks before each flush. When it is opened,
	// it sizes its queue for two flushes of the first answer.
	FlushBytes() int
	// NextCommit returns when the store lets the next commit begin; one before that waits in
	// Commit. The log waits before it gathers a flush, so that what comes meanwhile is part of it.
	NextCommit() time.Time
}

// Replica is an optional interface: a store that this process may only read. Then Commit and Trim
// answer ErrReadOnly, and no other method writes.
type Replica interface {
	// Replica reports whether this process may only read the store (is), and how long ago the store
	// last knew all that other processes had committed (behind). It makes no request.
	Replica() (behind time.Duration, is bool)
}

// Writable is an optional interface: a store that knows when it refuses records, for example
// because its disk is full.
type Writable interface {
	// Writable returns why records are refused, such as ErrNoSpace, or nil while they are accepted.
	// err means that this is unknown. The log asks after every poll, so the answer must be cheap
	// while all is well.
	Writable(ctx context.Context) (refusal, err error)
}
