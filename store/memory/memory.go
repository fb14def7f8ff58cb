// Package memory is the store that forgets: everything is in the memory of this process, and ends
// with it.
//
// It is the model of the contract in eventlog.Store, small enough to be checked by reading. The
// other stores are tested against it.
package memory

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// Store keeps batches and keyed state in memory.
type Store struct {
	*content
	told eventlog.Incarnation // guarded by content.mu
}

// content is what the Stores of several processes share.
type content struct {
	mu         sync.Mutex // guards all below
	partitions map[eventlog.Partition]*partition
	state      map[string]value
	tick       int64 // counts changes of partitions; a mark's place is a tick
	life       int64 // counts restored backups
}

type partition struct {
	first, next eventlog.Offset
	batches     []eventlog.Placed // those with offsets from first on, in order; the first batch may begin below
	bytes       int64             // of batches
	moved       int64             // the tick of the last change
}

type value struct {
	version eventlog.Version
	bytes   []byte
	putAt   time.Time
}

var _ eventlog.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	return &Store{content: &content{partitions: map[eventlog.Partition]*partition{}, state: map[string]value{}}}
}

// Again returns the store as another process would open it.
func (s *Store) Again() *Store { return &Store{content: s.content} }

// Snapshot returns a Store that stays in the incarnation that s is in now, as a call does that was
// sent and has not arrived.
func (s *Store) Snapshot() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Store{content: s.content, told: s.told}
}

// Commit implements eventlog.Store.
func (s *Store) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rewound(s.told) {
		return nil, fmt.Errorf("commit: %w", eventlog.ErrRewound)
	}
	for _, entry := range flush {
		for _, r := range entry.Replaces {
			if err := r.Check(); err != nil {
				return nil, fmt.Errorf("commit: %w", err)
			}
		}
	}
	s.tick++
	outcomes := make([]eventlog.Outcome, len(flush))
	for i, entry := range flush {
		if err, _ := entry.Refusal(s.content, nil); err != nil {
			outcomes[i].Err = err
			continue
		}
		outcomes[i].Base = s.apply(entry)
	}
	return outcomes, nil
}

// Version implements eventlog.Content.
func (c *content) Version(key string) (eventlog.Version, error) { return c.state[key].version, nil }

// Exists implements eventlog.Content.
func (c *content) Exists(id eventlog.Partition) (bool, error) { return c.partitions[id] != nil, nil }

// Holds implements eventlog.Content.
func (c *content) Holds(r eventlog.Replace) (bool, error) {
	_, _, whole := c.partitions[r.Partition].span(r)
	return whole, nil
}

func (s *Store) apply(entry eventlog.Entry) []eventlog.Offset {
	base := make([]eventlog.Offset, len(entry.Batches))
	for i, b := range entry.Batches {
		p := s.partitions[b.Partition]
		if b.Records == 0 {
			if p == nil {
				s.partitions[b.Partition] = &partition{moved: s.tick}
			}
			continue
		}
		base[i] = p.next
		b.Bytes = bytes.Clone(b.Bytes)
		p.batches = append(p.batches, eventlog.Placed{Base: p.next, Batch: b})
		p.next += eventlog.Offset(b.Records)
		p.bytes += int64(len(b.Bytes))
		p.moved = s.tick
	}
	for _, put := range entry.Puts {
		if put.Value == nil {
			delete(s.state, put.Key)
			continue
		}
		s.state[put.Key] = value{version: put.Version, bytes: bytes.Clone(put.Stored(base)), putAt: time.Now()}
	}
	for _, r := range entry.Replaces {
		s.partitions[r.Partition].replace(r)
		s.partitions[r.Partition].moved = s.tick
	}
	for _, id := range entry.Forgets {
		delete(s.partitions, id)
	}
	return base
}

// span returns which batches, [first, end), hold the offsets of a replacement. It reports false if
// they do not hold exactly these, or were trimmed.
func (p *partition) span(r eventlog.Replace) (first, end int, whole bool) {
	first = p.index(r.From)
	end = first
	for end < len(p.batches) && p.batches[end].Base < r.To {
		end++
	}
	if first == end || r.From < p.first {
		return 0, 0, false
	}
	last := p.batches[end-1]
	return first, end, p.batches[first].Base == r.From && last.End() == r.To
}

