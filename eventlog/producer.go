package eventlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/longlock"
)

// Idempotent producers (KIP-98). A producer numbers its records per partition; the log appends each
// number once and in order. A producer's state is a key that is put in the same entry as the
// records: so state and records never differ, and every broker on the store decides the same.
//
//	key    producer/<id>/<partition>
//	value  <epoch> <first>-<last>@<base> … <first>-<last>^<back> … <base>
//
// The last field is the base offset of the newest batch, which the store appends as it commits
// (Put.AddBase). "@" gives a batch's base offset; "^" gives how far it is below the newest batch's,
// for batches of the same entry. There may be no sequences: then the epoch has no batch yet.

// sequencesKept is how many batches back a retry is recognised: Kafka's clients have at most five
// in flight.
const sequencesKept = 5

const (
	// producersMax bounds the states in memory. Other states are read from the store, with one call
	// each.
	producersMax = 50_000

	// Nothing is appended while states are read: so at most producersLoaded are read in one go,
	// producersAtOnce of them concurrently.
	producersLoaded = 64
	producersAtOnce = 16
)

type producerKey struct {
	id        int64
	partition Partition
}

const producerPrefix = "producer/"

func (k producerKey) String() string {
	return fmt.Sprintf("%s%d/%d", producerPrefix, k.id, k.partition)
}

// producerState is what the log knows of a producer in a partition. Version 0: the store knows
// nothing of it.
type producerState struct {
	asOf    uint64 // tickets up to this number were submitted before the state was read from the store: this state may refuse them
	version Version
	epoch   int16
	batches []sequenced // at most sequencesKept, the newest last
}

// sequenced is one batch's range of sequence numbers, and its base offset.
type sequenced struct {
	first, last int32
	base        Offset
	inFlush     int // 0: base is set; n > 0: this is the n-th batch of an entry that is not committed yet
}

// producers holds the states that were used recently. Only the appender's goroutine uses it.
type producers struct {
	states map[producerKey]producerState
}

func newProducers() *producers { return &producers{states: make(map[producerKey]producerState)} }

// advance is a producer's state as a flush will leave it.
type advance struct {
	key      producerKey
	previous Version       // the version of the state in the store
	next     producerState // the state after the flush
	taken    int           // how many batches the entry has so far
}

func (ps *producers) begin(key producerKey) *advance {
	state := ps.states[key]
	state.batches = append([]sequenced(nil), state.batches...)
	return &advance{key: key, next: state, previous: state.version}
}

type verdict struct {
	duplicate bool
	base      Offset // with duplicate: the base offset of the durable batch
	inFlush   bool   // it is a duplicate of a batch in the same flush
	batch     int    // with inFlush: that batch's index in the entry
}

// errAskStore: the state in memory does not suffice. Either the batch is to be refused by that
// state, but another broker may have appended batches of the producer since. Or the batch is a
// duplicate by that state, but a rewound store may have lost the first one.
var errAskStore = errors.New("the store must be asked")

// judge checks the batch of a ticket and, if it is to be appended, adds its sequence numbers to the
// state.
//
// The state in memory is enough to append: the entry checks that the store has the same. It is not
// enough to refuse a ticket that was submitted after the state was read, nor to call it a
// duplicate: then the state is read from the store first, and judge called again.
func (a *advance) judge(h batch.Header, ticket uint64) (verdict, error) {
	s := &a.next
	first, last := h.BaseSequence, lastSequence(h)
	for _, b := range s.batches {
		if h.ProducerEpoch == s.epoch && b.first == first && b.last == last {
			if b.inFlush == 0 && ticket > s.asOf {
				return verdict{}, errAskStore
			}
			return verdict{duplicate: true, base: b.base, inFlush: b.inFlush > 0, batch: b.inFlush - 1}, nil
		}
	}
	if err := s.refuses(h, a.key.partition); err != nil {
		if ticket > s.asOf {
			return verdict{}, errAskStore
		}
		return verdict{}, err
	}
	if h.ProducerEpoch != s.epoch {
		s.epoch, s.batches = h.ProducerEpoch, nil
	}
	s.version = a.previous + 1
	if a.previous == 0 {
		// The key may have been put before and deleted. If its versions were counted from 1 again,
		// one of them could be a version that another broker remembers, and that broker's check
		// would pass.
		s.version = Version(time.Now().UnixMicro())
	}
	a.taken++
	s.batches = append(s.batches, sequenced{first: first, last: last, inFlush: a.taken})
	if len(s.batches) > sequencesKept {
		s.batches = s.batches[1:]
	}
	return verdict{}, nil
}

