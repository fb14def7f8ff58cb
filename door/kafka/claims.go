package kafka

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// silentMax is how long a client may move nothing of what it holds memory for, while others wait for memory.
	silentMax = time.Second
	// silentCheck is how often one who waits looks for such clients.
	silentCheck = silentMax / 4
)

// budget is memory that connections share, such as that of requests being read. Everybody claims as bytes come, and waits when there is no
// more. Two rules keep the door open:
//
//   - The claim that began first may overdraw, so that one can always go on to its end and give back what it holds. Hence at most
//     the budget and one claim's whole need are in use.
//   - While somebody waits, a client that moved nothing for silentMax is cut off, and a request that has held memory for that long does not
//     wait any longer for others (conn.giveWay).
type budget struct {
	begun atomic.Int64 // claims

	mu       sync.Mutex // guards all, and the fields of claims
	size     int64
	free     int64             // below zero while overdrawn
	overdraw *claim            // who took more than there was
	moving   map[*claim]func() // those who must move bytes or give way, and how to make them
	waiting  []*claim          // the one that began first is first
}

// claim is what one request or answer holds of a budget. Its methods, but for the budget's own, are called by one goroutine at a time.
type claim struct {
	of      *budget
	number  int64 // in the order in which claims began
	held    int64
	wants   int64
	granted chan struct{}
	moved   time.Time
	cut     bool
}

func newBudget(size int64) *budget {
	return &budget{size: size, free: size, moving: make(map[*claim]func())}
}

func (b *budget) begin() *claim { return &claim{of: b, number: b.begun.Add(1)} }

// grow claims n bytes more, and waits for them if it must. It tells how long that took.
func (c *claim) grow(ctx context.Context, n int64) (waited time.Duration, err error) {
	b := c.of
	b.mu.Lock()
	if len(b.waiting) == 0 && b.free >= n {
		b.free -= n
		c.held += n
		b.mu.Unlock()
		return 0, nil
	}
	cut, moves := b.moving[c] // its own client is not asked to move anything while it waits
	delete(b.moving, c)
	c.wants, c.granted = n, make(chan struct{})
	at, _ := slices.BinarySearchFunc(b.waiting, c, func(a, b *claim) int { return int(a.number - b.number) })
	b.waiting = slices.Insert(b.waiting, at, c)
	b.grant()
	b.mu.Unlock()

	began := time.Now()
	err = c.await(ctx)
	waited = time.Since(began)
	b.mu.Lock()
	defer b.mu.Unlock()
	if moves && err == nil && !c.cut {
		c.moved = time.Now()
		b.moving[c] = cut
	}
	return waited, err
}

// await returns when what was wanted is granted, or ctx ends.
func (c *claim) await(ctx context.Context) error {
	check := time.NewTicker(silentCheck)
	defer check.Stop()
	for {
		select {
		case <-c.granted:
			return nil
		case <-check.C:
			c.of.cutSilent()
		case <-ctx.Done():
			b := c.of
			b.mu.Lock()
			defer b.mu.Unlock()
			if at := slices.Index(b.waiting, c); at >= 0 {
				b.waiting = slices.Delete(b.waiting, at, at+1)
				b.grant() // another may be first now
			}
			return context.Cause(ctx)
		}
	}
}

// grant gives to those who wait, in order, as long as there is something to give. b.mu is held.
func (b *budget) grant() {
	if b.free >= 0 {
		b.overdraw = nil
	}
	for len(b.waiting) > 0 {
		at := max(0, slices.Index(b.waiting, b.overdraw)) // who overdraws must come to its end, or nobody will
		first := b.waiting[at]
		if first.wants > b.free {
			if b.overdraw != nil && b.overdraw != first {
				return
			}
			b.overdraw = first
		}
		b.free -= first.wants
		first.held += first.wants
		close(first.granted)
		b.waiting = slices.Delete(b.waiting, at, at+1)
	}
}

// cutSilent cuts off the client that holds most of those that moved nothing for silentMax.
func (b *budget) cutSilent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	var most *claim
	for c := range b.moving {
		if time.Since(c.moved) >= silentMax && (most == nil || c.held > most.held) {
			most = c
		}
	}
	if most != nil {
		most.cut = true
		b.moving[most]()
		delete(b.moving, most)
	}
}

// moves begins a time in which the client must move bytes, or is cut off when others wait: then cut is called once, and must not block.
func (c *claim) moves(cut func()) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.moved, c.cut = time.Now(), false
	c.of.moving[c] = cut
}

// progress notes that the client moved bytes.
func (c *claim) progress() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.moved = time.Now()
}

// rests ends the time that moves began, and tells whether the client was cut off.
func (c *claim) rests() (wasCut bool) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	delete(c.of.moving, c)
	return c.cut
}

// shrink gives back n bytes.
func (c *claim) shrink(n int64) {
	b := c.of
	b.mu.Lock()
	defer b.mu.Unlock()
	c.held -= n
	b.free += n
	b.grant()
}

// release gives back all. It may be called again.
func (c *claim) release() {
	if c == nil || c.held == 0 {
		return // as most are
	}
	b := c.of
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.moving, c)
	b.free += c.held
	c.held = 0
	if b.overdraw == c {
		b.overdraw = nil
	}
	b.grant()
}

// idle reports whether nobody holds anything.
func (b *budget) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free == b.size && len(b.waiting) == 0 && len(b.moving) == 0
}

// expectedFree is how many bytes of answer a request may have without a claim: most have less, and no other client can stop those.
const expectedFree = 64 << 10

// expect claims memory for so many bytes more of a request's answer, before they are made. An error is the end of the request's time: then the
// connection is closed, for to say less would be an answer that is not true.
func (r *request) expect(ctx context.Context, n int) error {
	if r.expected += n; r.expected <= expectedFree {
		return nil
	}
	_, err := r.claim.grow(ctx, int64(n))
	return err
}
