package batch

import (
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"
)

// windowSize is how many decompressed bytes of a batch are usually in memory at a time.
const windowSize = 64 << 10

// cursor reads the records of a batch field by field, compressed or not.
//
//	let go │ read    │ at hand   │ room     │ still compressed
//	◀ gone ▶ win   win[pos]  len(win)  cap(win)
//
// An uncompressed batch is one window from the start. The first failure stays in err, and from then
// on all that is read is zero.
type cursor struct {
	win  []byte
	pos  int
	gone int
	src  decoder // nil when nothing more comes
	err  error

	codec Codec
	held  int          // bytes of decoderMemory that hold took for the decoder
	limit int          // on the bytes of all records together, decompressed
	ahead int          // bytes that a decoder of whole blocks (snappy) decompressed; 0 for others
	index int          // of the record that is being read
	last  int          // the offset delta of the record before; only with gaps
	most  int          // the highest offset delta allowed; only with gaps
	keyed bool         // a record without a key is wrong
	wrong *RecordError // what is wrong with records that could be read; nil: nothing so far
	gaps  bool         // offset deltas may have gaps: the batch was compacted
	end   int          // where the record that is being read ends, in the count of at()

	memory int // bytes that records and headers may still take once they are decoded, beside their own bytes

	keep  bool              // next hands out fields that the caller may keep: so a full window is replaced, not used again
	fresh int               // the size of a new window
	own   *[windowSize]byte // backs win, unless keep
}

var windows = sync.Pool{New: func() any { return new([windowSize]byte) }}

// turns lets one batch be decompressed per processor; more would be no faster. Only a cursor
// without keep takes a turn, because such a cursor waits for nobody before its close.
var turns = make(chan struct{}, runtime.GOMAXPROCS(0))

// start begins with the records of raw. close must follow. With keep, next hands out fields, which
// the caller may keep; without keep it hands out none.
func (c *cursor) start(raw []byte, codec Codec, limit int, keep bool) {
	records := raw[headerLen:]
	*c = cursor{codec: codec, limit: limit, keep: keep, index: WholeBatch, memory: math.MaxInt}
	switch {
	case codec == None:
		c.win, c.limit = records, len(records)
		return
	case keep:
		c.fresh = min(max(8*len(records), 1<<10), windowSize)
		c.held = hold(codec, records, limit)
	default:
		c.held = hold(codec, records, limit) // before the turn: whoever has a turn must not wait
		turns <- struct{}{}
		c.own = windows.Get().(*[windowSize]byte)
		c.win = c.own[:0]
	}
	src, err := openDecoder(codec, records, limit)
	if err != nil {
		c.failDecode(err)
		return
	}
	c.src = src
}

func (c *cursor) close() {
	if c.src != nil {
		closeDecoder(c.codec, c.src)
	}
	releaseDecoder(c.held)
	if c.own != nil {
		windows.Put(c.own)
		<-turns
	}
	c.src, c.own, c.win, c.held = nil, nil, nil, 0
}

// next reads the record with the given index. It sets rec's offset and timestamp, as deltas, and
// with keep all else.
func (c *cursor) next(index int, rec *Record) bool {
	c.index = index
	c.charge(recordMemory)
	size := c.varint()
	switch {
	case c.err != nil:
		return false
	case size < recordMin-1:
		c.fail("its length field says %d bytes; a record has at least %d", size, recordMin-1)
		return false
	case size > c.limit-c.at():
		c.failSize(size)
		return false
	}
	c.end = c.at() + size

	c.skip(1) // attributes; Kafka has none yet
	rec.Timestamp = c.varlong()
	rec.Offset = int64(c.varint())
	unkeyed := c.keyed && c.nullNext()
	key := c.field("key", nullable)
	value := c.field("value", nullable)
	headers := c.headers()
	switch {
	case c.err != nil:
		return false
	case c.at() != c.end:
		c.fail("its fields end %d bytes before the end given by its length", c.end-c.at())
		return false
	}
	if unkeyed {
		c.blame(index, "it has no key; compaction of the topic (cleanup.policy) needs keys", nil)
	}
	switch {
	case c.gaps && rec.Offset > int64(c.last) && rec.Offset <= int64(c.most):
		c.last = int(rec.Offset)
	case c.gaps:
		c.fail("its offset delta is %d; offset deltas of a compacted batch ascend, to %d at most; the one before is %d", rec.Offset, c.most, c.last)
		return false
	case rec.Offset != int64(index):
		c.fail("its offset delta is %d; offset deltas count from 0 without gaps", rec.Offset)
		return false
	}
	if c.keep {
		rec.Key, rec.Value, rec.Headers = key, value, headers
	}
	return true
}