// refuses returns why a batch may not follow the state, by the rules of KIP-98 and KIP-360; nil: it
// may. The epoch comes first, as in Kafka (ProducerAppendInfo.maybeValidateDataBatch): a state may
// have an epoch and no sequences, once what ended a transaction has raised the epoch, and then a
// late batch of the epoch before it must not be taken for the producer's first.
func (s *producerState) refuses(h batch.Header, p Partition) error {
	first := h.BaseSequence
	switch {
	case s.version == 0 && first != 0:
		return fmt.Errorf("%w: producer %d sent sequence number %d to partition %d, which has no state of this producer (the producer was silent for too long, or the topic is new); it must begin a new epoch",
			ErrUnknownProducer, h.ProducerID, first, p)
	case s.version == 0:
		return nil
	case h.ProducerEpoch < s.epoch:
		return fmt.Errorf("%w: producer %d sent epoch %d to partition %d, which has seen its epoch %d", ErrFenced, h.ProducerID, h.ProducerEpoch, p, s.epoch)
	}
	want := int32(0) // what an epoch begins with
	if n := len(s.batches); n > 0 && h.ProducerEpoch == s.epoch {
		want = addSequence(s.batches[n-1].last, 1)
	}
	if first != want {
		return fmt.Errorf("%w: producer %d sent sequence number %d of epoch %d to partition %d, expected %d", ErrOutOfOrder, h.ProducerID, first, h.ProducerEpoch, p, want)
	}
	return nil
}

func lastSequence(h batch.Header) int32 { return addSequence(h.BaseSequence, h.LastOffsetDelta) }

// addSequence adds to a sequence number; 0 follows 2^31-1.
func addSequence(s, n int32) int32 { return int32((int64(s) + int64(n)) & math.MaxInt32) }

// write returns the check and the put of the producer's entry.
func (a *advance) write(batches []Batch) ([]Check, []Put) {
	var v strings.Builder
	fmt.Fprintf(&v, "%d ", a.next.epoch)
	for _, b := range a.next.batches {
		if b.inFlush == 0 {
			fmt.Fprintf(&v, "%d-%d@%d ", b.first, b.last, b.base)
			continue
		}
		back := 0
		for _, later := range batches[b.inFlush-1 : len(batches)-1] {
			back += int(later.Records)
		}
		fmt.Fprintf(&v, "%d-%d^%d ", b.first, b.last, back)
	}
	key := a.key.String()
	return []Check{{Key: key, Version: a.previous}},
		[]Put{{Key: key, Version: a.next.version, Value: []byte(v.String()), AddBase: len(batches)}}
}

// moved stores the new state after the entry was committed, with the base offsets of its batches.
func (ps *producers) moved(a *advance, base []Offset) {
	for i := range a.next.batches {
		if b := &a.next.batches[i]; b.inFlush > 0 {
			b.base, b.inFlush = base[b.inFlush-1], 0
		}
	}
	ps.keep(a.key, a.next)
}

// load reads states from the store, with one call each, several at the same time. asOf is the
// number of the last ticket submitted before. It returns an error, or nil, for each key.
func (ps *producers) load(ctx context.Context, store Store, asOf uint64, keys []producerKey) []error {
	states, errs := make([]producerState, len(keys)), make([]error, len(keys))
	var reading errgroup.Group
	reading.SetLimit(producersAtOnce)
	for i, key := range keys {
		reading.Go(func() error {
			states[i], errs[i] = readProducer(ctx, store, key)
			return nil
		})
	}
	_ = reading.Wait()
	for i, key := range keys {
		if errs[i] == nil {
			states[i].asOf = asOf
			ps.keep(key, states[i])
		}
	}
	return errs
}

func readProducer(ctx context.Context, store Store, key producerKey) (producerState, error) {
	kv, err := Get(ctx, store, key.String())
	if err != nil || kv.Version == 0 {
		return producerState{}, err
	}
	state, err := parseProducer(string(kv.Value))
	if err != nil {
		return producerState{}, fmt.Errorf("key %s holds %q: %w", key, kv.Value, err)
	}
	state.version = kv.Version
	return state, nil
}

