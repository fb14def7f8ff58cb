package ledger

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
)

// StampSize is how many bytes of a payload say what it is. A payload has at least so many.
const StampSize = 32

// Stamp says what a payload is: which event of which writer of which run, and when it was due.
type Stamp struct {
	Run    uint32
	Writer uint32
	Seq    uint64 // of the writer, from 0
	Due    int64  // nanoseconds since the run began; 0: nobody asks
}

// ErrCorrupt: a payload is not what was sent.
var ErrCorrupt = errors.New("the payload is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Payload returns size bytes that begin with the stamp; the rest is random, so that nothing can be
// compressed away. The checksum covers all of it.
func Payload(s Stamp, size int) []byte {
	b := make([]byte, max(size, StampSize))
	s.Put(b)
	random := rand.New(rand.NewPCG(uint64(s.Run)<<32|uint64(s.Writer), s.Seq))
	for i := StampSize - 4; i < len(b); i += 8 {
		var word [8]byte
		binary.BigEndian.PutUint64(word[:], random.Uint64())
		copy(b[i:], word[:])
	}
	binary.BigEndian.PutUint32(b, Checksum(b[4:]))
	return b
}

// Read returns the stamp of a payload, or ErrCorrupt.
func Read(b []byte) (Stamp, error) {
	if len(b) < StampSize || binary.BigEndian.Uint32(b) != Checksum(b[4:]) {
		return Stamp{}, ErrCorrupt
	}
	return StampIn(b), nil
}

// Checksum is the one that payloads have.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// Put writes a stamp to where StampIn reads it: after the checksum with which a payload begins.
func (s Stamp) Put(b []byte) {
	binary.BigEndian.PutUint32(b[4:], s.Run)
	binary.BigEndian.PutUint32(b[8:], s.Writer)
	binary.BigEndian.PutUint64(b[12:], s.Seq)
	binary.BigEndian.PutUint64(b[20:], uint64(s.Due))
}

// StampIn reads a stamp, and checks nothing.
func StampIn(b []byte) Stamp {
	return Stamp{
		Run: binary.BigEndian.Uint32(b[4:]), Writer: binary.BigEndian.Uint32(b[8:]),
		Seq: binary.BigEndian.Uint64(b[12:]), Due: int64(binary.BigEndian.Uint64(b[20:])),
	}
}
