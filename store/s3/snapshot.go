package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// snapshotMax bounds how many snapshots are looked at. Old ones are deleted.
const snapshotMax = 1000

type snapshot struct {
	number   int64
	modified time.Time
}

func snapshotKey(n int64) string { return fmt.Sprintf("snapshot/%020d", n) }

// snapshots lists the snapshots, the oldest first.
func (s *Store) snapshots(ctx context.Context) ([]snapshot, answer, error) {
	items, a, err := s.bucket.list(ctx, "snapshot/", "", snapshotMax)
	if err != nil {
		return nil, a, err
	}
	var all []snapshot
	for _, it := range items {
		n, err := strconv.ParseInt(strings.TrimPrefix(it.key, "snapshot/"), 10, 64)
		if err != nil {
			return nil, a, fmt.Errorf("%w: the object %q does not belong to weir", errDamaged, it.key)
		}
		all = append(all, snapshot{n, it.modified})
	}
	return all, a, nil
}

// load takes the state from the newest snapshot that can be read; of no snapshot, an empty one. The answer is that of the list. The caller has the turn.
func (s *Store) load(ctx context.Context, snapshots []snapshot, a answer) error {
	st := newState(s.st.store)
	var damaged error
	for i, n := range slices.Backward(snapshots) {
		read, err := s.readSnapshot(ctx, n.number)
		if err != nil && !errors.Is(err, errDamaged) {
			return err
		}
		if err == nil {
			st, damaged = read, nil
			break
		}
		s.logger.Error("a snapshot is damaged; an older one is read", "store", s.name(), "err", err)
		if damaged = err; i == 0 && n.number > 1 {
			return fmt.Errorf("no snapshot can be read; restore a backup: %w", damaged)
		}
	}
	if damaged != nil {
		return damaged
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.st, s.synced, s.newest = st, a.date, 0
	clear(s.pending) // a commit that was passed over may have dropped them; after a rewind they may be gone
	if len(snapshots) > 0 {
		s.newest = snapshots[len(snapshots)-1].number
	}
	s.floor = s.newest
	return nil
}

func (s *Store) readSnapshot(ctx context.Context, number int64) (*state, error) {
	object, _, err := s.bucket.get(ctx, snapshotKey(number), 0, -1)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	store := s.st.store
	s.mu.Unlock()
	st, err := decodeState(object)
	if err == nil && (st.store != store || st.number != number) {
		err = fmt.Errorf("%w: it is a snapshot of commit %d of the store %q, want %d of %q", errDamaged, st.number, st.store, number, store)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", snapshotKey(number), err)
	}
	return st, nil
}

// encode returns the state as a snapshot.
func (st *state) encode() []byte {
	var w writer
	w.string(st.store)
	w.string(st.life)
	w.int(st.number)
	w.bytes(st.tip.hash[:])
	w.int(int64(st.time))
	keys := slices.Sorted(maps.Keys(st.objects))
	place := map[string]uint64{}
	for i, key := range keys {
		place[key] = uint64(i)
	}
	list(&w, keys, (*writer).string)
	list(&w, slices.Sorted(maps.Keys(st.partitions)), func(w *writer, id eventlog.Partition) {
		p := st.partitions[id]
		w.int(int64(id))
		w.int(int64(p.first))
		w.int(int64(p.next))
		w.int(p.moved)
		list(w, p.held, func(w *writer, h held) {
			w.int(int64(h.base))
			w.uint(uint64(h.records))
			w.int(int64(h.maxTime))
			w.uint(uint64(h.crc))
			w.uint(place[h.object.key])
			w.int(h.at)
			w.uint(uint64(h.size))
		})
	})
	w.uint(uint64(st.keys.Len()))
	st.keys.Scan(func(key string, v value) bool {
		w.string(key)
		w.int(int64(v.version))
		w.int(int64(v.putAt))
		w.bytes(v.bytes)
		return true
	})
	object, _ := seal(magicSnapshot, w.b)
	return object
}

func decodeState(sealed []byte) (*state, error) {
	head, _, err := unseal(magicSnapshot, sealed)
	if err != nil {
		return nil, err
	}
	r := &reader{b: head}
	st := newState(r.string())
	st.life, st.number, st.tip.hash, st.time = r.string(), r.int(), r.hash(), eventlog.Timestamp(r.int())
	st.tip.number = st.number
	var objects []*object
	for _, key := range listed(r, (*reader).string) {
		o := &object{key: key}
		objects = append(objects, o)
		st.objects[key] = o
	}
	for range r.count() {
		id := eventlog.Partition(r.int())
		p := &partition{first: eventlog.Offset(r.int()), next: eventlog.Offset(r.int()), moved: r.int()}
		p.held = listed(r, func(r *reader) held {
			h := held{base: eventlog.Offset(r.int()), records: int32(r.uint()), maxTime: eventlog.Timestamp(r.int()), crc: uint32(r.uint())}
			o := r.uint()
			h.at, h.size = r.int(), int(r.uint())
			if o >= uint64(len(objects)) {
				r.fail()
				return h
			}
			h.object = objects[o]
			h.object.names++
			p.bytes += int64(h.size)
			return h
		})
		st.partitions[id] = p
	}
	for range r.count() {
		key := r.string()
		st.keys.Set(key, value{version: eventlog.Version(r.int()), putAt: eventlog.Timestamp(r.int()), bytes: bytes.Clone(r.bytes())})
	}
	return st, r.end()
}