func parseProducer(value string) (producerState, error) {
	fields := strings.Fields(value)
	if len(fields) < 2 {
		return producerState{}, errors.New("expected an epoch, any sequences and a base offset")
	}
	epoch, err := strconv.ParseInt(fields[0], 10, 16)
	if err != nil {
		return producerState{}, fmt.Errorf("epoch: %w", err)
	}
	base, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
	if err != nil {
		return producerState{}, fmt.Errorf("base offset: %w", err)
	}
	state := producerState{epoch: int16(epoch)}
	for _, f := range fields[1 : len(fields)-1] {
		var (
			b    sequenced
			kind rune
			at   int64
		)
		if _, err := fmt.Sscanf(f, "%d-%d%c%d", &b.first, &b.last, &kind, &at); err != nil || kind != '@' && kind != '^' {
			return producerState{}, fmt.Errorf("sequences %q: expected first-last@base or first-last^back", f)
		}
		b.base = Offset(at)
		if kind == '^' {
			b.base = Offset(base - at)
		}
		state.batches = append(state.batches, b)
	}
	return state, nil
}

func (ps *producers) keep(key producerKey, s producerState) {
	if _, there := ps.states[key]; !there && len(ps.states) >= producersMax {
		for k := range ps.states { // any one will do
			delete(ps.states, k)
			break
		}
	}
	ps.states[key] = s
}

func (ps *producers) forget(key producerKey) { delete(ps.states, key) }

// Producer is the state of an idempotent producer in a partition.
type Producer struct {
	ID           int64
	Epoch        int16
	LastSequence int32           // -1: the epoch has no batch yet, as Kafka's RecordBatch.NO_SEQUENCE
	Idle         time.Duration   // how long ago it last wrote
	Batches      []ProducerBatch // the newest last; none if the epoch has no batch yet
}

// ProducerBatch is a batch of an idempotent producer: its first and last sequence number, and its
// base offset.
type ProducerBatch struct {
	First, Last int32
	Base        Offset
}

// ProducersPrefix begins the keys that ProducerIn reads.
const ProducersPrefix = producerPrefix

// ProducerIn reads a key under ProducersPrefix.
func ProducerIn(kv KeyValue) (Partition, Producer, error) {
	var key producerKey
	if _, err := fmt.Sscanf(kv.Key, producerPrefix+"%d/%d", &key.id, &key.partition); err != nil {
		return 0, Producer{}, fmt.Errorf("key %q: %w", kv.Key, err)
	}
	state, err := parseProducer(string(kv.Value))
	if err != nil {
		return 0, Producer{}, fmt.Errorf("key %s holds %q: %w", kv.Key, kv.Value, err)
	}
	p := Producer{ID: key.id, Epoch: state.epoch, LastSequence: -1, Idle: kv.Age}
	for _, b := range state.batches {
		p.LastSequence = b.last
		p.Batches = append(p.Batches, ProducerBatch{b.first, b.last, b.base})
	}
	return key.partition, p, nil
}

// Producers visits the idempotent producers of all partitions, until visit returns an error. It
// reads the states of all producers, with one store call for each page, so it is for tools, not for
// hot paths.
func (l *Log) Producers(ctx context.Context, visit func(Partition, Producer) error) error {
	return l.ListAll(ctx, producerPrefix, func(kv KeyValue) error {
		p, producer, err := ProducerIn(kv)
		if err != nil {
			return err
		}
		return visit(p, producer)
	})
}

// producerIDs assigns producer ids from a block that this process reserved in the store.
type producerIDs struct {
	mu        longlock.Mutex // guards next and end, held while a new block is reserved
	next, end int64
}

const (
	producerIDsKey   = "counter/producer"
	producerIDsBlock = 1000
)

// NewProducerID returns a producer id that no other caller ever gets, from this process or any
// other on the store. One call in a thousand makes two store calls.
func (l *Log) NewProducerID(ctx context.Context) (int64, error) {
	ids := &l.ids
	ids.mu.Lock()
	defer ids.mu.Unlock()
	for ids.next == ids.end {
		kv, err := l.Get(ctx, producerIDsKey)
		if err != nil {
			return 0, fmt.Errorf("new producer id: %w", err)
		}
		block := max(kv.Version, Version(epochNumbers(l.LeaderEpoch())))
		start := int64(block) * producerIDsBlock
		_, err = l.Append(ctx, Entry{
			Checks: []Check{{Key: producerIDsKey, Version: kv.Version}},
			Puts:   []Put{{Key: producerIDsKey, Version: block + 1, Value: strconv.AppendInt(nil, start+producerIDsBlock, 10)}},
		})
		switch {
		case errors.Is(err, ErrStale):
			continue // another process took this block
		case err != nil:
			return 0, fmt.Errorf("new producer id: %w", err)
		}
		ids.next, ids.end = start, start+producerIDsBlock
	}
	ids.next++
	return ids.next - 1, nil
}
