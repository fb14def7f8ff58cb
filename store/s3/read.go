package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
)

const (
	getsMax  = 8        // gets of one read in parallel
	gapMax   = 64 << 10 // bytes between two batches that are read needlessly rather than with another get
	pieceMax = 16 << 20 // bytes of one get, except for one larger batch
)

// Read implements eventlog.Store. It costs a get of the next commit, and one for each piece of an
// object.
func (s *Store) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	for attempt := 0; ; attempt++ {
		slices, lost, err := s.read(ctx, spans, maxBytes, attempt > 0)
		if err != nil {
			return nil, fmt.Errorf("read: %w", err)
		}
		if !lost || attempt > 0 {
			return slices, nil
		}
		// An object is gone: if this process was suspended for long, what it knew is too old. If an
		// object is still missing in the second attempt, that is damage.
	}
}

// read is one attempt of Read. lost: an object is missing. again: an earlier attempt found that, so
// read first makes sure that the state is not older than the newest snapshot.
func (s *Store) read(ctx context.Context, spans []eventlog.Span, maxBytes int, again bool) (_ []eventlog.Slice, lost bool, _ error) {
	if err := alive(ctx); err != nil {
		return nil, false, err
	}
	if err := s.fresh(ctx); err != nil {
		return nil, false, err
	}
	if again {
		if err := s.rebased(ctx); err != nil {
			return nil, false, err
		}
	}
	s.mu.Lock()
	if s.rewound(s.told) {
		s.mu.Unlock()
		return nil, false, eventlog.ErrRewound
	}
	answer := make([]eventlog.Slice, len(spans))
	wanted := make([][]held, len(spans))
	places := make([][]source, len(spans))
	budget := eventlog.NewBudget(maxBytes)
	for i, span := range spans {
		p := s.st.partitions[span.Partition]
		if p == nil {
			answer[i] = eventlog.Slice{Bounds: eventlog.Bounds{Partition: span.Partition}, Err: eventlog.ErrNoPartition}
			continue
		}
		answer[i].Bounds = p.bounds(span.Partition)
		if span.MaxBytes <= 0 || span.From < p.first || span.From >= p.next {
			continue
		}
		budget.Begin(span.MaxBytes)
		for _, h := range p.held[p.index(span.From):] {
			if !budget.Take(h.size) {
				break
			}
			wanted[i] = append(wanted[i], h)
			places[i] = append(places[i], source{h.object.key, h.at, h.size})
		}
	}
	s.mu.Unlock()

	content, err := s.contents(ctx, slices.Concat(places...), getsMax)
	if err != nil {
		return nil, false, failed(err)
	}
	for i, span := range spans {
		for n, h := range wanted[i] {
			got := content[places[i][n]]
			if got.err == nil && crc32.Checksum(got.bytes, castagnoli) != h.crc {
				got.err = fmt.Errorf("%w: %s: the CRC-32C of its bytes [%d, %d) is %08x, want %08x", errDamaged, h.object.key, h.at, h.at+int64(h.size), crc32.Checksum(got.bytes, castagnoli), h.crc)
			}
			if got.err == nil {
				answer[i].Batches = append(answer[i].Batches, eventlog.Placed{Base: h.base, Batch: eventlog.Batch{
					Partition: span.Partition, Records: h.records, MaxTime: h.maxTime, Bytes: bytes.Clone(got.bytes)}})
				continue
			}
			lost = lost || errors.Is(got.err, errMissing)
			if n == 0 {
				answer[i].Err = &eventlog.DamagedError{Partition: span.Partition, From: max(h.base, span.From), Next: h.end(), Raw: got.bytes, Err: got.err}
			}
			break
		}
	}
	return answer, lost, nil
}

// rebased makes sure that the state is not older than the newest snapshot, and reads the commits
// that follow.
func (s *Store) rebased(ctx context.Context) error {
	if err := s.turn.take(ctx); err != nil {
		return err
	}
	defer s.turn.give()
	if err := s.rebase(ctx); err != nil {
		return failed(err)
	}
	return failed(s.advance(ctx))
}

// source is where a batch lies.
type source struct {
	key  string
	at   int64
	size int
}

type content struct {
	bytes []byte // shares the memory of the piece that was read
	err   error  // errMissing or errDamaged
}

