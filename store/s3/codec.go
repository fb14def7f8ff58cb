package s3

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storerow"
)

// Objects are written as docs/s3-format.md says: a frame with a head that has a checksum, then
// bytes of batches, each with a checksum of its own in the head.
//
//	| magic 8 | length of the head 4 | CRC-32C of the head 4 | head | batches |
const (
	magicFormat   = "weirS3F1"
	magicCommit   = "weirS3C1"
	magicSnapshot = "weirS3S2"
	magicPart     = "weirS3P1" // a part of a snapshot
	// magicSnapshotOld is a snapshot in one object, as it was written before there were parts.
	magicSnapshotOld = "weirS3S1"
	magicSegment     = "weirS3G1"
	frameSize        = 16
	// headMax bounds the head of an object that is read: a snapshot of everything that fits in
	// memory.
	headMax = 1 << 31
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	// errDamaged: an object does not hold what was written.
	errDamaged = errors.New("damaged object")
)

type hash [sha256.Size]byte

// seal puts a head into its frame. The hash names the object, and with it everything that its head
// has checksums of.
func seal(magic string, head []byte) (framed []byte, of hash) {
	framed = append(make([]byte, 0, frameSize+len(head)), magic...)
	framed = binary.BigEndian.AppendUint32(framed, uint32(len(head)))
	framed = binary.BigEndian.AppendUint32(framed, crc32.Checksum(head, castagnoli))
	return append(framed, head...), sha256.Sum256(head)
}

// headLength returns the length of the head that a frame begins with.
func headLength(magic string, object []byte) (int, error) {
	if len(object) < frameSize {
		return 0, fmt.Errorf("%w: it has %d bytes, fewer than a frame's %d", errDamaged, len(object), frameSize)
	}
	if got := string(object[:8]); got != magic {
		if got[:7] == magic[:7] && got[7] > magic[7] && got[7] <= '9' { // the last byte is the format's version
			return 0, storerow.Newer("objects "+magic[:7], int(got[7]-'0'), int(magic[7]-'0'))
		}
		return 0, fmt.Errorf("%w: it begins with %q, want %q (another version of weir, or another program, may have written it)", errDamaged, got, magic)
	}
	n := binary.BigEndian.Uint32(object[8:])
	if n >= headMax {
		return 0, fmt.Errorf("%w: its head has %d bytes, the limit is %d", errDamaged, n, headMax)
	}
	return int(n), nil
}

// unseal returns the head of an object, checked.
func unseal(magic string, object []byte) ([]byte, hash, error) {
	n, err := headLength(magic, object)
	if err != nil {
		return nil, hash{}, err
	}
	if len(object) < frameSize+n {
		return nil, hash{}, fmt.Errorf("%w: it is cut: it has %d bytes, and its head alone ends at %d", errDamaged, len(object), frameSize+n)
	}
	head := object[frameSize : frameSize+n]
	if got, want := crc32.Checksum(head, castagnoli), binary.BigEndian.Uint32(object[12:]); got != want {
		return nil, hash{}, fmt.Errorf("%w: the CRC-32C of its head is %08x, want %08x", errDamaged, got, want)
	}
	return head, sha256.Sum256(head), nil
}

// writer encodes the primitive values of a head, and reader decodes them: variable-length integers
// as in encoding/binary, and strings after their length.
type writer struct{ b []byte }

func (w *writer) uint(v uint64)   { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) int(v int64)     { w.b = binary.AppendVarint(w.b, v) }
func (w *writer) bytes(v []byte)  { w.uint(uint64(len(v))); w.b = append(w.b, v...) }
func (w *writer) string(v string) { w.uint(uint64(len(v))); w.b = append(w.b, v...) }
func (w *writer) bool(v bool) {
	if v {
		w.uint(1)
	} else {
		w.uint(0)
	}
}

type reader struct {
	b   []byte
	err error
}

func (r *reader) fail() {
	if r.err == nil {
		r.err = fmt.Errorf("%w: its head ends within a value", errDamaged)
	}
	r.b = nil
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes() []byte {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) string() string { return string(r.bytes()) }
func (r *reader) bool() bool     { return r.uint() == 1 }

// count reads the length of a list, each element of which takes at least a byte.
func (r *reader) count() int {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) hash() (h hash) {
	if b := r.bytes(); len(b) == len(h) {
		copy(h[:], b)
	} else {
		r.fail()
	}
	return h
}

func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		return fmt.Errorf("%w: %d bytes follow its head's last value", errDamaged, len(r.b))
	}
	return r.err
}

// list writes a list, and listed reads one.
func list[T any](w *writer, all []T, each func(*writer, T)) {
	w.uint(uint64(len(all)))
	for _, v := range all {
		each(w, v)
	}
}

func listed[T any](r *reader, each func(*reader) T) []T {
	n := r.count()
	var all []T
	for range n {
		all = append(all, each(r))
		if r.err != nil {
			return nil
		}
	}
	return all
}

