package batch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"

	"github.com/klauspost/compress/zstd"
)

const (
	// zstdWindowMax is the widest window that a frame may announce, the same as in Kafka, whose
	// consumers could not read a wider one. Java clients announce it at level 22, whatever the size
	// of the batch.
	zstdWindowMax = 128 << 20

	// zstdBlockMax is the most that one block decompresses to (RFC 8878, 3.1.1.2.4).
	zstdBlockMax = 128 << 10
)

// zstdDecoder decompresses through a window, for which it allocates as much as the frame announces.
// So narrow first lowers a wide window to what the frame can need.
type zstdDecoder struct {
	src    bytes.Reader
	stream *zstd.Decoder
	wide   bool // has had a window of more than pooledMax
}

func newZstdDecoder() any {
	// With concurrency 1 it decodes in the goroutine that reads, and so needs no Close.
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(fmt.Sprintf("zstd refuses its options: %v", err))
	}
	return &zstdDecoder{stream: z}
}

func (d *zstdDecoder) open(src []byte, limit int) error {
	src, window, err := narrow(src, uint64(limit))
	if err != nil {
		return err
	}
	d.wide = d.wide || window > pooledMax
	d.src.Reset(src)
	return d.stream.Reset(&d.src)
}

func (d *zstdDecoder) Read(p []byte) (int, error) { return d.stream.Read(p) }

func (d *zstdDecoder) close() bool {
	d.src.Reset(nil)
	return d.stream.Reset(nil) == nil && !d.wide
}

// narrow returns the frames of src, each window above pooledMax narrowed to the size of its data or
// to the limit, if that is less. The frames decompress to the same bytes, as nothing refers back
// past the first byte. It also returns the widest window, and does not change src itself.
//
//	frame:  magic 4 │ descriptor 1 │ window 1, unless single segment │ … │ blocks │ checksum 4, if any
//	block:  last 1 bit, type 2 bits, size 21 bits │ data
func narrow(src []byte, limit uint64) (narrowed []byte, widest uint64, err error) {
	const atWindow = 5
	narrowed = src
	for at := 0; at < len(src); {
		var h zstd.Header
		if err := h.Decode(src[at:]); err != nil {
			return nil, 0, err
		}
		end := at + h.HeaderSize
		if h.Skippable {
			at = end + int(h.SkippableSize)
			continue
		}
		if h.WindowSize > zstdWindowMax {
			return nil, 0, fmt.Errorf("%w: its zstd window has %d bytes, the limit is %d", ErrTooLarge, h.WindowSize, zstdWindowMax)
		}
		most, size, err := zstdBlocks(src[end:])
		if err != nil {
			return nil, 0, err
		}
		window := h.WindowSize
		switch {
		case h.SingleSegment && h.FrameContentSize > limit:
			return nil, 0, fmt.Errorf("%w: it decompresses to %d bytes, the limit is %d", ErrTooLarge, h.FrameContentSize, limit)
		case h.SingleSegment && h.FrameContentSize > most:
			return nil, 0, fmt.Errorf("a zstd frame says it decompresses to %d bytes, but its blocks have at most %d", h.FrameContentSize, most)
		case h.SingleSegment:
			window = h.FrameContentSize
		default:
			if code, need := zstdWindow(min(most, max(limit, zstdBlockMax))); window > pooledMax && need < window {
				if &narrowed[0] == &src[0] {
					narrowed = slices.Clone(src)
				}
				narrowed[at+atWindow], window = code, need
			}
		}
		widest = max(widest, window)
		at = end + size
		if h.HasCheckSum {
			at += 4
		}
	}
	return narrowed, widest, nil
}

// zstdBlocks walks the blocks of a frame, and returns how many bytes they decompress to at most,
// and how many they take in src.
func zstdBlocks(src []byte) (most uint64, size int, err error) {
	const raw, runLength, compressed = 0, 1, 2
	for last := false; !last; {
		if len(src)-size < 3 {
			return 0, 0, io.ErrUnexpectedEOF
		}
		header := uint32(src[size]) | uint32(src[size+1])<<8 | uint32(src[size+2])<<16
		size += 3
		last = header&1 != 0
		n := int(header >> 3)
		switch header >> 1 & 3 {
		case raw:
			most += uint64(n)
			size += n
		case runLength:
			most += uint64(n)
			size++
		case compressed:
			most += zstdBlockMax
			size += n
		default:
			return 0, 0, errors.New("a zstd block is of an unknown kind")
		}
		if size > len(src) {
			return 0, 0, io.ErrUnexpectedEOF
		}
	}
	return most, size, nil
}

// zstdWindow returns the narrowest window of at least n bytes, and the byte that announces it (RFC
// 8878, 3.1.1.1.2): five bits of exponent, three of eighths.
func zstdWindow(n uint64) (code byte, size uint64) {
	const least = 10 // the lowest exponent: 1 KiB
	if n <= 1<<least {
		return 0, 1 << least
	}
	exponent := bits.Len64(n) - 1
	eighth := uint64(1) << exponent / 8
	eighths := (n - 1<<exponent + eighth - 1) / eighth
	if eighths == 8 {
		exponent, eighths = exponent+1, 0
		eighth *= 2
	}
	return byte(exponent-least)<<3 | byte(eighths), 1<<exponent + eighths*eighth
}

func newZstdEncoder() any {
	// A batch seldom has more than a few hundred KiB, and readers pay for the window.
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(256<<10))
	if err != nil {
		panic(fmt.Sprintf("zstd refuses its options: %v", err))
	}
	return w
}
