// Package budget shares memory among clients who may be slow or silent. The doors count with it what they read, and what they send.
package budget

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// SilentMax is how long a client may move nothing of what it holds memory for, while others wait for memory.
	SilentMax = time.Second
	// silentCheck is how often one who waits looks for such clients.
	silentCheck = SilentMax / 4

	// While others wait, an answer has SilentMax to be taken, and a second more for each slowRate bytes, of these at most slowMax.
	slowRate = 1 << 20
	slowMax  = 15 * time.Second

	// Parts is how many answers there is room for at least. One part is kept from TryGrow, for those who wait in line.
	Parts = 4
)

// ErrStopped is why a claim did not grow: who wanted it does not wait any longer.
var ErrStopped = errors.New("the wait for memory was ended")

// Budget is memory that connections share, such as that of requests being read. Everybody claims as bytes come, and waits when there are no
// more. Two rules keep the door open:
//
//   - The claim that began first may overdraw, so that one can always go on to its end and give back what it holds. Hence at most
//     the budget and one claim's whole need are in use.
//   - While somebody waits, a client that moved nothing for SilentMax is cut off, and so is one that is slow to take an answer (Sends).
type Budget struct {
	begun atomic.Int64 // claims

	mu       sync.Mutex // guards all, and the fields of claims
	size     int64
	free     int64             // below zero while overdrawn
	overdraw *Claim            // who took more than there was
	moving   map[*Claim]func() // those who must move bytes or give way, and how to make them
	waiting  []*Claim          // the one that began first is first
}

// Claim is what one request or answer holds of a budget. Its methods, but for the budget's own, are called by one goroutine at a time. A nil
// claim holds nothing, and everything fits: nobody counts.
type Claim struct {
	of      *Budget
	number  int64 // in the order in which claims began
	held    int64
	wants   int64
	granted chan struct{}
	moved   time.Time
	by      time.Time // when an answer must be out, if others wait; zero: no such time
	cut     bool
	moves   bool // since Moves or Sends
}

// New makes a budget of so many bytes.
func New(size int64) *Budget {
	return &Budget{size: size, free: size, moving: make(map[*Claim]func())}
}

// Begin begins a claim that holds nothing yet.
func (b *Budget) Begin() *Claim { return &Claim{of: b, number: b.begun.Add(1)} }

// Share is the most that one of many answers should hold.
func (b *Budget) Share() int64 { return max(b.size/Parts, 1) }

// Held is how many bytes the claim holds.
func (c *Claim) Held() int64 {
	if c == nil {
		return 0
	}
	return c.held // nobody else changes it, unless this one waits
}

// TryGrow claims n bytes more, if it need not wait for them. It leaves one part of the budget to those who take little and wait in line, unless all is
// true. A budget that nobody uses gives to one claim whatever it wants.
func (c *Claim) TryGrow(n int64, all bool) bool {
	if c == nil || n <= 0 {
		return true
	}
	b := c.of
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.size / Parts
	if all {
		kept = 0
	}
	unused := b.free == b.size-c.held
	if len(b.waiting) > 0 || b.free-n < kept && !unused {
		return false
	}
	if b.free -= n; b.free < 0 {
		b.overdraw = c
	}
	c.held += n
	return true
}

// Grow claims n bytes more, and waits for them if it must. It tells how long that took.
func (c *Claim) Grow(ctx context.Context, n int64) (waited time.Duration, err error) {
	return c.GrowUntil(ctx, nil, n)
}

// GrowUntil is Grow that gives up with ErrStopped when stop is closed.
func (c *Claim) GrowUntil(ctx context.Context, stop <-chan struct{}, n int64) (waited time.Duration, err error) {
	if c == nil || n <= 0 {
		return 0, nil
	}
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
	at, _ := slices.BinarySearchFunc(b.waiting, c, func(a, b *Claim) int { return int(a.number - b.number) })
	b.waiting = slices.Insert(b.waiting, at, c)
	b.grant()
	b.mu.Unlock()

	began := time.Now()
	err = c.await(ctx, stop)
	waited = time.Since(began)
	b.mu.Lock()
	defer b.mu.Unlock()
	if moves && err == nil && !c.cut {
		c.moved = time.Now()
		b.moving[c] = cut
	}
	return waited, err
}

