package s3

import (
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/tidwall/btree"

	"github.com/weir-log/weir/eventlog"
)

// tip names a commit.
type tip struct {
	number int64
	hash   hash  // the hash of its head
	head   int64 // how many bytes its frame and head have; 0: unknown
}

// end is the end of the log as a process knows it: the newest commit that counts, and the void ones
// after it, which were passed over. The next commit is right only while all of these are there.
type end struct {
	tip   tip
	voids []tip
}

// state is what the commits up to a number add up to. It is the whole keyed state, and where each
// batch lies.
type state struct {
	store  string
	life   string // part of the incarnation
	number int64
	end
	time       eventlog.Timestamp
	partitions map[eventlog.Partition]*partition
	keys       btree.Map[string, value]
	puts       int64              // the number of the newest commit that put keys; after load, the number of the snapshot's commit
	objects    map[string]*object // the objects that hold batches, by key
}

type partition struct {
	first, next eventlog.Offset
	held        []held // the batches with offsets from first on, in order; the first batch may begin below first
	bytes       int64
	moved       int64 // the commit that changed it last
	frozen      bool  // a frozen state shares held: clone held before an element of it is changed
}

// held is a batch, and where its bytes lie.
type held struct {
	base    eventlog.Offset
	records int32
	crc     uint32
	maxTime eventlog.Timestamp
	object  *object
	at      int64
	size    int
}

func (h held) end() eventlog.Offset { return h.base + eventlog.Offset(h.records) }

// object is an object of the bucket that holds batches. names counts the batches in it that the
// state names.
type object struct {
	key   string
	names int
	// secrets: it is a commit that may hold secret values of keys beside its batches. So its
	// batches are soon gathered in a segment, however large it is.
	secrets bool
}

type value struct {
	version eventlog.Version
	bytes   []byte
	putAt   eventlog.Timestamp
}

func newState(store string) *state {
	return &state{store: store, life: store, partitions: map[eventlog.Partition]*partition{}, objects: map[string]*object{}}
}

func (st *state) incarnation() eventlog.Incarnation {
	epoch, _ := st.keys.Get(eventlog.EpochKey)
	return eventlog.Incarnation{Store: st.life, Epoch: epoch.version}
}

// index finds the batch that holds an offset: the first that ends above it.
func (p *partition) index(at eventlog.Offset) int {
	i, _ := slices.BinarySearchFunc(p.held, at, func(h held, at eventlog.Offset) int {
		if h.end() <= at {
			return -1
		}
		return 1
	})
	return i
}

func (p *partition) bounds(id eventlog.Partition) eventlog.Bounds {
	return eventlog.Bounds{Partition: id, First: p.first, Next: p.next, Bytes: p.bytes}
}

// span returns which batches hold the offsets of a replacement. It reports false if they hold
// others, too, or were trimmed.
func (p *partition) span(from, to eventlog.Offset) (first, end int, whole bool) {
	first = p.index(from)
	end = first
	for end < len(p.held) && p.held[end].base < to {
		end++
	}
	if first == end || from < p.first {
		return 0, 0, false
	}
	return first, end, p.held[first].base == from && p.held[end-1].end() == to
}

// judge evaluates a flush: what it changes, with the bytes of its batches, and the answer to each
// entry. It changes nothing.
func (st *state) judge(flush []eventlog.Entry) (effects, [][]byte, []eventlog.Outcome) {
	j := judgement{st: st, next: map[eventlog.Partition]eventlog.Offset{}}
	outcomes := make([]eventlog.Outcome, len(flush))
	for i, entry := range flush {
		if err, _ := entry.Refusal(&j, nil); err != nil {
			outcomes[i].Err = err
			continue
		}
		outcomes[i].Base = j.accept(entry)
	}
	// The batches of replacements follow the others.
	return j.effects, append(j.payload, j.replacing...), outcomes
}

// judgement is a flush in evaluation. next holds the ends of the partitions that it changes.
type judgement struct {
	st        *state
	next      map[eventlog.Partition]eventlog.Offset
	effects   effects
	payload   [][]byte
	replacing [][]byte
}

