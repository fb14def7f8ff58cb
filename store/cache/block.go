package cache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"

	"github.com/weir-log/weir/eventlog"
)

// A block's file, with integers in big-endian order:
//
//	magic       8 bytes
//	checksum    4 bytes, CRC-32C of the rest of the head
//	count       4 bytes, of the batches
//	identity   16 bytes, of the store and its incarnation
//	partition, first, next, version: 8 bytes each
//	for each batch: records 4, size 4, newest time 8, CRC-32C of its bytes 4
//	the bytes of the batches
//
// So a read of a few batches needs the head and these batches, and checks both.
const (
	magic     = "weircch1"
	fixedSize = 8 + 4 + 4 + 16 + 4*8
	entrySize = 4 + 4 + 8 + 4
	countMax  = 1 << 22 // most batches of a block: the count may be damaged
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errChecksum = errors.New("its checksum does not match")

// encode returns the file of a block.
func encode(b *block, batches []eventlog.Placed) []byte {
	out := make([]byte, 12, encodedSize(batches))
	copy(out, magic)
	out = binary.BigEndian.AppendUint32(out, uint32(len(batches)))
	out = b.appendIdentity(out)
	for _, placed := range batches {
		out = binary.BigEndian.AppendUint32(out, uint32(placed.Records))
		out = binary.BigEndian.AppendUint32(out, uint32(len(placed.Bytes)))
		out = binary.BigEndian.AppendUint64(out, uint64(placed.MaxTime))
		out = binary.BigEndian.AppendUint32(out, crc32.Checksum(placed.Bytes, castagnoli))
	}
	binary.BigEndian.PutUint32(out[8:], crc32.Checksum(out[12:], castagnoli))
	for _, placed := range batches {
		out = append(out, placed.Bytes...)
	}
	return out
}

func encodedSize(batches []eventlog.Placed) int64 {
	size := int64(fixedSize + entrySize*len(batches))
	for _, placed := range batches {
		size += int64(len(placed.Bytes))
	}
	return size
}

// appendIdentity appends what tells the block from all others.
func (b *block) appendIdentity(to []byte) []byte {
	to = append(to, b.identity[:]...)
	for _, n := range []int64{int64(b.partition), int64(b.first), int64(b.next), int64(b.version)} {
		to = binary.BigEndian.AppendUint64(to, uint64(n))
	}
	return to
}

// readBlock returns the batches of a block from the one that holds an offset: those that fit into
// room bytes. With first, the first one is returned whatever its size. It reports whether all fit.
func readBlock(path string, b *block, from eventlog.Offset, room int, first bool) (batches []eventlog.Placed, all bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	head, err := readHead(file, b)
	if err != nil {
		return nil, false, err
	}
	var sizes []int
	var sums []uint32
	at, skip, total := b.first, int64(fixedSize+len(head)), 0
	for all = true; len(head) > 0; head = head[entrySize:] {
		placed := eventlog.Placed{Base: at, Batch: eventlog.Batch{
			Partition: b.partition,
			Records:   int32(binary.BigEndian.Uint32(head)),
			MaxTime:   eventlog.Timestamp(binary.BigEndian.Uint64(head[8:])),
		}}
		size := int(binary.BigEndian.Uint32(head[4:]))
		if at = placed.End(); at <= from {
			skip += int64(size)
			continue
		}
		if total+size > room && !(first && len(batches) == 0) {
			all = false
			break
		}
		total += size
		batches, sizes, sums = append(batches, placed), append(sizes, size), append(sums, binary.BigEndian.Uint32(head[16:]))
	}
	buffer := make([]byte, total) // one read for all batches
	if _, err := file.ReadAt(buffer, skip); err != nil {
		return nil, false, fmt.Errorf("read %d bytes at %d: %w", total, skip, err)
	}
	for i := range batches {
		n := sizes[i]
		batches[i].Bytes, buffer = buffer[:n:n], buffer[n:]
		if crc32.Checksum(batches[i].Bytes, castagnoli) != sums[i] {
			return nil, false, fmt.Errorf("the batch at offset %d: %w", batches[i].Base, errChecksum)
		}
	}
	return batches, all, nil
}

// readHead checks the head of a block, and returns its part about the batches.
func readHead(file *os.File, b *block) ([]byte, error) {
	fixed := make([]byte, fixedSize)
	if _, err := file.ReadAt(fixed, 0); err != nil {
		return nil, fmt.Errorf("read the head: %w", err)
	}
	count := int64(binary.BigEndian.Uint32(fixed[12:]))
	if string(fixed[:8]) != magic || count > countMax {
		return nil, errors.New("it is not a block")
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() < fixedSize+entrySize*count {
		return nil, fmt.Errorf("it has %d bytes, fewer than the head of %d batches", info.Size(), count)
	}
	head := make([]byte, entrySize*count)
	if _, err := file.ReadAt(head, fixedSize); err != nil {
		return nil, fmt.Errorf("read the head: %w", err)
	}
	sum := crc32.Update(crc32.Checksum(fixed[12:], castagnoli), castagnoli, head)
	if sum != binary.BigEndian.Uint32(fixed[8:]) {
		return nil, errChecksum
	}
	if !bytes.Equal(fixed[16:], b.appendIdentity(nil)) {
		return nil, errors.New("it is another block")
	}
	return head, nil
}
