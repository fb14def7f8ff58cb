package s3

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
)

const (
	// partSize is about how large the parts of a snapshot are. Each is one request, and has
	// requestMax to make progress.
	partSize = 8 << 20
	// partBatches bounds the batches of a partition that are written at once: about 1 MiB.
	partBatches = 40_000
	// partGets is how many parts are read in parallel.
	partGets = 4
	// keepTries is how often a put of a part is tried.
	keepTries = 5
	// outlineOld is how much of a snapshot of the first format is read for its outline: two ids,
	// a number, a hash and a time.
	outlineOld = 4 << 10
	// listTries is how often the snapshots are listed because some were deleted meanwhile.
	listTries = 5
)

// snapshot is a snapshot as it is listed. It counts only while the commit that it was made of is
// there: a snapshot that was written after the bucket was rewound may be of commits that are lost.
type snapshot struct {
	key      string
	number   int64
	modified time.Time
}

// outline is what a snapshot says of itself: the commit that it was made of, and which parts have
// its state.
type outline struct {
	life    string
	tip     tip
	time    eventlog.Timestamp
	objects int // how many of the parts, from the first on, have the keys of objects
	parts   []part
	old     bool // it is of the first format, which has no parts
}

// part is an object with a part of a snapshot.
type part struct {
	key  string
	size int64
	hash hash // the hash of its head
}

func snapshotKey(at tip) string { return fmt.Sprintf("snapshot/%020d-%x", at.number, at.hash) }

// numberOf returns the number that follows the prefix in a key, or -1.
func numberOf(key, prefix string) int64 {
	digits, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), "-")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// snapshots lists the snapshots, the oldest first.
func (s *Store) snapshots(ctx context.Context) ([]snapshot, answer, error) {
	var all []snapshot
	var first answer
	for after := ""; ; {
		items, a, err := s.bucket.list(ctx, "snapshot/", after, pageSize)
		if err != nil {
			return nil, a, err
		}
		if after == "" {
			first = a // the answer with the earliest date: later pages are at least as new
		}
		for _, it := range items {
			n := numberOf(it.key, "snapshot/")
			if n < 0 {
				return nil, a, fmt.Errorf("%w: the object %q does not belong to weir", errDamaged, it.key)
			}
			all = append(all, snapshot{it.key, n, it.modified})
			after = it.key
		}
		if len(items) < pageSize {
			return all, first, nil
		}
	}
}

// counting returns the snapshots that count, the newest first; most bounds how many. All but the
// first are older than age. It costs a list, and two gets for each snapshot.
func (s *Store) counting(ctx context.Context, most int, age time.Duration) (count []snapshot, a answer, err error) {
	for range listTries {
		var all []snapshot
		if all, a, err = s.snapshots(ctx); err != nil {
			return nil, a, err
		}
		count = nil
		for _, sn := range slices.Backward(all) {
			if len(count) > 0 && age > 0 && a.date.Sub(sn.modified) <= age {
				continue
			}
			var counts bool
			if _, counts, err = s.counted(ctx, sn); errors.Is(err, errDamaged) {
				err = nil // whoever reads this snapshot reports the damage
				continue
			}
			if err != nil {
				break
			}
			if counts {
				count = append(count, sn)
			}
			if len(count) == most {
				return count, a, nil
			}
		}
		if !errors.Is(err, errMissing) { // errMissing: a snapshot was deleted after it was listed
			break
		}
	}
	return count, a, err
}

// newestSnapshot returns the newest snapshot that counts; number 0: there is none. The answer is
// that to the list of snapshots.
func (s *Store) newestSnapshot(ctx context.Context) (snapshot, answer, error) {
	count, a, err := s.counting(ctx, 1, 0)
	return append(count, snapshot{})[0], a, err
}

