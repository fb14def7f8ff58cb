package queue

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/claims"
	"github.com/weir-log/weir/use/ledger"
)

// A change is built while all writers of the process wait: opsMax bounds its operations, opBytesMax
// the bytes of the records that it appends, and workMax how many runs of messages (claims.Run) and
// messages its operations pass over. One operation is always allowed.
const (
	opsMax     = 4096
	opBytesMax = 4 << 20
	workMax    = 1 << 20 // some 10 ms
)

// An ack or a nack keeps the records that it appends in memory: at most opBytesMax and one message.
// holdingMax bounds how many operations of one process do so at the same time.
const holdingMax = 16

// op is an operation on the state in a key.
type op struct {
	// apply changes the state and adds records and puts to the change. It may run again on a newer
	// state, so it must overwrite its earlier results.
	apply    func(s *claims.State, c *change) (changed bool, err error)
	bytes    int64  // bytes of the records that it appends
	messages int64  // how many messages it changes
	claims   bool   // it is a claim: in a queue with order by key it passes over the messages, too
	missed   func() // called if it succeeded after its caller gave up; may be nil
}

// call is an operation that somebody waits for.
type call = ledger.Op[*op, struct{}]

// change is the entry under construction for one change of a shard.
type change struct {
	entry   eventlog.Entry
	batches []loose
	last    map[eventlog.Partition]int // the index of a partition's last batch in batches
	keys    map[string]bool            // the keys that put has added puts of

	// About the operation that is being applied:
	maybeDone bool // an earlier attempt has an unknown outcome
	overtaken bool // an entry with the operation was refused, because something that it checks had changed
	refused   bool // set by apply: it refused a receipt
}

// unsureIfResent turns an error into ErrUnsure if the operation was sent before: the earlier
// attempt may have succeeded, and may itself have used the receipt.
func (c *change) unsureIfResent(err error) error {
	if c.maybeDone && err != nil && !errors.Is(err, eventlog.ErrUnsure) {
		return fmt.Errorf("%w: the operation was sent twice, and the first attempt may have succeeded (%w)", eventlog.ErrUnsure, err)
	}
	return err
}

// loose is a batch before it is sealed.
type loose struct {
	topic     eventlog.Topic
	partition eventlog.Partition
	records   []batch.Record
	bytes     int
}

// append adds a record to the entry, and returns the index of its batch and its index there. A
// batch has max.message.bytes at most; only a batch of one record may be larger.
func (c *change) append(t eventlog.Topic, p eventlog.Partition, r batch.Record) (nth, record int) {
	if c.last == nil {
		c.last = make(map[eventlog.Partition]int)
	}
	size := batch.SealedSize(&r)
	nth, there := c.last[p]
	if !there || c.batches[nth].bytes+size > t.MaxMessageBytes() {
		nth = len(c.batches)
		c.last[p] = nth
		c.batches = append(c.batches, loose{topic: t, partition: p})
	}
	l := &c.batches[nth]
	l.records, l.bytes = append(l.records, r), l.bytes+size
	return nth, len(l.records) - 1
}

// put adds puts of unique keys, each key once: an entry must not have two puts of one key. Two
// messages share a unique key if somebody copied a record with its headers.
func (c *change) put(puts []eventlog.Put) {
	for _, p := range puts {
		if c.keys == nil {
			c.keys = make(map[string]bool)
		}
		if !c.keys[p.Key] {
			c.keys[p.Key] = true
			c.entry.Puts = append(c.entry.Puts, p)
		}
	}
}

func (c *change) seal() error {
	for _, l := range c.batches {
		b, err := l.topic.Seal(l.partition, l.records)
		if err != nil {
			return err
		}
		batch.MarkOwn(b.Bytes) // see headers.go
		c.entry.Batches = append(c.entry.Batches, b)
	}
	return nil
}

// shard changes the state in one key: the state of a partition, of all partitions of a queue with
// limits, or of a slot of the wheel of delayed messages (deliver_delayed.go). Operations that wait
// become one change when the log gathers its next flush.
type shard struct {
	*ledger.Writer[*claims.State, *op, struct{}]
	owner *Queues
	q     *Queue // its definition is checked with every change; nil for a slot of the wheel
	name  string // for errors
	key   string
}

func newShard(owner *Queues, q *Queue, name, key string) *shard {
	s := &shard{owner: owner, q: q, name: name, key: key}
	s.Writer = ledger.New(ledger.Rules[*claims.State, *op, struct{}]{
		Log: owner.log, Key: key, Name: name, Unknown: ledger.Resolve, Start: owner.start,
		Read: s.read, Take: s.take, Size: s.size, Judge: s.judge,
		Missed: func(o *op, _ struct{}) {
			if o.missed != nil {
				o.missed()
			}
		},
	})
	return s
}

// do carries out an operation, see ledger.Writer.Do.
func (s *shard) do(ctx context.Context, o *op) error {
	if err := s.owner.running(ctx); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	_, err := s.Do(ctx, o)
	return err
}

// known returns the state that is remembered; nil: none. The caller must not change it.
func (s *shard) known() *claims.State {
	known, _ := s.Known()
	return known
}

