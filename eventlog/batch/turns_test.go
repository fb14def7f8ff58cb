package batch

import (
	"encoding/binary"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// slowDecoder lets everybody else go first, and counts how many of its kind are open.
type slowDecoder struct {
	gzipDecoder
	current, most *atomic.Int32
}

func (d *slowDecoder) open(src []byte, limit int) error {
	d.count()
	return d.gzipDecoder.open(src, limit)
}

func (d *slowDecoder) count() {
	for n := d.current.Add(1); ; {
		if most := d.most.Load(); n <= most || d.most.CompareAndSwap(most, n) {
			return
		}
	}
}

func (d *slowDecoder) Read(p []byte) (int, error) {
	for range 100 {
		runtime.Gosched()
	}
	return d.gzipDecoder.Read(p)
}

func (d *slowDecoder) close() bool {
	d.current.Add(-1)
	return d.gzipDecoder.close()
}

func TestDecompressionTakesTurns(t *testing.T) {
	var open, most atomic.Int32
	whole := decoders[Gzip].New
	decoders[Gzip] = sync.Pool{New: func() any { return &slowDecoder{current: &open, most: &most} }}
	defer func() { decoders[Gzip] = sync.Pool{New: whole} }()

	raw, err := Seal(slices.Repeat([]Record{{Value: make([]byte, 1000)}}, 500), Gzip)
	if err != nil {
		t.Fatal(err)
	}
	h, err := Check(raw)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, err := Validate(raw, h, DefaultMaxDecompressed); err != nil {
				t.Error(err)
			}
			if _, err := Recompress(raw, None, DefaultMaxDecompressed, math.MaxInt); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := most.Load(); n < 1 || int(n) > runtime.GOMAXPROCS(0) {
		t.Errorf("%d batches were decompressed at once, on %d processors", n, runtime.GOMAXPROCS(0))
	}
	if n := open.Load(); n != 0 {
		t.Errorf("%d decoders are still open", n)
	}
}

// emptyDecoder decodes nothing, and counts how many of its kind are open.
type emptyDecoder struct{ slowDecoder }

func (d *emptyDecoder) open([]byte, int) error {
	d.count()
	return nil
}

func (d *emptyDecoder) Read([]byte) (int, error) {
	for range 100 {
		runtime.Gosched()
	}
	return 0, io.EOF
}

func (d *emptyDecoder) close() bool {
	d.current.Add(-1)
	return true
}

// Large windows and blocks are counted, however many processors there are and whoever reads.
func TestLargeDecodersShareTheirMemory(t *testing.T) {
	const size, atOnce = 60 << 20, decoderMemory / (60 << 20)
	window := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3}
	for range size >> 17 {
		window = append(window, 0x02, 0x00, 0x10, 0) // 1<<17 bytes, run-length encoded
	}
	window = append(window, 1, 0, 0)
	block := append(binary.AppendUvarint(nil, size), make([]byte, size/snappyMost+1)...)
	xerial := binary.BigEndian.AppendUint32(slices.Clone(xerialHeader), uint32(len(block)))
	xerial = append(xerial, block...)
	before := turns
	turns = make(chan struct{}, 64) // as on a large machine
	defer func() { turns = before }()
	for codec, data := range map[Codec][][]byte{Zstd: {window}, Snappy: {block, xerial}} {
		for _, records := range data {
			var open, most atomic.Int32
			whole := decoders[codec].New
			decoders[codec] = sync.Pool{New: func() any { return &emptyDecoder{slowDecoder{current: &open, most: &most}} }}
			h := Header{Records: 1, Attributes: Attributes(codec), LastOffsetDelta: 0, ProducerID: -1}
			raw := seal(append(make([]byte, headerLen), records...), 0, h)
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					if _, err := Validate(raw, h, DefaultMaxDecompressed); err == nil {
						t.Errorf("%v: a batch without records is valid", codec)
					}
					for range Records(raw, DefaultMaxDecompressed) {
					}
				})
			}
			all.Wait()
			decoders[codec] = sync.Pool{New: whole}
			if n := most.Load(); n < 1 || n > atOnce {
				t.Errorf("%v: %d decoders of %d bytes were open at once, together they may have %d", codec, n, size, decoderMemory)
			}
			if !memory.TryAcquire(decoderMemory) {
				t.Fatalf("%v: memory is still held", codec)
			}
			memory.Release(decoderMemory)
		}
	}
}
