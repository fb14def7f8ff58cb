package eventlog

// Budget decides which batches an answer has: the batches of a span have at most its MaxBytes, the
// batches of all spans at most the budget's, and only the very first batch is taken whatever its
// size, so that readers make progress (KIP-74).
type Budget struct {
	left  int  // how many bytes are left for all spans
	span  int  // how many bytes are left for the current span
	ended bool // this span has met a batch that did not fit
	any   bool // a batch was taken, or bytes were set aside for some (Reserve)
}

// NewBudget returns the budget of an answer of at most maxBytes.
func NewBudget(maxBytes int) Budget { return Budget{left: max(maxBytes, 0)} }

// Begin begins the next span.
func (b *Budget) Begin(maxBytes int) { b.span, b.ended = min(max(maxBytes, 0), b.left), false }

// Take reports whether the next batch of the span is in the answer, and counts it. After a batch
// that is left out, all later batches of the span are left out.
func (b *Budget) Take(size int) bool {
	if b.ended || b.any && size > b.span {
		b.ended = true
		return false
	}
	b.any = true
	b.span, b.left = max(b.span-size, 0), max(b.left-size, 0)
	return true
}

// fit begins a span and returns how many of its batches are in the answer.
func (b *Budget) fit(span Span, batches []Placed) (n int) {
	b.Begin(span.MaxBytes)
	for n < len(batches) && span.MaxBytes > 0 && b.Take(len(batches[n].Bytes)) {
		n++
	}
	return n
}

// Reserve sets bytes aside for a span whose batches are not known yet, and returns how many.
func (b *Budget) Reserve(maxBytes int) int {
	n := min(max(maxBytes, 0), b.left)
	b.left -= n
	b.any = true
	return n
}

// Full reports whether no more batches fit.
func (b *Budget) Full() bool { return b.any && b.left == 0 }
