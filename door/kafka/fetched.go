package kafka

import (
	"crypto/tls"
	"encoding/binary"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/budget"
)

// fetched is the answer to a Fetch. It is encoded here and not by kmsg, which would copy every
// record: batches are written to the socket from the log's memory, with a patched header in front
// of each.
type fetched struct {
	*kmsg.FetchResponse // version and error of the whole response

	topics      []fetchedTopic
	atOnce      bool // some partition has an answer already
	uncommitted bool // isolation level read_uncommitted
	epochAt     func(eventlog.Partition, eventlog.Offset) int32
}

type fetchedTopic struct {
	name       string
	id         topicID
	partitions []fetchedPartition
}

type fetchedPartition struct {
	number int32
	code   int16
	slice  eventlog.Slice

	elsewhere bool  // the client is to read from the broker nearest
	nearest   int32 // which may have the number 0
}

const (
	// patchedLen is the part of a batch that is rewritten when it is sent: base offset, length,
	// leader epoch.
	patchedLen = 16
	// spliceMin is the smallest batch that is written without a copy. A smaller batch is copied:
	// that is cheaper than one more buffer.
	spliceMin = 2 << 10
)

// splice is a batch's bytes, and where they are inserted: at is the number of bytes of the framing
// that are written before them.
type splice struct {
	at  int
	raw []byte
}

// fetchEncoder builds the framing, and notes where batches are inserted.
type fetchEncoder struct {
	b        []byte
	splices  []splice
	spliced  int // bytes of splices
	version  int16
	flexible bool
}

// sendFetched writes the answer after the response header b. While other clients wait for the
// memory that claim holds, a client that reads too slowly is disconnected.
func (c *conn) sendFetched(reused *sendBuffers, b []byte, f *fetched, claim *budget.Claim, began time.Time) (int, error) {
	e := fetchEncoder{b: slices.Grow(b, f.framing()), splices: reused.splices[:0], version: f.Version, flexible: f.IsFlexible()}
	e.response(f)
	reused.out, reused.splices = e.b, e.splices
	size := len(e.b) + e.spliced
	binary.BigEndian.PutUint32(e.b, uint32(size-lengthSize))

	buffers := reused.buffers[:0]
	from := 0
	for _, s := range e.splices {
		buffers = append(buffers, e.b[from:s.at], s.raw)
		from = s.at
	}
	reused.buffers = append(buffers, e.b[from:])
	claim.Sends(func() { c.nc.Close() })
	err := c.writePieces(reused, claim, began)
	claim.Rests()
	return size, err
}

// One write has at most pieceMax bytes. The limit is pieceContended while other clients wait for
// memory, to notice sooner that this client does not read. It is pieceContended with TLS, too:
// there the buffers of a piece are copied into one, because crypto/tls has no vectored writes and
// makes at least one record of each buffer.
const (
	pieceMax       = 256 << 10
	pieceContended = 64 << 10
)

// writePieces writes the buffers; each piece has a write deadline of its own.
func (c *conn) writePieces(reused *sendBuffers, claim *budget.Claim, began time.Time) error {
	_, encrypts := c.nc.(*tls.Conn)
	for buffers := reused.buffers; len(buffers) > 0; {
		limit := pieceMax
		if claim.Progress() || encrypts {
			limit = pieceContended
		}
		size, n := 0, 0
		for n < len(buffers) && size+len(buffers[n]) <= limit {
			size += len(buffers[n])
			n++
		}
		piece := buffers[:n] // WriteTo consumes the slice it is called on
		if n == 0 {
			piece = net.Buffers{buffers[0][:limit]}
			buffers[0] = buffers[0][limit:]
		}
		buffers = buffers[n:]
		if encrypts && len(piece) > 1 {
			reused.joined = reused.joined[:0]
			for _, b := range piece {
				reused.joined = append(reused.joined, b...)
			}
			piece = net.Buffers{reused.joined}
		}
		c.setWriteDeadline(began)
		if _, err := piece.WriteTo(c.nc); err != nil {
			return err
		}
	}
	return nil
}

