package eventlog

// Budget decides which batches of an answer come: those of a span have at most its bytes, those of all spans at most the budget's, and only
// the very first comes however large it is, so that every reader gets on (KIP-74).
type Budget struct {
	left  int  // for all spans
	span  int  // for this one
	ended bool // this span has met a batch that did not fit
	any   bool // a batch was taken
}

// NewBudget begins an answer of at most so many bytes.
func NewBudget(maxBytes int) Budget { return Budget{left: max(maxBytes, 0)} }

// Begin begins the next span.
func (b *Budget) Begin(maxBytes int) { b.span, b.ended = min(max(maxBytes, 0), b.left), false }

// Take reports whether the span's next batch comes, and counts it. After one that does not, none of the span does.
func (b *Budget) Take(size int) bool {
	if b.ended || b.any && size > b.span {
		b.ended = true
		return false
	}
	b.any = true
	b.span, b.left = max(b.span-size, 0), max(b.left-size, 0)
	return true
}

// fit begins a span and tells how many of its batches come.
func (b *Budget) fit(span Span, batches []Placed) (n int) {
	b.Begin(span.MaxBytes)
	for n < len(batches) && span.MaxBytes > 0 && b.Take(len(batches[n].Bytes)) {
		n++
	}
	return n
}

// Reserve keeps bytes for a span whose batches are not known yet, and says how many.
func (b *Budget) Reserve(maxBytes int) int {
	n := min(max(maxBytes, 0), b.left)
	b.left -= n
	b.any = true
	return n
}

// Full reports whether nothing more can come.
func (b *Budget) Full() bool { return b.any && b.left == 0 }