// counted reads the outline of a snapshot, and reports whether its commit is there.
func (s *Store) counted(ctx context.Context, sn snapshot) (outline, bool, error) {
	o, err := s.outline(ctx, sn)
	if err != nil {
		return o, false, err
	}
	same, _, _, err := s.holds(ctx, o.tip)
	return o, same, err
}

// load takes the state from the newest snapshot that counts and can be read. If there is none, the
// state is empty, unless a snapshot is damaged: then load fails. If a call is given up, the next
// one continues where that call ended. The caller has the turn.
func (s *Store) load(ctx context.Context) error {
	gone := map[string]bool{}
	for {
		snapshots, a, err := s.snapshots(ctx)
		if err != nil {
			return err
		}
		st, newest, err := s.newestState(ctx, snapshots, gone)
		if errors.Is(err, errMissing) {
			continue // a snapshot was deleted after it was listed
		}
		if err != nil {
			return err
		}
		s.loading = nil
		st.puts = st.number
		_, latest := s.clock.now()
		st.putBy(latest)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.st, s.synced, s.newest, s.floor = st, a.date, newest, newest
		clear(s.pending) // a commit between the old state and this one may have dropped these segments; after a rewind they may be gone
		return nil
	}
}

// newestState reads the newest of these snapshots that counts. If a part of a snapshot is missing,
// it notes the snapshot in gone and returns errMissing: the snapshot may have been deleted after it
// was listed. If the snapshot is listed again, it is passed over.
func (s *Store) newestState(ctx context.Context, snapshots []snapshot, gone map[string]bool) (st *state, newest int64, _ error) {
	var damaged error
	for _, sn := range slices.Backward(snapshots) {
		o, counts, err := s.counted(ctx, sn)
		if err == nil && counts {
			newest = max(newest, sn.number)
			if st, err = s.readSnapshot(ctx, sn, o); err == nil {
				return st, newest, nil
			}
		}
		if errors.Is(err, errMissing) && !gone[sn.key] {
			gone[sn.key] = true
			return nil, 0, err
		}
		switch {
		case err == nil:
			s.logger.Warn("a snapshot is passed over: it was made of a commit that is not there", "store", s.name(), "snapshot", sn.key)
		case errors.Is(err, errMissing): // the bucket was rewound while the snapshot was written: the parts that were put before are gone
			s.logger.Warn("a snapshot is passed over: parts of it are not there", "store", s.name(), "err", err)
		case errors.Is(err, errDamaged):
			damaged = err
			s.logger.Error("a snapshot is damaged; an older one is read", "store", s.name(), "err", err)
		default:
			return nil, 0, err
		}
	}
	if damaged != nil {
		return nil, 0, fmt.Errorf("no snapshot can be read; restore a backup: %w", damaged)
	}
	return newState(s.storeID()), 0, nil
}

// putBy lowers the times at which values were put to now, if they are later than now: see apply.
func (st *state) putBy(now eventlog.Timestamp) {
	late := map[string]value{}
	st.keys.Scan(func(key string, v value) bool {
		if v.putAt > now {
			v.putAt = now
			late[key] = v
		}
		return true
	})
	for key, v := range late {
		st.keys.Set(key, v)
	}
}

func (s *Store) storeID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.st.store
}

// outline reads the outline of a snapshot.
func (s *Store) outline(ctx context.Context, sn snapshot) (o outline, err error) {
	o.old = !strings.Contains(sn.key, "-")
	size := int64(-1)
	if o.old {
		size = outlineOld
	}
	object, _, err := s.bucket.get(ctx, sn.key, 0, size)
	if err != nil {
		return o, err
	}
	var head []byte
	if o.old { // its checksum covers the whole object, of which only the beginning was read
		if _, err = headLength(magicSnapshotOld, object); err == nil {
			head = object[frameSize:]
		}
	} else {
		head, _, err = unseal(magicSnapshot, object)
	}
	if err != nil {
		return o, fmt.Errorf("%s: %w", sn.key, err)
	}
	r := &reader{b: head}
	store := r.string()
	o.life, o.tip.number, o.tip.hash, o.time = r.string(), r.int(), r.hash(), eventlog.Timestamp(r.int())
	if !o.old {
		o.objects = int(r.uint())
		o.parts = listed(r, func(r *reader) part { return part{r.string(), int64(r.uint()), r.hash()} })
		err = r.end()
	}
	if err = errors.Join(err, r.err); err != nil {
		return o, fmt.Errorf("%s: %w", sn.key, err)
	}
	if want := s.storeID(); store != want || o.tip.number != sn.number || !o.old && sn.key != snapshotKey(o.tip) {
		return o, fmt.Errorf("%w: %s is a snapshot of commit %d of the store %q, want %d of %q", errDamaged, sn.key, o.tip.number, store, sn.number, want)
	}
	return o, nil
}

