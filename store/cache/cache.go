// Package cache is a store around another store: it keeps batches that were read in local files, so
// that readers of history are served from the machine's page cache, and not by the database.
//
// Each read asks the store below for the bounds, which also checks the incarnation, and for the
// versions of the keys that compaction puts. Both calls run at the same time. Then whole batches
// come from the files, and what is missing from the store below. See
// docs/decisions/a-cache-asks-for-the-bounds-first.md.
package cache

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/longlock"
)

const (
	// DefaultBytes is the space for the files if Options.Bytes is 0.
	DefaultBytes = 1 << 30
	// leastBytes is the least space for the files.
	leastBytes = 1 << 20
	// blockBytes is the size of a block's batches if Options.BlockBytes is 0. A block has at least
	// half of that, unless it fills a gap between blocks.
	blockBytes = 1 << 20
	// attempts bounds how often a read begins again because the store changed meanwhile. After that
	// the store below answers it alone.
	attempts = 3
	// keysBytes bounds the values of partitions' keys that one call returns.
	keysBytes = 4 << 20
)

// Options are the settings of a cache.
type Options struct {
	// Dir is the directory of the files. It is created, and belongs to one process at a time. Files
	// of others are left alone.
	Dir string
	// Bytes bounds the space of the files, in whole blocks of the file system. 0: DefaultBytes.
	Bytes int64
	// Store names the store below, so that files of another store are never used. Empty: the files
	// are used by this Store value only, and the cache is empty when it is opened again. That is
	// right for a store that may be put back to an earlier state, while no process runs, without a
	// new incarnation.
	Store string
	// Check returns why a batch must not be kept, for example because it is damaged. nil: all are
	// kept.
	Check func(eventlog.Placed) error
	// BlockBytes is the size of a block's batches. 0: 1 MiB.
	BlockBytes int
	// Logger gets what no caller is told. Default slog.Default().
	Logger *slog.Logger
}

// Store is a cache. Everything but Read and Changes is done by the store below.
type Store struct {
	eventlog.Store
	opts  Options
	disk  *disk
	stats counters

	moved longlock.Mutex       // held while Changes asks for the incarnation
	told  atomic.Pointer[told] // what Changes returned last; nil: unknown, and nothing is cached

	mu      sync.Mutex // guards flights and closed
	flights map[flightKey]*flight
	closed  bool
	running sync.WaitGroup // reads of the store below that no caller ends
}

// told is an incarnation that Changes returned. Each answer of Changes has a value of its own, so
// that pointers differ if Changes was called in between.
type told struct{ identity identity }

// identity is a store in an incarnation, as a hash.
type identity [16]byte

// Open opens a cache in front of a store, which belongs to the cache from then on: Close closes it.
// If Open fails, the store stays open.
func Open(below eventlog.Store, opts Options) (*Store, error) {
	opts.Bytes, opts.BlockBytes = cmp.Or(opts.Bytes, DefaultBytes), cmp.Or(opts.BlockBytes, blockBytes)
	if opts.Bytes < int64(min(leastBytes, 4*opts.BlockBytes)) {
		return nil, fmt.Errorf("open the cache in %s: %d bytes are too few: it needs at least %d", opts.Dir, opts.Bytes, min(leastBytes, 4*opts.BlockBytes))
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Store == "" {
		opts.Store = "unnamed " + rand.Text()
	}
	s := &Store{Store: below, opts: opts, flights: map[flightKey]*flight{}}
	var err error
	if s.disk, err = openDisk(opts, &s.stats); err != nil {
		return nil, fmt.Errorf("open the cache in %s: %w", opts.Dir, err)
	}
	return s, nil
}

// Unwrap implements eventlog.Wrapper.
func (s *Store) Unwrap() eventlog.Store { return s.Store }

// Close waits for reads in progress, and closes the store below. The files stay.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
	err := s.Store.Close()
	s.disk.close()
	return err
}

// Changes implements eventlog.Store. With the zero mark it learns the incarnation.
func (s *Store) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	if since != (eventlog.Mark{}) {
		return s.Store.Changes(ctx, since)
	}
	s.moved.Lock()
	defer s.moved.Unlock()
	s.told.Store(nil) // until it is known again, reads pass the cache by
	bounds, mark, err := s.Store.Changes(ctx, since)
	if err == nil {
		s.told.Store(&told{s.identify(mark.Incarnation)})
	}
	return bounds, mark, err
}

func (s *Store) identify(in eventlog.Incarnation) (id identity) {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(fmt.Appendf(nil, "%d:%s%d:%s", len(s.opts.Store), s.opts.Store, len(in.Store), in.Store), uint64(in.Epoch)))
	copy(id[:], sum[:])
	return id
}

// Read implements eventlog.Store. It costs one trip if the files have everything: for the bounds
// and, at the same time, for the keys of compaction. What is missing costs two more: the batches,
// and the keys again.
func (s *Store) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	wants := maxBytes > 0 && slices.ContainsFunc(spans, func(span eventlog.Span) bool { return span.MaxBytes > 0 })
	for n := 0; wants && n < attempts; n++ {
		told := s.told.Load()
		if told == nil {
			break
		}
		answer, done, err := s.read(ctx, told, spans, maxBytes)
		if _, sharded := eventlog.As[eventlog.Sharded](s.Store); sharded && err != nil && !errors.Is(err, eventlog.ErrRewound) {
			break // a shard that has keys of compaction may not answer, and others have the spans
		}
		if err != nil {
			return nil, err
		}
		if done && s.told.Load() == told { // so the bounds were checked against this incarnation
			return answer, nil
		}
	}
	return s.Store.Read(ctx, spans, maxBytes)
}