type (
	// commit is the head of a commit object: number n of the chain, and what it changes.
	commit struct {
		store    string // the random id in the object "format"
		number   int64
		previous hash // the hash of commit n-1
		writer   string
		nonce    string
		time     eventlog.Timestamp // the store's clock; never below that of commit n-1
		effects
	}

	// effects are what a commit changes. They are applied in this order, except that replaces come
	// before trims; no commit has both. Nothing is left to decide: checks were made by the writer.
	effects struct {
		life     string // not empty: a new incarnation begins
		opens    []eventlog.Partition
		batches  []placed
		puts     []put
		trims    []trim
		replaces []replace
		forgets  []eventlog.Partition
		moves    []move
		drops    []string // segments that no state may name after this commit
	}

	// placed is a batch within the batches that follow the head.
	placed struct {
		partition eventlog.Partition
		base      eventlog.Offset
		records   int32
		maxTime   eventlog.Timestamp
		size      int
		crc       uint32
	}

	put struct {
		key     string
		version eventlog.Version
		deleted bool
		secret  bool // Put.Secret; also true if that is not known
		value   []byte
	}

	trim struct {
		partition eventlog.Partition
		first     eventlog.Offset
	}

	// replace puts its batches in the place of the stored ones that hold [from, to). In the object
	// they follow those of effects.batches.
	replace struct {
		partition eventlog.Partition
		from, to  eventlog.Offset
		batches   []placed
	}

	// move says that a stored batch lies in a segment from now on.
	move struct {
		segment   string
		partition eventlog.Partition
		base      eventlog.Offset
		at        int64
	}
)

// Kinds of a put. Older processes know only the first two: they write every value as putSecret,
// though it need not be a secret, and they read putPlain as they read putSecret.
const (
	putSecret  = 0
	putDeleted = 1
	putPlain   = 2
)

func (p put) kind() uint64 {
	switch {
	case p.deleted:
		return putDeleted
	case p.secret:
		return putSecret
	}
	return putPlain
}

func (e *effects) none() bool {
	return e.life == "" && len(e.opens)+len(e.batches)+len(e.puts)+len(e.trims)+len(e.replaces)+len(e.forgets)+len(e.moves)+len(e.drops) == 0
}

// onlyAdds reports whether a commit has batches, and leaves all older ones where they are.
func (e *effects) onlyAdds() bool {
	return len(e.batches) > 0 && len(e.trims)+len(e.replaces)+len(e.forgets)+len(e.moves) == 0
}

func writePlaced(w *writer, b placed) {
	w.int(int64(b.partition))
	w.int(int64(b.base))
	w.uint(uint64(b.records))
	w.int(int64(b.maxTime))
	w.uint(uint64(b.size))
	w.uint(uint64(b.crc))
}

func readPlaced(r *reader) placed {
	return placed{eventlog.Partition(r.int()), eventlog.Offset(r.int()), int32(r.uint()), eventlog.Timestamp(r.int()), int(r.uint()), uint32(r.uint())}
}

func writePartition(w *writer, p eventlog.Partition) { w.int(int64(p)) }
func readPartition(r *reader) eventlog.Partition     { return eventlog.Partition(r.int()) }

// encode returns the head in its frame, without the batches.
func (c *commit) encode() ([]byte, hash) {
	var w writer
	w.string(c.store)
	w.int(c.number)
	w.bytes(c.previous[:])
	w.string(c.writer)
	w.string(c.nonce)
	w.int(int64(c.time))
	w.string(c.life)
	list(&w, c.opens, writePartition)
	list(&w, c.batches, writePlaced)
	list(&w, c.puts, func(w *writer, p put) {
		w.string(p.key)
		w.int(int64(p.version))
		w.uint(p.kind())
		w.bytes(p.value)
	})
	list(&w, c.trims, func(w *writer, t trim) { w.int(int64(t.partition)); w.int(int64(t.first)) })
	list(&w, c.replaces, func(w *writer, r replace) {
		w.int(int64(r.partition))
		w.int(int64(r.from))
		w.int(int64(r.to))
		list(w, r.batches, writePlaced)
	})
	list(&w, c.forgets, writePartition)
	list(&w, c.moves, func(w *writer, m move) {
		w.string(m.segment)
		w.int(int64(m.partition))
		w.int(int64(m.base))
		w.int(m.at)
	})
	list(&w, c.drops, (*writer).string)
	return seal(magicCommit, w.b)
}

func decodeCommit(object []byte) (*commit, hash, error) {
	head, of, err := unseal(magicCommit, object)
	if err != nil {
		return nil, of, err
	}
	r := &reader{b: bytes.Clone(head)}
	c := &commit{store: r.string(), number: r.int(), previous: r.hash(), writer: r.string(), nonce: r.string(), time: eventlog.Timestamp(r.int())}
	c.life = r.string()
	c.opens = listed(r, readPartition)
	c.batches = listed(r, readPlaced)
	c.puts = listed(r, func(r *reader) put {
		p := put{key: r.string(), version: eventlog.Version(r.int())}
		kind := r.uint()
		p.deleted, p.secret, p.value = kind == putDeleted, kind == putSecret, r.bytes()
		return p
	})
	c.trims = listed(r, func(r *reader) trim { return trim{eventlog.Partition(r.int()), eventlog.Offset(r.int())} })
	c.replaces = listed(r, func(r *reader) replace {
		return replace{eventlog.Partition(r.int()), eventlog.Offset(r.int()), eventlog.Offset(r.int()), listed(r, readPlaced)}
	})
	c.forgets = listed(r, readPartition)
	c.moves = listed(r, func(r *reader) move {
		return move{r.string(), eventlog.Partition(r.int()), eventlog.Offset(r.int()), r.int()}
	})
	c.drops = listed(r, (*reader).string)
	return c, of, r.end()
}
