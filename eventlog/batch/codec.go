package batch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/pierrec/lz4/v4"
	"golang.org/x/sync/semaphore"
)

// Codec is how the records of a batch are compressed, by Kafka's numbers.
type Codec int8

// The codecs that there are.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

var codecNames = [...]string{None: "none", Gzip: "gzip", Snappy: "snappy", LZ4: "lz4", Zstd: "zstd"}

func (c Codec) String() string {
	if c < 0 || int(c) >= len(codecNames) {
		return fmt.Sprintf("codec %d", int8(c))
	}
	return codecNames[c]
}

const (
	// DefaultMaxDecompressed bounds what one batch may decompress to: as much as Kafka's
	// socket.request.max.bytes lets a client send without compression.
	DefaultMaxDecompressed = 100 << 20

	// pooledMax is the largest buffer that a pooled decoder may keep: one odd batch must not cost
	// memory for ever.
	pooledMax = 8 << 20
)

// decoder turns compressed bytes into a stream of records.
type decoder interface {
	// open begins with src. A block that must be in memory as a whole must not exceed limit bytes.
	// The caller of Read counts the bytes that Read returns.
	open(src []byte, limit int) error
	io.Reader
	// close releases src, and reports whether the decoder is worth keeping.
	close() (keep bool)
}

var decoders = [...]sync.Pool{
	Gzip:   {New: func() any { return new(gzipDecoder) }},
	Snappy: {New: func() any { return new(snappyDecoder) }},
	LZ4:    {New: func() any { return &lz4Decoder{lz4: lz4.NewReader(nil)} }},
	Zstd:   {New: newZstdDecoder},
}

// openDecoder begins to decompress src. Give the decoder back with closeDecoder, also after an
// error of Read.
func openDecoder(codec Codec, src []byte, limit int) (decoder, error) {
	d := decoders[codec].Get().(decoder)
	if err := d.open(src, limit); err != nil {
		closeDecoder(codec, d)
		return nil, err
	}
	return d, nil
}

func closeDecoder(codec Codec, d decoder) {
	if d.close() {
		decoders[codec].Put(d)
	}
}

const (
	// decoderMemory bounds the memory that all large decoders of the process hold together.
	decoderMemory = 128 << 20

	// smallDecoder is what a decoder may hold uncounted.
	smallDecoder = 1 << 20
)

var memory = semaphore.NewWeighted(decoderMemory)

// hold waits until there is memory for the decoder of src, and returns how many bytes it took. Most
// decoders need little and do not wait.
func hold(codec Codec, src []byte, limit int) (held int) {
	switch codec {
	case Zstd:
		if _, window, err := narrow(src, uint64(limit)); err == nil {
			held = int(window)
		}
	case Snappy:
		held = min(snappyHeld(src), limit)
	}
	if held <= smallDecoder {
		return 0
	}
	held = min(held, decoderMemory)
	if err := memory.Acquire(context.Background(), int64(held)); err != nil {
		panic(fmt.Sprintf("a wait for %d of %d bytes ended: %v", held, decoderMemory, err)) // only its context could end it
	}
	return held
}

func releaseDecoder(held int) { memory.Release(int64(held)) }

// gzipDecoder reads any number of gzip members, one after the other.
type gzipDecoder struct {
	src bytes.Reader
	gzip.Reader
}

func (d *gzipDecoder) open(src []byte, _ int) error {
	d.src.Reset(src)
	return d.Reader.Reset(&d.src)
}

func (d *gzipDecoder) close() bool {
	d.src.Reset(nil)
	return true
}

// lz4Decoder reads frames. It holds a block or two, of 4 MiB at most (8 MiB in the legacy frame).
type lz4Decoder struct {
	src bytes.Reader
	lz4 *lz4.Reader
}

func (d *lz4Decoder) open(src []byte, _ int) error {
	d.src.Reset(src)
	d.lz4.Reset(&d.src)
	return nil
}

func (d *lz4Decoder) Read(p []byte) (int, error) { return d.lz4.Read(p) }

func (d *lz4Decoder) close() bool {
	d.src.Reset(nil)
	d.lz4.Reset(nil) // its blocks go back to their own pool
	return true
}

// encoder compresses what is written to it.
type encoder interface {
	io.WriteCloser
	Reset(io.Writer)
}

var encoders = [...]sync.Pool{
	Gzip:   {New: func() any { return gzip.NewWriter(nil) }},
	Snappy: {New: func() any { return new(xerialWriter) }},
	LZ4:    {New: newLZ4Encoder},
	Zstd:   {New: newZstdEncoder},
}

func newLZ4Encoder() any {
	w := lz4.NewWriter(nil)
	// Kafka's Java classes write blocks of 64 KiB, too. Small blocks need small buffers, here and
	// in every reader.
	if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb)); err != nil {
		panic(fmt.Sprintf("lz4 refuses its options: %v", err))
	}
	return w
}