// readSnapshot reads the state of a snapshot.
func (s *Store) readSnapshot(ctx context.Context, sn snapshot, o outline) (*state, error) {
	if o.old {
		object, _, err := s.bucket.get(ctx, sn.key, 0, -1)
		if err != nil {
			return nil, err
		}
		st, err := decodeState(object)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", sn.key, err)
		}
		return st, nil
	}
	l := s.loading
	if l == nil || l.key != sn.key {
		st := newState(s.storeID())
		st.life, st.number, st.tip, st.time = o.life, o.tip.number, o.tip, o.time
		l = &loading{key: sn.key, st: st}
		s.loading = l
	}
	err := s.readParts(ctx, o.parts[l.done:], l.add)
	if errors.Is(err, errDamaged) {
		s.loading = nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sn.key, err)
	}
	return l.st, nil
}

// readParts calls add with the head of each part, in order.
func (s *Store) readParts(ctx context.Context, parts []part, add func(head []byte) error) error {
	for some := range slices.Chunk(parts, partGets) {
		heads := make([][]byte, len(some))
		var all errgroup.Group
		for i, p := range some {
			all.Go(func() error {
				object, _, err := s.bucket.get(ctx, p.key, 0, -1)
				if err != nil {
					return err
				}
				head, of, err := unseal(magicPart, object)
				if err == nil && of != p.hash {
					err = fmt.Errorf("%w: it is another one than the snapshot names", errDamaged)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", p.key, err)
				}
				heads[i] = head
				return nil
			})
		}
		if err := all.Wait(); err != nil {
			return err
		}
		for i, head := range heads {
			if err := add(head); err != nil {
				return fmt.Errorf("%s: %w", some[i].key, err)
			}
		}
	}
	return nil
}

// objectsOf reads the keys of the objects that a snapshot names.
func (s *Store) objectsOf(ctx context.Context, sn snapshot) (map[string]*object, error) {
	o, err := s.outline(ctx, sn)
	if err != nil {
		return nil, err
	}
	if o.old {
		st, err := s.readSnapshot(ctx, sn, o)
		if err != nil {
			return nil, err
		}
		return st.objects, nil
	}
	if o.objects > len(o.parts) {
		return nil, fmt.Errorf("%w: %s has %d parts, and says that %d have objects", errDamaged, sn.key, len(o.parts), o.objects)
	}
	l := &loading{st: newState("")}
	err = s.readParts(ctx, o.parts[:o.objects], l.add)
	return l.st.objects, err
}