// read answers from the files and the store below. It reports false if the store changed meanwhile,
// or if the store below has to answer for another reason.
func (s *Store) read(ctx context.Context, told *told, spans []eventlog.Span, maxBytes int) (answer []eventlog.Slice, done bool, err error) {
	answer, versions, err := s.look(ctx, spans)
	if err != nil {
		return nil, false, err
	}
	gatherings := make([]*gathering, len(spans))
	for i, span := range spans {
		at := place{told.identity, span.Partition}
		bounds := answer[i].Bounds
		if answer[i].Err != nil {
			if errors.Is(answer[i].Err, eventlog.ErrNoPartition) {
				s.disk.forget(at)
			}
			continue
		}
		s.disk.keepWithin(at, bounds)
		if span.MaxBytes > 0 && span.From >= bounds.First && span.From < bounds.Next {
			gatherings[i] = &gathering{place: at, span: span, bounds: bounds, version: versions[span.Partition], at: span.From}
		}
	}
	for {
		missing := s.gather(gatherings, maxBytes)
		if len(missing) == 0 {
			break
		}
		if ok, err := s.fill(ctx, told, missing); !ok || err != nil {
			return nil, false, err
		}
	}
	budget := eventlog.NewBudget(maxBytes)
	first := true
	for i, g := range gatherings {
		if g == nil {
			continue
		}
		budget.Begin(g.span.MaxBytes)
		n := 0
		for n < len(g.batches) && budget.Take(len(g.batches[n].Bytes)) {
			n++
		}
		answer[i].Batches, answer[i].Err = g.batches[:n:n], g.err
		if first && n == 0 && g.err == nil {
			return nil, false, nil // the batch was trimmed meanwhile, or is too large for the read that others began; an empty answer would mean that it is missing in the store
		}
		first = false
	}
	return answer, true, nil
}

// look asks the store below for the bounds of the spans' partitions, and at the same time for the
// versions of their keys of compaction.
func (s *Store) look(ctx context.Context, spans []eventlog.Span) (bounds []eventlog.Slice, versions map[eventlog.Partition]eventlog.Version, err error) {
	only := slices.Clone(spans)
	var partitions []eventlog.Partition
	for i := range only {
		if only[i].MaxBytes > 0 {
			partitions = append(partitions, only[i].Partition)
		}
		only[i].MaxBytes = 0
	}
	var both errgroup.Group
	both.Go(func() (err error) {
		versions, err = s.versions(ctx, partitions)
		return err
	})
	bounds, err = s.Store.Read(ctx, only, 0)
	if failed := both.Wait(); err == nil {
		err = failed
	}
	return bounds, versions, err
}

// versions returns the versions of the keys that are put when batches of partitions are replaced;
// 0: there is no key.
func (s *Store) versions(ctx context.Context, partitions []eventlog.Partition) (map[eventlog.Partition]eventlog.Version, error) {
	keys := make([]string, len(partitions))
	for i, p := range partitions {
		keys[i] = eventlog.ReplacedKey(p)
	}
	found := make(map[eventlog.Partition]eventlog.Version)
	for len(partitions) > 0 {
		kvs, err := s.Store.Get(ctx, keys, keysBytes)
		if err != nil {
			return nil, err
		}
		for i, kv := range kvs {
			found[partitions[i]] = kv.Version
		}
		keys, partitions = keys[len(kvs):], partitions[len(kvs):]
	}
	return found, nil
}

// gathering is what a read has for one span so far.
type gathering struct {
	place   place
	span    eventlog.Span
	bounds  eventlog.Bounds
	version eventlog.Version // of the key of compaction, when the read began
	batches []eventlog.Placed
	bytes   int             // of batches
	at      eventlog.Offset // where the next batch begins; at first an offset inside it
	ended   bool            // no more batches are added
	err     error           // why there are no batches; nil: nothing failed
}

// missing is what a span lacks.
type missing struct {
	*gathering
	room  int  // how many bytes of batches the span may still get
	first bool // the next batch is taken whatever its size
}

// gather adds what the files have, and returns what must be read from the store below.
func (s *Store) gather(gatherings []*gathering, maxBytes int) (lacking []missing) {
	left, first := maxBytes, true
	for _, g := range gatherings {
		if g == nil {
			continue
		}
		room := min(g.span.MaxBytes, left)
		for !g.ended && (g.bytes < room || first && g.bytes == 0) {
			m := missing{g, room - g.bytes, first && g.bytes == 0}
			batches, more, hit := s.disk.read(g.place, g.version, g.at, m.room, m.first)
			if !hit {
				lacking = append(lacking, m)
				break
			}
			s.stats.hits.Add(1)
			g.add(batches, more, &s.stats.hitBytes)
		}
		switch {
		case len(lacking) > 0 && lacking[len(lacking)-1].gathering == g:
			left, first = left-room, false // as much as it may take
		case len(g.batches) > 0:
			left, first = left-g.bytes, false
		}
		left = max(left, 0)
	}
	return lacking
}

// add adds batches. more is false if the batch after them did not fit.
func (g *gathering) add(batches []eventlog.Placed, more bool, count *atomic.Int64) {
	for _, b := range batches {
		if b.Base >= g.bounds.Next {
			more = false // it was appended after the bounds were read
			break
		}
		g.batches = append(g.batches, b)
		g.bytes += len(b.Bytes)
		g.at = b.End()
		count.Add(int64(len(b.Bytes)))
	}
	g.ended = !more || len(batches) == 0 || g.at >= g.bounds.Next
}

// fitting returns how many of the batches fit, and whether all do.
func fitting(sizes func(i int) int, n, room int, first bool) (fit int, all bool) {
	for i := range n {
		size := sizes(i)
		if size > room && !(first && i == 0) {
			return i, false
		}
		room -= size
	}
	return n, true
}
