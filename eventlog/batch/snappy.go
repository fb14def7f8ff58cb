package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/snappy"
)

// Snappy comes in two formats. librdkafka and franz-go send one raw block, Java clients (and
// franz-go, where it streams) the framing of xerial's snappy-java: a header of 16 bytes, then
// blocks, each after its length. Java readers take both.

const (
	xerialHeaderLen = 16

	// xerialBlock is how much snappy-java puts into one block.
	xerialBlock = 32 << 10
)

// xerialHeader is the magic, then the version and the lowest version that can read it, both 1.
var xerialHeader = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

// xerialMagic distinguishes the two formats: no valid raw block begins with these bytes, because
// after the length there would be a copy from before the first byte.
var xerialMagic = xerialHeader[:8]

// snappyDecoder holds one decoded block, which can only be decoded as a whole.
type snappyDecoder struct {
	src   []byte // blocks still to decode
	raw   bool   // src is one raw block
	limit int
	total int    // bytes of all blocks decoded so far
	buf   []byte // backs block
	block []byte // decoded, still to be read
}

func (d *snappyDecoder) open(src []byte, limit int) error {
	d.src, d.raw, d.limit, d.total, d.block = src, true, limit, 0, nil
	if len(src) >= xerialHeaderLen && bytes.HasPrefix(src, xerialMagic) {
		d.src, d.raw = src[xerialHeaderLen:], false
	}
	return nil
}

func (d *snappyDecoder) Read(p []byte) (int, error) {
	for len(d.block) == 0 {
		if len(d.src) == 0 {
			return 0, io.EOF
		}
		if err := d.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, d.block)
	d.block = d.block[n:]
	return n, nil
}

// next decodes one block.
func (d *snappyDecoder) next() error {
	block := d.src
	if d.raw {
		d.src = nil
	} else {
		if len(d.src) < 4 {
			return io.ErrUnexpectedEOF
		}
		size := binary.BigEndian.Uint32(d.src)
		if uint64(size) > uint64(len(d.src)-4) {
			return fmt.Errorf("a snappy block says it has %d bytes, but %d are left", size, len(d.src)-4)
		}
		block, d.src = d.src[4:4+size], d.src[4+size:]
	}
	size, err := snappy.DecodedLen(block)
	if err != nil {
		return err
	}
	if size > d.limit {
		return fmt.Errorf("%w: a snappy block decompresses to %d bytes, the limit is %d", ErrTooLarge, size, d.limit)
	}
	if size > snappyMost*len(block) {
		return fmt.Errorf("a snappy block of %d bytes says it decompresses to %d bytes, which is not possible", len(block), size)
	}
	d.total += size
	if size > cap(d.buf) {
		d.buf = make([]byte, max(size, xerialBlock))
	}
	d.block, err = snappy.Decode(d.buf[:cap(d.buf)], block)
	return err
}

// snappyMost is how many bytes one byte of a block can stand for: a copy of 64 bytes takes 3, one
// of 11 takes 2 (format_description.txt of google/snappy, 2.2). No memory is allocated for a block
// that is too short for the size that it claims.
const snappyMost = 22

// snappyHeld is how many bytes the largest block decodes to.
func snappyHeld(src []byte) (most int) {
	if len(src) < xerialHeaderLen || !bytes.HasPrefix(src, xerialMagic) {
		return snappyLen(src)
	}
	for src = src[xerialHeaderLen:]; len(src) >= 4; {
		size := binary.BigEndian.Uint32(src)
		if uint64(size) > uint64(len(src)-4) {
			break
		}
		most, src = max(most, snappyLen(src[4:4+size])), src[4+size:]
	}
	return most
}

// snappyLen is how many bytes a block decodes to; 0 if it cannot.
func snappyLen(block []byte) int {
	size, err := snappy.DecodedLen(block)
	if err != nil || size > snappyMost*len(block) {
		return 0
	}
	return size
}

func (d *snappyDecoder) close() bool {
	d.src, d.block = nil, nil
	return cap(d.buf) <= pooledMax
}

// xerialWriter compresses in the xerial framing.
type xerialWriter struct {
	dst io.Writer
	in  []byte // gathers one block
	out []byte
}

func (w *xerialWriter) Reset(dst io.Writer) {
	w.dst, w.in, w.out = dst, w.in[:0], append(w.out[:0], xerialHeader...)
}

func (w *xerialWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(w.in)+len(p) >= xerialBlock {
		room := xerialBlock - len(w.in)
		w.in = append(w.in, p[:room]...)
		p = p[room:]
		if err := w.flush(); err != nil {
			return 0, err
		}
	}
	w.in = append(w.in, p...)
	return n, nil
}

// Close writes what is left. The writer can be used again after a Reset.
func (w *xerialWriter) Close() error { return w.flush() }

func (w *xerialWriter) flush() error {
	if len(w.in) > 0 {
		w.out = slices.Grow(w.out, 4+snappy.MaxEncodedLen(len(w.in)))
		at := len(w.out) + 4
		block := snappy.Encode(w.out[at:cap(w.out)], w.in) // in place, as there is space
		w.out = binary.BigEndian.AppendUint32(w.out, uint32(len(block)))
		w.out = w.out[:at+len(block)]
	}
	_, err := w.dst.Write(w.out)
	w.in, w.out = w.in[:0], w.out[:0]
	return err
}