func (p *partition) replace(r eventlog.Replace) {
	first, end, _ := p.span(r)
	for _, b := range p.batches[first:end] {
		p.bytes -= int64(len(b.Bytes))
	}
	var placed []eventlog.Placed
	at := r.From
	for _, b := range r.Batches {
		b.Bytes = bytes.Clone(b.Bytes)
		placed = append(placed, eventlog.Placed{Base: at, Batch: b})
		p.bytes += int64(len(b.Bytes))
		at += eventlog.Offset(b.Records)
	}
	p.batches = slices.Concat(p.batches[:first], placed, p.batches[end:])
}

// Read implements eventlog.Store.
func (s *Store) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rewound(s.told) {
		return nil, fmt.Errorf("read: %w", eventlog.ErrRewound)
	}
	slices := make([]eventlog.Slice, len(spans))
	budget := eventlog.NewBudget(maxBytes)
	for i, span := range spans {
		slices[i] = s.slice(span, &budget)
	}
	return slices, nil
}

func (s *Store) slice(span eventlog.Span, budget *eventlog.Budget) eventlog.Slice {
	p := s.partitions[span.Partition]
	if p == nil {
		return eventlog.Slice{Bounds: eventlog.Bounds{Partition: span.Partition}, Err: eventlog.ErrNoPartition}
	}
	slice := eventlog.Slice{Bounds: p.bounds(span.Partition)}
	if span.MaxBytes <= 0 || span.From < p.first || span.From >= p.next {
		return slice
	}
	budget.Begin(span.MaxBytes)
	for _, b := range p.batches[p.index(span.From):] {
		if !budget.Take(len(b.Bytes)) {
			break
		}
		b.Bytes = bytes.Clone(b.Bytes)
		slice.Batches = append(slice.Batches, b)
	}
	return slice
}

// Changes implements eventlog.Store.
func (s *Store) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	if err := alive(ctx); err != nil {
		return nil, since, fmt.Errorf("moved: %w", err)
	}
	seen := int64(-1)
	if since != (eventlog.Mark{}) {
		var err error
		if seen, err = strconv.ParseInt(since.Place, 10, 64); err != nil {
			return nil, since, fmt.Errorf("moved since %+v: this is not a mark of this store", since)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rewound(since.Incarnation) {
		return nil, since, fmt.Errorf("moved: %w", eventlog.ErrRewound)
	}
	s.told = s.incarnation()
	var moved []eventlog.Bounds
	for id, p := range s.partitions {
		if p.moved > seen {
			moved = append(moved, p.bounds(id))
		}
	}
	return moved, eventlog.Mark{Incarnation: s.told, Place: strconv.FormatInt(s.tick, 10)}, nil
}

// Seek implements eventlog.Store.
func (s *Store) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("seek: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rewound(s.told) {
		return nil, fmt.Errorf("seek: %w", eventlog.ErrRewound)
	}
	found := make([]eventlog.Found, len(goals))
	for i, goal := range goals {
		if p := s.partitions[goal.Partition]; p != nil {
			found[i].At = p.seek(goal)
		} else {
			found[i].Err = eventlog.ErrNoPartition
		}
	}
	return found, nil
}

func (p *partition) seek(goal eventlog.Goal) eventlog.Offset {
	if goal.Bytes > 0 {
		behind := int64(0)
		for i := len(p.batches) - 1; i >= 0; i-- {
			if behind += int64(len(p.batches[i].Bytes)); behind >= goal.Bytes {
				return max(p.first, p.batches[i].Base)
			}
		}
		return p.first
	}
	from := max(p.first, goal.From)
	for _, b := range p.batches[p.index(from):] {
		if b.MaxTime >= goal.At {
			return max(from, b.Base)
		}
	}
	return p.next
}

