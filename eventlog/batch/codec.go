package batch

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
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
	// DefaultMaxDecompressed bounds what one batch may decompress to. Java clients at zstd's highest level announce a
	// window of so many bytes, and Kafka takes no wider one.
	DefaultMaxDecompressed = 128 << 20

	// windowMin is the zstd window that is always allowed, however low the limit on the data: the format asks it of every
	// decoder (RFC 8878, 3.1.1.1.2), and encoders announce a wide window for little data.
	windowMin = 8 << 20

	// pooledMax is the largest buffer that a pooled decoder may keep: one odd batch must not cost memory for ever.
	pooledMax = windowMin
)

// decoder turns compressed bytes into a stream of records.
type decoder interface {
	// open begins with src. The limit is for what must be held in memory at once; it is the reader who counts
	// what comes out of Read.
	open(src []byte, limit int) error
	io.Reader
	// close lets go of src, and tells whether the decoder is worth keeping.
	close() (keep bool)
}

var decoders = [...]sync.Pool{
	Gzip:   {New: func() any { return new(gzipDecoder) }},
	Snappy: {New: func() any { return new(snappyDecoder) }},
	LZ4:    {New: func() any { return &lz4Decoder{lz4: lz4.NewReader(nil)} }},
	Zstd:   {New: newZstdDecoder},
}

// openDecoder begins to decompress src. What it returns goes back with closeDecoder, also after an error of Read.
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

// zstdDecoder holds one window, as wide as the frame announces and max(limit, windowMin) at most.
type zstdDecoder struct {
	src bytes.Reader
	*zstd.Decoder
	wide bool // keeps a window wider than pooledMax
}

func newZstdDecoder() any {
	// One decoder decodes in the goroutine that reads, and so needs no Close.
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(fmt.Sprintf("zstd refuses its options: %v", err))
	}
	return &zstdDecoder{Decoder: z}
}

func (d *zstdDecoder) open(src []byte, limit int) error {
	window := uint64(max(limit, windowMin))
	var first zstd.Header
	// A header that cannot be read is Read's to report.
	d.wide = first.Decode(src) == nil && max(first.WindowSize, first.FrameContentSize) > pooledMax
	d.src.Reset(src)
	// For a stream this bounds the window.
	return d.Decoder.ResetWithOptions(&d.src, zstd.WithDecoderMaxMemory(window))
}

func (d *zstdDecoder) close() bool {
	d.src.Reset(nil)
	return d.Decoder.Reset(nil) == nil && !d.wide
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
	// Kafka's Java classes write blocks of 64 KiB; smaller buffers for us and for every reader.
	if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb)); err != nil {
		panic(fmt.Sprintf("lz4 refuses its options: %v", err))
	}
	return w
}

func newZstdEncoder() any {
	// A batch seldom has more than a few hundred KiB, and readers pay for the window.
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(256<<10))
	if err != nil {
		panic(fmt.Sprintf("zstd refuses its options: %v", err))
	}
	return w
}
