package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
)

const (
	// snapshotEvery is after how many commits a process that commits writes a snapshot.
	snapshotEvery = 500
	// compactMin is how many commit objects are gathered into segments at least.
	compactMin = 64
	// segmentMax bounds the batches of a segment, and what a compaction holds in memory.
	segmentMax = 32 << 20
	// gatherMax is how large an object may be to be gathered. A segment has at most segmentMax, so
	// gathering larger ones saves few gets.
	gatherMax = 8 << 20
	// compactGets is how many gets a compaction makes in parallel: few, because commits wait for
	// the same server.
	compactGets = 2
	// moverWaits: a compaction waits at most moverWaits times linger (an option of the URL) for a
	// commit of records that can take its moves along. Then it makes its own commit.
	moverWaits = 10
	// moverMost bounds that wait.
	moverMost = 30 * time.Second
	// proveFirst and proveMost are the pauses between two attempts to find out whether a segment is
	// still there.
	proveFirst, proveMost = 100 * time.Millisecond, 10 * time.Second
	// movesMax bounds the batches of one segment.
	movesMax = 50_000
	// gathersMax bounds the segments that are written in a round of upkeep: 2 GiB.
	gathersMax = 64
	// snapshotOld is how old the newest snapshot may be before another one is written, although few
	// commits follow it: until then, older snapshots and commits keep values that were replaced.
	snapshotOld = 24 * time.Hour
)

// upkeep works until Close: it writes snapshots, gathers batches in segments, and deletes what is
// no longer needed. After a rewind it reads the state anew, if no caller has.
func (s *Store) upkeep() {
	ticker := time.NewTicker(s.grace / 4)
	defer ticker.Stop()
	for {
		collect := false
		select {
		case <-s.closing.Done():
			return
		case <-s.due:
		case <-ticker.C:
			collect = true
		}
		if err := s.tend(s.closing, collect); err != nil && s.closing.Err() == nil {
			s.logger.Warn("the upkeep of the bucket failed; it is tried again later", "store", s.name(), "err", err)
		}
	}
}

func (s *Store) tend(ctx context.Context, collect bool) error {
	s.mu.Lock()
	snapshot, behind := s.snapshotDue(), s.behind
	s.mu.Unlock()
	if behind { // a caller may have had too little time to read the state
		if err := s.turn.take(ctx); err != nil {
			return err
		}
		err := s.anchor(ctx)
		s.turn.give()
		if err != nil {
			return fmt.Errorf("read the state of a bucket that was rewound: %w", err)
		}
	}
	if s.replica {
		return nil
	}
	if collect && !snapshot {
		var err error
		if snapshot, err = s.overdue(ctx); err != nil {
			return fmt.Errorf("look for an old snapshot: %w", err)
		}
	}
	if snapshot {
		for range gathersMax {
			moved, err := s.compact(ctx, compactMin)
			if err != nil {
				return fmt.Errorf("gather batches in a segment: %w", err)
			}
			if !moved {
				break
			}
		}
		if err := s.step(ctx); err != nil {
			return fmt.Errorf("write a commit for a snapshot: %w", err)
		}
		if err := s.snapshot(ctx); err != nil {
			return fmt.Errorf("write a snapshot: %w", err)
		}
	}
	if snapshot || collect {
		if err := s.collect(ctx); err != nil {
			return fmt.Errorf("delete what is no longer needed: %w", err)
		}
	}
	return nil
}

