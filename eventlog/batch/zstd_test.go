package batch

import "testing"

func TestZstdWindowIsTheNarrowestThatHolds(t *testing.T) {
	// decode is RFC 8878's own arithmetic.
	decode := func(code byte) uint64 {
		base := uint64(1) << (10 + code>>3)
		return base + base/8*uint64(code&7)
	}
	for _, n := range []uint64{0, 1, 1023, 1024, 1025, 1151, 1152, 1153, 2047, 2048, 2049, 1<<17 - 1, 1 << 17, 1<<17 + 1, 100 << 20, zstdWindowMax} {
		code, size := zstdWindow(n)
		if decode(code) != size || size < n || code > 0 && decode(code-1) >= n {
			t.Errorf("for %d bytes: code %#x, %d bytes; the code says %d, the one below %d", n, code, size, decode(code), decode(max(code, 1)-1))
		}
	}
}