// framing estimates how many bytes of the answer are not spliced.
func (f *fetched) framing() int {
	n := 64
	for _, t := range f.topics {
		n += 32 + len(t.name) + 48*len(t.partitions)
		for _, p := range t.partitions {
			for _, b := range p.slice.Batches {
				if len(b.Bytes) >= spliceMin {
					n += patchedLen
				} else {
					n += len(b.Bytes)
				}
			}
		}
	}
	return n
}

// size estimates how many bytes the answer has.
func (f *fetched) size() int {
	n := f.framing()
	for _, t := range f.topics {
		for _, p := range t.partitions {
			for _, b := range p.slice.Batches {
				if len(b.Bytes) >= spliceMin {
					n += len(b.Bytes) - patchedLen
				}
			}
		}
	}
	return n
}

func (e *fetchEncoder) response(f *fetched) {
	e.int32(f.ThrottleMillis)
	if e.version >= 7 {
		e.int16(f.ErrorCode)
		e.int32(0) // session
	}
	e.length(len(f.topics))
	for i := range f.topics {
		t := &f.topics[i]
		if e.version >= 13 {
			e.b = append(e.b, t.id[:]...)
		} else {
			e.string(t.name)
		}
		e.length(len(t.partitions))
		for k := range t.partitions {
			e.partition(&t.partitions[k], f)
		}
		e.noTags()
	}
	e.noTags()
}

func (e *fetchEncoder) partition(p *fetchedPartition, f *fetched) {
	e.int32(p.number)
	e.int16(p.code)
	b := p.slice.Bounds
	next, stable, first := int64(b.Next), int64(b.Stable()), int64(b.First)
	preferred := int32(-1)
	if p.elsewhere {
		preferred = p.nearest
	}
	if p.code != 0 || p.elsewhere {
		next, stable, first = -1, -1, -1
	}
	e.int64(next) // high watermark
	e.int64(stable)
	if e.version >= 5 {
		e.int64(first)
	}
	if f.uncommitted { // aborted transactions
		e.length(-1)
	} else {
		e.length(0)
	}
	if e.version >= 11 {
		e.int32(preferred) // preferred read replica
	}
	size := 0
	for _, b := range p.slice.Batches {
		size += len(b.Bytes)
	}
	e.length(size)
	for _, b := range p.slice.Batches {
		e.batch(b, f.epochAt(b.Partition, b.Base))
	}
	e.noTags()
}

// batch appends a batch. Its bytes are shared with other readers, so the patched fields are written
// to the framing instead. The CRC does not cover these fields.
func (e *fetchEncoder) batch(b eventlog.Placed, epoch int32) {
	e.int64(int64(b.Base))
	e.b = append(e.b, b.Bytes[8:12]...) // length
	e.int32(epoch)
	rest := b.Bytes[patchedLen:]
	if len(b.Bytes) < spliceMin {
		e.b = append(e.b, rest...)
		return
	}
	e.splices = append(e.splices, splice{at: len(e.b), raw: rest})
	e.spliced += len(rest)
}

func (e *fetchEncoder) int16(v int16) { e.b = binary.BigEndian.AppendUint16(e.b, uint16(v)) }
func (e *fetchEncoder) int32(v int32) { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *fetchEncoder) int64(v int64) { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }

// length appends the length of an array or of bytes; -1 is null.
func (e *fetchEncoder) length(n int) {
	if e.flexible {
		e.b = binary.AppendUvarint(e.b, uint64(n+1))
	} else {
		e.int32(int32(n))
	}
}

func (e *fetchEncoder) string(s string) {
	if e.flexible {
		e.b = binary.AppendUvarint(e.b, uint64(len(s)+1))
	} else {
		e.int16(int16(len(s)))
	}
	e.b = append(e.b, s...)
}

func (e *fetchEncoder) noTags() {
	if e.flexible {
		e.b = append(e.b, 0)
	}
}