// snapshot writes a snapshot of what is known.
func (s *Store) snapshot(ctx context.Context) error {
	if err := s.turn.take(ctx); err != nil { // so that the state is not one of a bucket that was rewound
		return err
	}
	s.mu.Lock()
	var st *state
	if !s.behind && s.st.number > s.newest && s.st.number == s.st.tip.number { // a snapshot is made of a commit that counts, so the newest number must not be a void commit's
		st = s.st.frozen()
	}
	s.mu.Unlock()
	s.turn.give()
	if st == nil {
		return nil
	}
	name := random()
	var root writer
	root.string(st.store)
	root.string(st.life)
	root.int(st.number)
	root.bytes(st.tip.hash[:])
	root.int(int64(st.time))
	var parts []part
	objects, err := st.parts(func(head []byte) error {
		object, of := seal(magicPart, head)
		key := fmt.Sprintf("part/%020d-%s-%06d", st.number, name, len(parts))
		parts = append(parts, part{key, int64(len(object)), of})
		return s.keep(ctx, key, object)
	})
	if err != nil {
		return err
	}
	root.uint(uint64(objects))
	list(&root, parts, func(w *writer, p part) {
		w.string(p.key)
		w.uint(uint64(p.size))
		w.bytes(p.hash[:])
	})
	object, _ := seal(magicSnapshot, root.b)
	// A snapshot covers its commits only if they are the ones in the bucket. So the newest of them
	// is read again, before the snapshot is put and afterwards. If the bucket is rewound in
	// between, the snapshot is of commits that are lost, and is marked like a void commit; also
	// without the mark it counts for nobody.
	rewound := fmt.Errorf("%w: %s is not what this process read", eventlog.ErrUnavailable, commitKey(st.number))
	if same, _, _, err := s.holds(ctx, st.tip); err != nil || !same {
		return errors.Join(err, rewound)
	}
	err = s.keep(ctx, snapshotKey(st.tip), object)
	if err != nil {
		s.maybe(st.tip) // the put of the snapshot may still arrive
		return err
	}
	if same, missing, _, err := s.holds(ctx, st.tip); err != nil || !same {
		if err == nil && missing {
			var collected bool
			if collected, _, err = s.collected(ctx, st.number); collected {
				return err
			}
		}
		s.maybe(st.tip)
		return errors.Join(err, s.markVoid(ctx), rewound)
	}
	s.mu.Lock()
	s.newest = max(s.newest, st.number)
	s.mu.Unlock()
	return nil
}

// keep puts an object that nobody else writes with other bytes. It tries again if the answer does
// not say whether the object is there.
func (s *Store) keep(ctx context.Context, key string, object []byte) error {
	for try := 1; ; try++ {
		_, err := s.bucket.put(ctx, key, object)
		switch {
		case err == nil, errors.Is(err, errExists):
			return nil
		case errors.Is(err, errRefused), try == keepTries:
			return err
		}
		select {
		case <-time.After(time.Second << try / 4):
		case <-ctx.Done():
			return err
		}
	}
}

// frozen returns a copy of the state that is not changed any more. The two share what the state
// does not change in place, but replaces.
func (st *state) frozen() *state {
	f := &state{store: st.store, life: st.life, number: st.number, end: st.end, time: st.time, keys: *st.keys.Copy(), partitions: make(map[eventlog.Partition]*partition, len(st.partitions))}
	for id, p := range st.partitions {
		p.frozen = true
		f.partitions[id] = &partition{first: p.first, next: p.next, held: p.held, bytes: p.bytes, moved: p.moved}
	}
	return f
}

// section is a list whose length is known when it is written.
type section struct {
	n int
	writer
}

func (s *section) to(w *writer) {
	w.uint(uint64(s.n))
	w.b = append(w.b, s.b...)
	s.n, s.b = 0, nil
}

