package batch

import (
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
	for n := d.current.Add(1); ; {
		if most := d.most.Load(); n <= most || d.most.CompareAndSwap(most, n) {
			return d.gzipDecoder.open(src, limit)
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
			if err := Validate(raw, h, DefaultMaxDecompressed); err != nil {
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