// Version implements eventlog.Content.
func (j *judgement) Version(key string) (eventlog.Version, error) {
	v, _ := j.st.keys.Get(key)
	return v.version, nil
}

// Exists implements eventlog.Content.
func (j *judgement) Exists(id eventlog.Partition) (bool, error) { return j.exists(id), nil }

// Holds implements eventlog.Content.
func (j *judgement) Holds(r eventlog.Replace) (bool, error) {
	_, _, whole := j.st.partitions[r.Partition].span(r.From, r.To)
	return whole, nil
}

func (j *judgement) exists(id eventlog.Partition) bool {
	_, opened := j.next[id]
	return opened || j.st.partitions[id] != nil
}

func (j *judgement) accept(entry eventlog.Entry) []eventlog.Offset {
	e := &j.effects
	base := make([]eventlog.Offset, len(entry.Batches))
	for i, b := range entry.Batches {
		if b.Records == 0 {
			if !j.exists(b.Partition) {
				e.opens = append(e.opens, b.Partition)
				j.next[b.Partition] = 0
			}
			continue
		}
		next, known := j.next[b.Partition]
		if !known {
			next = j.st.partitions[b.Partition].next
		}
		base[i] = next
		e.batches = append(e.batches, placing(b, next))
		j.payload = append(j.payload, b.Bytes)
		j.next[b.Partition] = next + eventlog.Offset(b.Records)
	}
	for _, p := range entry.Puts {
		e.puts = append(e.puts, put{key: p.Key, version: p.Version, deleted: p.Value == nil, secret: p.Secret && p.Value != nil, value: slices.Clone(p.Stored(base))})
	}
	for _, r := range entry.Replaces {
		done := replace{partition: r.Partition, from: r.From, to: r.To}
		at := r.From
		for _, b := range r.Batches {
			done.batches = append(done.batches, placing(b, at))
			j.replacing = append(j.replacing, b.Bytes)
			at += eventlog.Offset(b.Records)
		}
		e.replaces = append(e.replaces, done)
	}
	for _, id := range entry.Forgets {
		if j.exists(id) {
			e.forgets = append(e.forgets, id)
		}
	}
	return base
}

func placing(b eventlog.Batch, base eventlog.Offset) placed {
	return placed{b.Partition, base, b.Records, b.MaxTime, len(b.Bytes), crc32.Checksum(b.Bytes, castagnoli)}
}

// follows returns an error unless a commit is the one that follows this state.
func (st *state) follows(c *commit) error {
	switch {
	case c.store != st.store:
		return fmt.Errorf("%w: it belongs to the store %q, and this is %q", errDamaged, c.store, st.store)
	case c.number != st.number+1:
		return fmt.Errorf("%w: it is commit %d, want %d", errDamaged, c.number, st.number+1)
	case c.previous != st.tip.hash:
		return fmt.Errorf("%w: commit %d was made on top of another commit %d than the one that is there", errForeign, c.number, st.number)
	}
	return nil
}

// skip passes over a commit that is void: a process that did not know yet that the bucket was
// rewound made it on top of a commit that is no longer there. No caller was told that the void
// commit is done.
func (st *state) skip(void tip) {
	st.number++
	st.voids = append(slices.Clone(st.voids), void) // compose's callers keep the old list
}