// size estimates the encoded size of a state, in bytes.
func (s *shard) size(st *claims.State) int64 { return 256 + claims.RunSize*st.Count() }

// passes estimates how many runs of a state an operation passes over, and how many messages a claim
// passes over, besides those that it changes.
func (s *shard) passes(st *claims.State) (runs, messages int64) {
	if s.q != nil && s.q.def.Load().settings.KeyOrder {
		for i := range st.Parts {
			messages += int64(st.Parts[i].Next - st.Parts[i].Floor)
		}
	}
	return 1 + st.Count(), messages
}

// take says how many operations may share a change.
func (s *shard) take(st *claims.State, ops iter.Seq[*op]) (n int) {
	bytes, work := int64(0), int64(0)
	runs, messages := s.passes(st)
	for o := range ops {
		bytes += o.bytes
		work += runs + o.messages
		if o.claims {
			work += messages
		}
		if n == opsMax || n > 0 && (bytes > opBytesMax || work > workMax) {
			break
		}
		n++
	}
	return n
}

// judge applies operations to a copy of a state, and makes one entry of them.
func (s *shard) judge(st *claims.State, _ eventlog.Version, calls []*call) (j ledger.Judged[*claims.State, struct{}]) {
	j.Answers = make([]ledger.Answer[struct{}], len(calls))
	if s.q != nil && !s.q.decides(s.key) { // limits were added to the queue or removed: another key holds its state now
		for i := range j.Answers {
			j.Answers[i].Err = errMoved
		}
		return j
	}
	next, c := st.Clone(), &change{}
	j.Changes = len(calls) == 0
	for i, o := range calls {
		c.maybeDone, c.overtaken, c.refused = o.MaybeDone, o.Stale, false
		changed, err := o.Do.apply(next, c)
		err = c.unsureIfResent(err)
		j.Changes = j.Changes || changed
		j.Answers[i] = ledger.Answer[struct{}]{Err: err, Refused: c.refused || errors.Is(err, ErrStaleReceipt)}
	}
	if !j.Changes {
		return j
	}
	if err := c.seal(); err != nil {
		j.Err = fmt.Errorf("%s: %w", s.name, err)
		return j
	}
	if s.q != nil { // so that a pause, change or deletion of the queue takes effect in every process immediately
		c.entry.Checks = append(c.entry.Checks, eventlog.Check{Key: defKey(s.q.name), Version: s.q.def.Load().version})
	}
	next.Writer = s.owner.newWriterID()
	next.After = "" // only a state that a purge wrote has After; next has what it stands for, because read has added it (addEarlier)
	j.Next, j.Value, j.Entry = next, next.Encode(), c.entry
	return j
}

// errMoved: the operation was sent to the shard of a key that no longer holds the queue's state.
var errMoved = errors.New("the queue's state moved to another key")

// read reads the queue's definition, unless this is a slot of the wheel, then the state, and after
// a purge what addEarlier adds. Definition and state cost one store call each, or more while the
// definition is being changed.
func (s *shard) read(ctx context.Context) (*claims.State, eventlog.KeyValue, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if s.q != nil {
		if err := s.q.redefine(ctx); err != nil {
			return nil, eventlog.KeyValue{}, err
		}
	}
	kv, err := s.owner.log.Get(ctx, s.key)
	if err != nil {
		return nil, kv, fmt.Errorf("%s: read its state: %w", s.name, err)
	}
	st, err := s.parse(kv)
	if err == nil && s.q != nil {
		err = s.owner.addEarlier(ctx, []string{s.key}, []*claims.State{st})
	}
	return st, kv, err
}

func (s *shard) parse(kv eventlog.KeyValue) (*claims.State, error) {
	if kv.Version == 0 {
		return &claims.State{}, nil
	}
	parsed, err := claims.Decode(kv.Value)
	if err != nil {
		return nil, fmt.Errorf("%s: decode the state in key %s: %w", s.name, s.key, err)
	}
	return parsed, nil
}

// refresh remembers what the key holds. While operations are on their way it does nothing: if the
// key has changed, their entry is refused, and the state is read again.
func (s *shard) refresh(kv eventlog.KeyValue) error {
	return s.Learn(kv.Version, func() (*claims.State, bool, error) {
		st, err := s.parse(kv)
		return st, err == nil && st.After == "", err // a state with After is not remembered: a purge wrote it, and only read adds what it lacks (addEarlier)
	})
}

// fresh returns the state as the store has it now: one store call.
func (s *shard) fresh(ctx context.Context) (*claims.State, error) {
	kv, err := s.owner.log.Get(ctx, s.key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return s.parse(kv)
}

// get returns the state that is remembered, and reads it if none is.
func (s *shard) get(ctx context.Context) (*claims.State, error) {
	if known := s.known(); known != nil {
		return known, nil
	}
	// An operation that changes nothing makes the shard read its state, and is answered after that.
	var seen *claims.State
	err := s.do(ctx, &op{apply: func(st *claims.State, _ *change) (bool, error) { seen = st.Clone(); return false, nil }})
	if err != nil {
		return nil, err // do not return seen: the operation may still run, and write to it
	}
	return seen, nil
}