// contents reads what lies at places. gets is how many requests run in parallel. Neighbours are
// read in one piece. What is wrong with an object is in its content; the error that contents
// returns says nothing about the objects.
func (s *Store) contents(ctx context.Context, places []source, gets int) (map[source]content, error) {
	places = slices.Clone(places)
	slices.SortFunc(places, func(a, b source) int {
		if c := strings.Compare(a.key, b.key); c != 0 {
			return c
		}
		return int(min(max(a.at-b.at, -1), 1))
	})
	places = slices.Compact(places)
	var pieces [][]source
	for _, p := range places {
		if n := len(pieces) - 1; n >= 0 {
			piece := pieces[n]
			first, last := piece[0], piece[len(piece)-1]
			end := last.at + int64(last.size)
			if first.key == p.key && p.at-end <= gapMax && p.at+int64(p.size)-first.at <= pieceMax {
				pieces[n] = append(piece, p)
				continue
			}
		}
		pieces = append(pieces, []source{p})
	}
	read := make([][]content, len(pieces))
	var all errgroup.Group
	all.SetLimit(gets)
	for i, piece := range pieces {
		all.Go(func() (err error) {
			read[i], err = s.piece(ctx, piece)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	found := map[source]content{}
	for i, piece := range pieces {
		for n, p := range piece {
			found[p] = read[i][n]
		}
	}
	return found, nil
}

func (s *Store) piece(ctx context.Context, piece []source) ([]content, error) {
	first, last := piece[0], piece[len(piece)-1]
	size := last.at + int64(last.size) - first.at
	got, _, err := s.bucket.get(ctx, first.key, first.at, size)
	if errors.Is(err, errBeyond) {
		got, err = nil, nil
	}
	if err != nil && !errors.Is(err, errMissing) {
		return nil, err
	}
	if err == nil && int64(len(got)) > size {
		got = got[:size]
	}
	all := make([]content, len(piece))
	for i, p := range piece {
		from := p.at - first.at
		switch {
		case err != nil:
			all[i].err = fmt.Errorf("%w: %s, which holds a batch: %s", err, p.key, lost)
		case int64(len(got)) < from+int64(p.size):
			all[i].err = fmt.Errorf("%w: %s is cut: it ends at %d, and a batch lies at [%d, %d)", errDamaged, p.key, first.at+int64(len(got)), p.at, p.at+int64(p.size))
		default:
			all[i].bytes = got[from : from+int64(p.size)]
		}
	}
	return all, nil
}

// Changes implements eventlog.Store. It asks the server for other processes' commits, but not again
// until poll (an option of the URL) has passed.
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
	recent := since != eventlog.Mark{} && time.Since(s.asked) < s.poll
	s.mu.Unlock()
	if !recent {
		if err := s.fresh(ctx); err != nil {
			return nil, since, fmt.Errorf("moved: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rewound(since.Incarnation) {
		return nil, since, fmt.Errorf("moved: %w", eventlog.ErrRewound)
	}
	s.told = s.incarnation()
	var moved []eventlog.Bounds
	for id, p := range s.st.partitions {
		if p.moved > seen {
			moved = append(moved, p.bounds(id))
		}
	}
	return moved, eventlog.Mark{Incarnation: s.told, Place: strconv.FormatInt(s.st.number, 10)}, nil
}

// current calls do with a state that has all commits that were there when current was called. do
// may not change or keep the state.
func (s *Store) current(ctx context.Context, do func(*state) error) error {
	if err := alive(ctx); err != nil {
		return err
	}
	if err := s.fresh(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rewound(s.told) {
		return eventlog.ErrRewound
	}
	return do(s.st)
}

// Seek implements eventlog.Store.
func (s *Store) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	found := make([]eventlog.Found, len(goals))
	err := s.current(ctx, func(st *state) error {
		for i, goal := range goals {
			if p := st.partitions[goal.Partition]; p != nil {
				found[i].At = p.seek(goal)
			} else {
				found[i].Err = eventlog.ErrNoPartition
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("seek: %w", err)
	}
	return found, nil
}

func (p *partition) seek(goal eventlog.Goal) eventlog.Offset {
	if goal.Bytes > 0 {
		after := int64(0)
		for i := len(p.held) - 1; i >= 0; i-- {
			if after += int64(p.held[i].size); after >= goal.Bytes {
				return max(p.first, p.held[i].base)
			}
		}
		return p.first
	}
	from := max(p.first, goal.From)
	for _, h := range p.held[p.index(from):] {
		if h.maxTime >= goal.At {
			return max(from, h.base)
		}
	}
	return p.next
}

// List implements eventlog.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) (list []eventlog.KeyValue, err error) {
	if s.alone && s.clock.old() { // a process that is not alone asks the server in any case: see fresh
		s.askTime(ctx)
	}
	err = s.current(ctx, func(st *state) error {
		now, latest := s.clock.now()
		st.keys.Ascend(max(prefix, after), func(key string, v value) bool {
			if !strings.HasPrefix(key, prefix) || len(list) >= limit {
				return key < prefix
			}
			if key > after {
				list = append(list, v.read(key, now, latest))
			}
			return true
		})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list keys under %q: %w", prefix, err)
	}
	return list, nil
}

// Get implements eventlog.Store.
func (s *Store) Get(ctx context.Context, keys []string, maxBytes int) (found []eventlog.KeyValue, err error) {
	if s.alone && s.clock.old() { // as List does
		s.askTime(ctx)
	}
	err = s.current(ctx, func(st *state) error {
		now, latest := s.clock.now()
		for i, key := range keys {
			v, is := st.keys.Get(key)
			if maxBytes -= len(v.bytes); i > 0 && maxBytes < 0 {
				return nil
			}
			kv := eventlog.KeyValue{Key: key}
			if is {
				kv = v.read(key, now, latest)
			}
			found = append(found, kv)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %d keys: %w", len(keys), err)
	}
	return found, nil
}

// read returns the value of a key for a reader, by the server's clock.
func (v value) read(key string, now, latest eventlog.Timestamp) eventlog.KeyValue {
	return eventlog.KeyValue{Key: key, Version: v.version, Value: bytes.Clone(v.bytes), Age: max(time.Duration(now-v.putAt)*time.Millisecond, 0), Now: now, NowMax: latest}
}