// apply makes a commit's changes. The state must be the one that the commit was made on. now is the
// latest that the server's clock can show. The commit's time may be later: if that clock was ahead
// once, all commits since have times as late, because no commit's time is below that of the one
// before. No value was put later than now.
func (st *state) apply(c *commit, of hash, headSize int64, now eventlog.Timestamp) {
	st.number, st.end, st.time = c.number, end{tip: tip{c.number, of, headSize}}, c.time
	if c.life != "" {
		st.life = c.life
	}
	for _, id := range c.opens {
		st.partitions[id] = &partition{moved: c.number}
	}
	self := &object{key: commitKey(c.number), secrets: slices.ContainsFunc(c.puts, func(p put) bool { return p.secret })}
	at := headSize
	hold := func(b placed) held {
		h := held{b.base, b.records, b.crc, b.maxTime, self, at, b.size}
		at += int64(b.size)
		self.names++
		return h
	}
	for _, b := range c.batches {
		p := st.partitions[b.partition]
		p.held = append(p.held, hold(b))
		p.next += eventlog.Offset(b.records)
		p.bytes += int64(b.size)
		p.moved = c.number
	}
	if len(c.puts) > 0 {
		st.puts = c.number
	}
	for _, p := range c.puts {
		if p.deleted {
			st.keys.Delete(p.key)
		} else {
			st.keys.Set(p.key, value{p.version, p.value, min(c.time, now)})
		}
	}
	for _, r := range c.replaces {
		p := st.partitions[r.partition]
		first, end, _ := p.span(r.from, r.to)
		var fresh []held
		for _, b := range r.batches {
			fresh = append(fresh, hold(b))
			p.bytes += int64(b.size)
		}
		for _, h := range p.held[first:end] {
			p.bytes -= int64(h.size)
			st.unname(h.object)
		}
		p.held = slices.Concat(p.held[:first], fresh, p.held[end:])
		p.moved = c.number
	}
	if self.names > 0 {
		st.objects[self.key] = self
	}
	for _, t := range c.trims {
		p := st.partitions[t.partition]
		p.first = t.first
		gone := p.index(t.first)
		for _, h := range p.held[:gone] {
			p.bytes -= int64(h.size)
			st.unname(h.object)
		}
		p.held = slices.Clone(p.held[gone:]) // frees the old array
		p.moved = c.number
	}
	for _, id := range c.forgets {
		if p := st.partitions[id]; p != nil {
			for _, h := range p.held {
				st.unname(h.object)
			}
			delete(st.partitions, id)
		}
	}
	for _, m := range c.moves {
		if p := st.partitions[m.partition]; p.frozen {
			p.held, p.frozen = slices.Clone(p.held), false
		}
		h := st.find(m.partition, m.base)
		st.unname(h.object)
		to := st.objects[m.segment]
		if to == nil {
			to = &object{key: m.segment}
			st.objects[m.segment] = to
		}
		to.names++
		h.object, h.at = to, m.at
	}
}

func (st *state) unname(o *object) {
	if o.names--; o.names == 0 {
		delete(st.objects, o.key)
	}
}

// find returns the batch that begins at an offset, or nil.
func (st *state) find(id eventlog.Partition, base eventlog.Offset) *held {
	p := st.partitions[id]
	if p == nil {
		return nil
	}
	if i := p.index(base); i < len(p.held) && p.held[i].base == base {
		return &p.held[i]
	}
	return nil
}

// check returns an error unless the changes of a commit fit this state, so that a commit that was
// made by a program with a bug, or damaged in a way that its checksum does not show, is never
// applied.
func (st *state) check(c *commit) error {
	next := map[eventlog.Partition]eventlog.Offset{}
	for _, id := range c.opens {
		next[id] = 0
	}
	known := func(id eventlog.Partition) bool { _, opened := next[id]; return opened || st.partitions[id] != nil }
	wrong := func(what string, id eventlog.Partition) error {
		return fmt.Errorf("%w: commit %d %s partition %d, which does not fit what is there", errDamaged, c.number, what, id)
	}
	for _, b := range c.batches {
		if !known(b.partition) || b.records <= 0 || b.size < 0 {
			return wrong("appends to", b.partition)
		}
		at, begun := next[b.partition]
		if !begun {
			at = st.partitions[b.partition].next
		}
		if at != b.base {
			return wrong("appends to", b.partition)
		}
		next[b.partition] = at + eventlog.Offset(b.records)
	}
	for _, r := range c.replaces {
		p := st.partitions[r.partition]
		if p == nil {
			return wrong("replaces batches of", r.partition)
		}
		if _, _, whole := p.span(r.from, r.to); !whole {
			return wrong("replaces batches of", r.partition)
		}
	}
	for _, t := range c.trims {
		if st.partitions[t.partition] == nil {
			return wrong("trims", t.partition)
		}
	}
	for _, m := range c.moves {
		if st.find(m.partition, m.base) == nil {
			return wrong("moves batches of", m.partition)
		}
	}
	return nil
}