// finish fails if there are bytes after the last record.
func (c *cursor) finish(records int) error {
	if c.err == nil && c.pos == len(c.win) && c.src != nil {
		c.fill(1)
	}
	if c.err == nil && c.pos < len(c.win) {
		c.index = WholeBatch
		c.fail("its header says %d records, but more bytes follow them", records)
	}
	return c.err
}

// allowGaps prepares for a batch that may have been compacted.
func (c *cursor) allowGaps(h Header) {
	c.gaps, c.last, c.most = h.LastOffsetDelta != h.Records-1, -1, int(h.LastOffsetDelta)
}

const (
	nullable = true
	notNull  = false
)

// field reads a length and so many bytes. Length -1 means null.
func (c *cursor) field(name string, null bool) []byte {
	n := c.varint()
	switch {
	case n == -1 && null, c.err != nil:
		return nil
	case n < 0:
		c.fail("the length of its %s is %d", name, n)
		return nil
	case n > c.end-c.at():
		c.fail("its %s has %d bytes, but only %d are left in the record", name, n, c.end-c.at())
		return nil
	case !c.keep:
		c.skip(n)
		return nil
	}
	return c.take(n)
}

// nullNext reports whether the next length is -1.
func (c *cursor) nullNext() bool {
	if c.pos == len(c.win) && c.src != nil {
		c.fill(1)
	}
	return c.pos < len(c.win) && c.win[c.pos] == 1 // zigzag; a longer encoding of -1 is not minimal, and no client sends it
}

func (c *cursor) headers() []RecordHeader {
	n := c.varint()
	// A header has two lengths, of a byte each at least.
	if c.err == nil && (n < 0 || n > (c.end-c.at())/2) {
		c.fail("it says it has %d headers, in %d bytes", n, c.end-c.at())
	}
	if c.err == nil {
		c.charge(n * headerMemory)
	}
	if c.err != nil || n == 0 {
		return nil
	}
	var headers []RecordHeader
	for range n {
		key := c.field("header key", notNull)
		value := c.field("header value", nullable)
		if c.err != nil {
			return nil
		}
		if c.keep {
			headers = append(headers, RecordHeader{string(key), value})
		}
	}
	return headers
}

// charge counts memory that decoding takes, before it is taken.
func (c *cursor) charge(n int) {
	if c.memory -= n; c.memory < 0 && c.err == nil {
		c.err = fmt.Errorf("%w: its records and headers, up to record %d, take %d bytes of memory besides their data, the limit is %d: send fewer of them in a batch",
			ErrDecodedTooLarge, c.index, DecodedMax-c.memory, DecodedMax)
	}
}

// decompressed returns how many bytes were decompressed so far, including bytes that nobody read.
func (c *cursor) decompressed() int {
	if c.codec == None {
		return 0
	}
	return max(c.gone+len(c.win), c.ahead)
}

// at is how far the cursor is, counted from the first record.
func (c *cursor) at() int { return c.gone + c.pos }

// varint reads a zigzag number of 32 bits.
func (c *cursor) varint() int {
	if c.pos < len(c.win) && c.win[c.pos] < 0x80 {
		b := c.win[c.pos]
		c.pos++
		return int(b>>1) ^ -int(b&1)
	}
	n := c.number(5)
	if n != int64(int32(n)) {
		c.fail("a number must fit in 32 bits, and is %d", n)
		return 0
	}
	return int(n)
}

// varlong reads a zigzag number of 64 bits.
func (c *cursor) varlong() int64 {
	if c.pos < len(c.win) && c.win[c.pos] < 0x80 {
		b := c.win[c.pos]
		c.pos++
		return int64(b>>1) ^ -int64(b&1)
	}
	return c.number(10)
}

