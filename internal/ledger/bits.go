package ledger

import (
	"iter"
	mathbits "math/bits"
)

// bits is a set of numbers from 0, of one bit each.
type bits struct{ words []uint64 }

func (b *bits) set(n uint64) {
	for uint64(len(b.words)) <= n/64 {
		b.words = append(b.words, 0)
	}
	b.words[n/64] |= 1 << (n % 64)
}

func (b *bits) has(n uint64) bool {
	return n/64 < uint64(len(b.words)) && b.words[n/64]&(1<<(n%64)) != 0
}

// all are the numbers in the set, in order.
func (b *bits) all() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for i, w := range b.words {
			for w != 0 {
				if !yield(uint64(i)*64 + uint64(mathbits.TrailingZeros64(w))) {
					return
				}
				w &= w - 1
			}
		}
	}
}