// overdue reports whether a snapshot must be written although few commits follow the newest one:
// the newest is old, and the snapshot before it, which is kept as well, may have values of keys
// that were replaced since.
func (s *Store) overdue(ctx context.Context) (bool, error) {
	count, a, err := s.counting(ctx, 2, 0)
	if err != nil {
		return false, err
	}
	older := int64(0)
	if len(count) == 2 {
		older = count[1].number
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(count) > 0 && a.date.Sub(count[0].modified) < snapshotOld {
		return false, nil
	}
	return older < s.st.puts, nil
}

// step makes a commit that changes nothing, unless a snapshot can be made of the newest commit.
func (s *Store) step(ctx context.Context) error {
	s.mu.Lock()
	possible := s.st.number > s.newest && s.st.number == s.st.tip.number
	s.mu.Unlock()
	if possible {
		return nil
	}
	return s.change(ctx, func(*state) (e effects, _ [][]byte, _ error) {
		e.drops = []string{"segment/" + random()} // a segment that does not exist
		return e, nil, nil
	})
}

// snapshotDue reports whether enough commits follow the newest snapshot. The caller holds mu.
func (s *Store) snapshotDue() bool {
	return s.st.number-s.newest >= cmp.Or(s.every, snapshotEvery)
}

// wakeUpkeep wakes the upkeep if there is something to do.
func (s *Store) wakeUpkeep() {
	s.mu.Lock()
	due := s.snapshotDue()
	s.mu.Unlock()
	if due {
		select {
		case s.due <- struct{}{}:
		default:
		}
	}
}

// pick is a batch that a compaction moves.
type pick struct {
	partition eventlog.Partition
	held
	key string // the key of the object that held it
	to  int64  // its place in the segment
}

// compact gathers the batches of the oldest commits in one segment: those that pick chooses, which
// also says what least means. It reports whether it moved any.
func (s *Store) compact(ctx context.Context, least int) (bool, error) {
	picks := s.pick(least)
	if len(picks) == 0 {
		return false, nil
	}
	places := make([]source, len(picks))
	for i, p := range picks {
		places[i] = source{p.key, p.at, p.size}
	}
	content, err := s.contents(ctx, places, compactGets)
	if err != nil {
		return false, err
	}
	body := []byte(magicSegment)
	var index writer
	kept := picks[:0]
	for i, p := range picks {
		got := content[places[i]]
		if got.err != nil || crc32.Checksum(got.bytes, castagnoli) != p.crc {
			s.logger.Error("a batch is damaged, and stays where it is", "store", s.name(), "object", p.key, "partition", p.partition, "offset", p.base, "err", got.err)
			continue
		}
		p.to = int64(len(body))
		body = append(body, got.bytes...)
		kept = append(kept, p)
	}
	if len(kept) == 0 {
		return false, nil
	}
	list(&index, kept, func(w *writer, p pick) {
		writePlaced(w, placed{p.partition, p.base, p.records, p.maxTime, p.size, p.crc})
		w.int(p.to)
	})
	tail, _ := seal(magicSegment, index.b)
	at := len(body)
	body = append(body, tail...)
	body = fmt.Appendf(body, "%016x", at)
	key := s.newSegment()
	defer s.endSegment(key)
	if _, err := s.bucket.put(ctx, key, body); err != nil {
		return false, err // if the segment was written nevertheless, it is deleted as an orphan
	}
	moved, err := s.move(ctx, key, kept)
	return moved, errors.Join(err, s.prove(ctx, key, kept))
}

// prove calls moveBack until that succeeds: then the segment is there, or its batches were moved
// back. No other process moves them back. So if ctx ends first and the segment is gone, these
// batches are lost.
func (s *Store) prove(ctx context.Context, key string, picks []pick) error {
	for pause := proveFirst; ; pause = min(2*pause, proveMost) {
		err := s.moveBack(ctx, key, picks)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if pause == proveFirst {
			s.logger.Warn("whether a segment that was written is still there cannot be found out; trying again until it can", "store", s.name(), "segment", key, "err", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// moveBack commits that batches lie where they were, if their segment is gone. It is gone if the
// bucket was rewound after the segment was written and before the commit that names it: then no
// commit was lost, so nobody noticed. A rewind after that commit, to a copy without the segment,
// loses the commit as well, and is noticed.
func (s *Store) moveBack(ctx context.Context, key string, picks []pick) error {
	if _, _, err := s.bucket.get(ctx, key, 0, 1); !errors.Is(err, errMissing) {
		return err
	}
	back := 0
	err := s.changeNow(ctx, false, func(st *state) (e effects, _ [][]byte, _ error) {
		for _, p := range picks {
			if h := st.find(p.partition, p.base); h != nil && h.object.key == key && h.at == p.to {
				e.moves = append(e.moves, move{p.key, p.partition, p.base, p.at})
			}
		}
		back = len(e.moves)
		return e, nil, nil
	})
	if back > 0 {
		s.logger.Error("the bucket was rewound: a segment is gone, and its batches are read where they were before", "store", s.name(), "segment", key, "batches", back, "err", err)
	}
	return err
}

// mover is a finished segment whose moves wait for a commit.
type mover struct {
	key   string
	picks []pick
	done  chan bool // receives whether any was moved; has room for one
}

// move commits that batches lie in a segment now, and reports whether any of them does. A commit of
// batches takes the moves along, because a commit of their own would delay publishers by one put.
func (s *Store) move(ctx context.Context, key string, picks []pick) (bool, error) {
	m := &mover{key, picks, make(chan bool, 1)}
	s.mu.Lock()
	s.mover = m
	s.mu.Unlock()
	select {
	case moved := <-m.done:
		return moved, nil
	case <-time.After(min(moverWaits*s.linger, moverMost)):
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.mover = nil
	s.mu.Unlock()
	moved := false
	err := s.change(ctx, func(st *state) (e effects, _ [][]byte, _ error) { // if a commit has taken m along, nothing is left to move
		e.moves = s.moves(m, st)
		moved = len(e.moves) > 0
		return e, nil, nil
	})
	return moved || len(m.done) > 0 && <-m.done, err
}

// took says that a commit took a mover along.
func (s *Store) took(m *mover, moved bool) {
	if m == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mover == m {
		s.mover = nil
	}
	m.done <- moved
}

// moves returns what is left to move. The caller holds mu.
func (s *Store) moves(m *mover, st *state) (moves []move) {
	if !s.pending[m.key] { // another process dropped the segment as an orphan
		return nil
	}
	for _, p := range m.picks {
		if h := st.find(p.partition, p.base); h != nil && h.object.key == p.key && h.at == p.at && h.records == p.records && h.crc == p.crc {
			moves = append(moves, move{m.key, p.partition, p.base, p.to})
		}
	}
	return moves
}

// newSegment names a segment. Its number is that of the newest commit that its writer knew.
func (s *Store) newSegment() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprintf("segment/%020d-%s", s.st.number, random())
	s.pending[key] = true
	return key
}

func (s *Store) endSegment(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, key)
}

// pick chooses the batches of the oldest commit objects that are not large, in the order of
// partitions and offsets. If there are fewer than least such objects, it chooses only the batches
// of objects that may hold secrets. Such objects are chosen even if they are large; a large one may
// take several calls.
func (s *Store) pick(least int) []pick {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.behind {
		return nil
	}
	sizes := map[*object]int{}
	for _, p := range s.st.partitions {
		for _, h := range p.held {
			if strings.HasPrefix(h.object.key, "commit/") {
				sizes[h.object] += h.size
			}
		}
	}
	maps.DeleteFunc(sizes, func(o *object, size int) bool { return size > gatherMax && !o.secrets })
	if len(sizes) < least {
		maps.DeleteFunc(sizes, func(o *object, _ int) bool { return !o.secrets })
	}
	chosen, size, batches := map[*object]bool{}, 0, 0
	for _, o := range slices.SortedFunc(maps.Keys(sizes), func(a, b *object) int { return strings.Compare(a.key, b.key) }) {
		if len(chosen) > 0 && (size+sizes[o] > segmentMax || batches+o.names > movesMax) {
			break
		}
		chosen[o] = true
		size += sizes[o]
		batches += o.names
	}
	var picks []pick
	for id, p := range s.st.partitions {
		for _, h := range p.held {
			if chosen[h.object] {
				picks = append(picks, pick{partition: id, held: h, key: h.object.key})
			}
		}
	}
	slices.SortFunc(picks, func(a, b pick) int {
		if a.partition != b.partition {
			return int(min(max(a.partition-b.partition, -1), 1))
		}
		return int(min(max(a.base-b.base, -1), 1))
	})
	size = 0
	for i, p := range picks {
		if size += p.size; i > 0 && size > segmentMax {
			return picks[:i]
		}
	}
	return picks
}