// number reads a zigzag number of at most size bytes, seven bits in each.
func (c *cursor) number(size int) int64 {
	if c.err != nil {
		return 0
	}
	if len(c.win)-c.pos < size && c.src != nil {
		c.fill(size)
	}
	var u uint64
	for i, b := range c.win[c.pos:min(c.pos+size, len(c.win))] {
		u |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			if i == 9 && b > 1 {
				c.fail("a number has more than 64 bits")
				return 0
			}
			c.pos += i + 1
			return int64(u>>1) ^ -int64(u&1)
		}
	}
	switch {
	case c.err != nil:
	case len(c.win)-c.pos < size:
		c.fail("the data ends inside it")
	default:
		c.fail("a number does not end within %d bytes", size)
	}
	return 0
}

// skip passes over n bytes.
func (c *cursor) skip(n int) {
	for n > len(c.win)-c.pos && c.err == nil {
		n -= len(c.win) - c.pos
		c.pos = len(c.win)
		if c.src == nil {
			c.fail("the data ends inside it")
			return
		}
		c.fill(1)
	}
	if c.err == nil {
		c.pos += n
	}
}

// take hands out n bytes, which the caller may keep.
func (c *cursor) take(n int) []byte {
	if n > len(c.win)-c.pos && c.src != nil {
		c.fill(n)
	}
	if n > len(c.win)-c.pos {
		c.fail("the data ends inside it")
	}
	if c.err != nil {
		return nil
	}
	c.pos += n
	return c.win[c.pos-n : c.pos : c.pos]
}

// fill decompresses until n bytes are at hand, or the data ends, or the limit is passed.
func (c *cursor) fill(n int) {
	if c.pos+n > cap(c.win) {
		c.move(n)
	}
	for len(c.win)-c.pos < n && c.src != nil && c.err == nil {
		room := c.win[len(c.win):cap(c.win)]
		// One byte past the limit is enough to know that it is passed.
		if most := c.limit - c.gone - len(c.win) + 1; len(room) > most {
			room = room[:most]
		}
		got, err := c.src.Read(room)
		if whole, ok := c.src.(*snappyDecoder); ok {
			c.ahead = whole.total
		}
		c.win = c.win[:len(c.win)+got]
		switch {
		case c.gone+len(c.win) > c.limit:
			c.err = fmt.Errorf("%w: it decompresses to more than the limit, %d bytes", ErrTooLarge, c.limit)
		case err == io.EOF:
			closeDecoder(c.codec, c.src)
			c.src = nil
		case err != nil:
			c.failDecode(err)
		}
	}
}

// move makes room for n bytes from pos on: at the front of the window, or in a new one if the old
// belongs to the caller.
func (c *cursor) move(n int) {
	rest := c.win[c.pos:]
	c.gone += c.pos
	c.pos = 0
	if c.keep {
		c.win = append(make([]byte, 0, max(n, c.fresh)), rest...)
		return
	}
	c.win = c.win[:copy(c.win[:cap(c.win)], rest)]
}

// fail records why the record being read is wrong, unless something failed before.
func (c *cursor) fail(format string, args ...any) {
	if c.err == nil {
		c.err = &RecordError{Record: c.index, Reason: fmt.Sprintf(format, args...)}
	}
}

// blame notes that a record which could be read is wrong, once for each record. Reading goes on, so
// that all such records are known.
func (c *cursor) blame(index int, reason string, is error) {
	switch {
	case c.wrong == nil:
		c.wrong = &RecordError{Record: index, Reason: reason, is: is}
	case index == c.wrong.last():
	case len(c.wrong.Others) < othersMax:
		c.wrong.Others = append(c.wrong.Others, OtherRecord{index, reason})
	}
}

// failSize is for a record that claims more bytes than there can be.
func (c *cursor) failSize(size int) {
	if c.codec == None {
		c.fail("its length field says %d bytes, but only %d follow", size, c.limit-c.at())
		return
	}
	c.err = fmt.Errorf("%w: record %d says it has %d bytes, after %d bytes of other records; the batch may decompress to %d bytes at most",
		ErrTooLarge, c.index, size, c.at(), c.limit)
}

// failDecode is for what a decoder could not do.
func (c *cursor) failDecode(err error) {
	if errors.Is(err, ErrTooLarge) {
		c.err = err
		return
	}
	c.fail("its %s data cannot be decompressed: %v", c.codec, err)
}