// await returns when what was wanted is granted, or the wait ends.
func (c *Claim) await(ctx context.Context, stop <-chan struct{}) error {
	check := time.NewTicker(silentCheck)
	defer check.Stop()
	for {
		select {
		case <-c.granted:
			return nil
		case <-check.C:
			c.of.cutSilent()
		case <-stop:
			return c.giveUp(ErrStopped)
		case <-ctx.Done():
			return c.giveUp(context.Cause(ctx))
		}
	}
}

// giveUp takes a claim out of the line. What was granted in the same moment it has.
func (c *Claim) giveUp(why error) error {
	b := c.of
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := slices.Index(b.waiting, c); at >= 0 {
		b.waiting = slices.Delete(b.waiting, at, at+1)
		b.grant() // another may be first now
	}
	return why
}

// grant gives to those who wait, in order, as long as there is something to give. b.mu is held.
func (b *Budget) grant() {
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

// cutSilent cuts off the client that holds most of those that moved nothing for SilentMax, or are too slow.
func (b *Budget) cutSilent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	var most *Claim
	now := time.Now()
	for c := range b.moving {
		late := now.Sub(c.moved) >= SilentMax || !c.by.IsZero() && now.After(c.by)
		if late && (most == nil || c.held > most.held) {
			most = c
		}
	}
	if most != nil {
		most.cut = true
		b.moving[most]()
		delete(b.moving, most)
	}
}

// Moves begins a time in which the client must move bytes, or is cut off when others wait: then cut is called once, and must not block.
func (c *Claim) Moves(cut func()) { c.begin(cut, time.Time{}) }

// Sends is Moves for an answer that the claim holds: the client has a bounded time for the whole as well, while others wait.
func (c *Claim) Sends(cut func()) {
	if c == nil {
		return
	}
	least := time.Duration(float64(c.held) / slowRate * float64(time.Second))
	c.begin(cut, time.Now().Add(SilentMax+min(least, slowMax)))
}

func (c *Claim) begin(cut func(), by time.Time) {
	if c == nil {
		return
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.moved, c.by, c.cut, c.moves = time.Now(), by, false, true
	c.of.moving[c] = cut
}

// Progress notes that the client moved bytes, and tells whether others wait for memory.
func (c *Claim) Progress() (contended bool) {
	if c == nil {
		return false
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.moved = time.Now()
	return len(c.of.waiting) > 0
}

// WasCut tells whether the client was cut off since Moves or Sends.
func (c *Claim) WasCut() bool {
	if c == nil {
		return false
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.cut
}

// Rests ends the time that Moves or Sends began, and tells whether the client was cut off. After it cut is not called.
func (c *Claim) Rests() (wasCut bool) {
	if c == nil {
		return false
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	delete(c.of.moving, c)
	c.moves = false
	return c.cut
}

// Shrink gives back n bytes.
func (c *Claim) Shrink(n int64) {
	if c == nil || n <= 0 {
		return
	}
	b := c.of
	b.mu.Lock()
	defer b.mu.Unlock()
	c.held -= n
	b.free += n
	b.grant()
}

// Release gives back all, and ends what Moves or Sends began. It may be called again.
func (c *Claim) Release() {
	if c == nil || c.held == 0 && !c.moves {
		return // as most are
	}
	b := c.of
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.moving, c)
	c.moves = false
	b.free += c.held
	c.held = 0
	if b.overdraw == c {
		b.overdraw = nil
	}
	b.grant()
}

// Idle reports whether nobody holds anything.
func (b *Budget) Idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free == b.size && len(b.waiting) == 0 && len(b.moving) == 0
}