// parts calls put with the heads of the parts of a snapshot, each of about partSize, in order. It
// returns how many of them have the keys of objects.
func (st *state) parts(put func(head []byte) error) (objects int, err error) {
	var keys, partitions, values section
	n := 0
	flush := func(least int) error {
		if size := len(keys.b) + len(partitions.b) + len(values.b); size < least || size == 0 {
			return nil
		}
		var w writer
		keys.to(&w)
		partitions.to(&w)
		values.to(&w)
		n++
		return put(w.b)
	}
	place := map[*object]uint64{}
	ids := make([]eventlog.Partition, 0, len(st.partitions))
	for id := range st.partitions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		for _, h := range st.partitions[id].held {
			if _, known := place[h.object]; known {
				continue
			}
			place[h.object] = uint64(len(place))
			keys.n++
			keys.string(h.object.key)
			keys.bool(h.object.secrets)
			if err := flush(partSize); err != nil {
				return n, err
			}
		}
	}
	if err := flush(0); err != nil {
		return n, err
	}
	objects = n
	for _, id := range ids {
		p := st.partitions[id]
		for rest := p.held; ; {
			some := rest[:min(len(rest), partBatches)]
			rest = rest[len(some):]
			partitions.n++
			partitions.int(int64(id))
			partitions.int(int64(p.first))
			partitions.int(int64(p.next))
			partitions.int(p.moved)
			list(&partitions.writer, some, func(w *writer, h held) {
				w.int(int64(h.base))
				w.uint(uint64(h.records))
				w.int(int64(h.maxTime))
				w.uint(uint64(h.crc))
				w.uint(place[h.object])
				w.int(h.at)
				w.uint(uint64(h.size))
			})
			if err := flush(partSize); err != nil {
				return objects, err
			}
			if len(rest) == 0 {
				break
			}
		}
	}
	st.keys.Scan(func(key string, v value) bool {
		values.n++
		writeValue(&values.writer, key, v)
		err = flush(partSize)
		return err == nil
	})
	if err == nil {
		err = flush(0)
	}
	return objects, err
}

// loading is a snapshot of which some parts are read.
type loading struct {
	key     string
	st      *state
	objects []*object
	done    int // how many parts are read
}

func (l *loading) add(head []byte) error {
	r := &reader{b: head}
	for range r.count() {
		o := &object{key: r.string(), secrets: r.bool()}
		l.objects = append(l.objects, o)
		l.st.objects[o.key] = o
	}
	for range r.count() {
		id := eventlog.Partition(r.int())
		first, next, moved := eventlog.Offset(r.int()), eventlog.Offset(r.int()), r.int()
		p := l.st.partitions[id]
		if p == nil {
			p = &partition{first: first, next: next, moved: moved}
			l.st.partitions[id] = p
		}
		p.held = append(p.held, listed(r, func(r *reader) held { return readHeld(r, l.objects, p) })...)
	}
	readValues(r, l.st)
	if err := r.end(); err != nil {
		return err
	}
	l.done++
	return nil
}

func writeValue(w *writer, key string, v value) {
	w.string(key)
	w.int(int64(v.version))
	w.int(int64(v.putAt))
	w.bytes(v.bytes)
}

func readValues(r *reader, st *state) {
	for range r.count() {
		key := r.string()
		st.keys.Set(key, value{version: eventlog.Version(r.int()), putAt: eventlog.Timestamp(r.int()), bytes: slices.Clone(r.bytes())})
	}
}

func readHeld(r *reader, objects []*object, p *partition) held {
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
}

// decodeState reads a snapshot of the first format, which was one object.
func decodeState(sealed []byte) (*state, error) {
	head, _, err := unseal(magicSnapshotOld, sealed)
	if err != nil {
		return nil, err
	}
	r := &reader{b: head}
	st := newState(r.string())
	st.life, st.number, st.tip.hash, st.time = r.string(), r.int(), r.hash(), eventlog.Timestamp(r.int())
	st.tip.number = st.number
	var objects []*object
	for _, key := range listed(r, (*reader).string) {
		o := &object{key: key, secrets: strings.HasPrefix(key, "commit/")} // whether the object may hold secrets is not known
		objects = append(objects, o)
		st.objects[key] = o
	}
	for range r.count() {
		id := eventlog.Partition(r.int())
		p := &partition{first: eventlog.Offset(r.int()), next: eventlog.Offset(r.int()), moved: r.int()}
		p.held = listed(r, func(r *reader) held { return readHeld(r, objects, p) })
		st.partitions[id] = p
	}
	readValues(r, st)
	return st, r.end()
}