// Trim implements eventlog.Store.
func (s *Store) Trim(ctx context.Context, trims []eventlog.Trim) ([]error, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("trim %d partitions: %w", len(trims), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rewound(s.told) {
		return nil, fmt.Errorf("trim %d partitions: %w", len(trims), eventlog.ErrRewound)
	}
	s.tick++
	for _, t := range trims {
		if p := s.partitions[t.Partition]; p != nil && p.trim(t.Before) {
			p.moved = s.tick
		}
	}
	return make([]error, len(trims)), nil
}

// trim reports whether it removed anything.
func (p *partition) trim(before eventlog.Offset) bool {
	first := max(p.first, min(before, p.next))
	if first == p.first {
		return false
	}
	p.first = first
	gone := p.index(p.first)
	for _, b := range p.batches[:gone] {
		p.bytes -= int64(len(b.Bytes))
	}
	p.batches = slices.Clone(p.batches[gone:]) // frees the old array
	return true
}

// List implements eventlog.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("list keys under %q: %w", prefix, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rewound(s.told) {
		return nil, fmt.Errorf("list keys under %q: %w", prefix, eventlog.ErrRewound)
	}
	var list []eventlog.KeyValue
	for key, v := range s.state {
		if strings.HasPrefix(key, prefix) && key > after {
			list = append(list, v.read(key))
		}
	}
	slices.SortFunc(list, func(a, b eventlog.KeyValue) int { return strings.Compare(a.Key, b.Key) })
	return list[:min(len(list), max(limit, 0))], nil
}

// Get implements eventlog.Store.
func (s *Store) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("read %d keys: %w", len(keys), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rewound(s.told) {
		return nil, fmt.Errorf("read %d keys: %w", len(keys), eventlog.ErrRewound)
	}
	var found []eventlog.KeyValue
	for i, key := range keys {
		v, is := s.state[key]
		if maxBytes -= len(v.bytes); i > 0 && maxBytes < 0 {
			break
		}
		kv := eventlog.KeyValue{Key: key}
		if is {
			kv = v.read(key)
		}
		found = append(found, kv)
	}
	return found, nil
}

// read returns the value of a key for a reader.
func (v value) read(key string) eventlog.KeyValue {
	return eventlog.KeyValue{Key: key, Version: v.version, Value: bytes.Clone(v.bytes), Age: time.Since(v.putAt), Now: eventlog.Timestamp(time.Now().UnixMilli())}
}

// incarnation returns the present incarnation.
func (s *Store) incarnation() eventlog.Incarnation {
	return eventlog.Incarnation{Store: "life " + strconv.FormatInt(s.life, 10), Epoch: s.state[eventlog.EpochKey].version}
}

// rewound reports whether an incarnation that Changes returned (told) is over. The zero incarnation
// never is.
func (s *Store) rewound(told eventlog.Incarnation) bool {
	return told != eventlog.Incarnation{} && told != s.incarnation()
}

// Backup copies what the store holds, and returns a function that puts it back, for tests. After a
// silent restore, the store does not notice that it was rewound: only its bounds show what was
// lost.
func (s *Store) Backup() (restore func(silently bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	copied := func(of map[eventlog.Partition]*partition) map[eventlog.Partition]*partition {
		all := make(map[eventlog.Partition]*partition, len(of))
		for id, p := range of {
			was := *p
			was.batches = slices.Clone(p.batches)
			all[id] = &was
		}
		return all
	}
	partitions, state := copied(s.partitions), maps.Clone(s.state)
	return func(silently bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tick++
		s.partitions, s.state = copied(partitions), maps.Clone(state)
		for _, p := range s.partitions {
			p.moved = s.tick
		}
		if !silently {
			s.life++
		}
	}
}

// Close implements eventlog.Store. What the store holds stays readable.
func (s *Store) Close() error { return nil }

// index finds the batch that holds an offset: the first that ends above it.
func (p *partition) index(at eventlog.Offset) int {
	i, _ := slices.BinarySearchFunc(p.batches, at, func(b eventlog.Placed, at eventlog.Offset) int {
		if b.End() <= at {
			return -1
		}
		return 1
	})
	return i
}

func (p *partition) bounds(id eventlog.Partition) eventlog.Bounds {
	return eventlog.Bounds{Partition: id, First: p.first, Next: p.next, Bytes: p.bytes}
}

// alive returns an error if the caller has given up already.
func alive(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
	}
	return nil
}
