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
// more. These rules keep the door open:
//
//   - The claim that began first may overdraw, so that one can always go on to its end and give back what it holds. Hence at most
//     the budget and one claim's whole need are in use.
//   - While somebody waits, a client that moved nothing for SilentMax is cut off, and so is one that is slow to take an answer (Sends).
//   - The claims of one key share one part of the budget, and one claim's whole need, as the claims of all share the budget. Of those that wait, those
//     whose key holds least come first. So the claims of one key, however many and slow, delay only their own.
type Budget struct {
	begun atomic.Int64 // claims

	mu       sync.Mutex // guards all, and the fields of claims
	size     int64
	free     int64             // below zero while overdrawn
	overdraw *Claim            // who took more than there was
	held     map[string]int64  // by key
	over     map[string]*Claim // who took more than the key's part, by key
	moving   map[*Claim]func() // those who must move bytes or give way, and how to make them
	waiting  []*Claim          // the one that began first is first
}

// Claim is what one request or answer holds of a budget. Its methods, but for the budget's own, are called by one goroutine at a time. A nil
// claim holds nothing, and everything fits: nobody counts.
type Claim struct {
	of      *Budget
	key     string // "": nobody's
	number  int64  // in the order in which claims began
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
	return &Budget{size: size, free: size, held: make(map[string]int64), over: make(map[string]*Claim), moving: make(map[*Claim]func())}
}

// Begin begins a claim that holds nothing yet.
func (b *Budget) Begin() *Claim { return b.BeginFor("") }

// BeginFor is Begin for a key, whose claims have a part of the budget together.
func (b *Budget) BeginFor(key string) *Claim { return &Claim{of: b, key: key, number: b.begun.Add(1)} }

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
	if b.next() != nil || b.free-n < kept && !unused || !b.fits(c, n) && b.held[c.key] > c.held {
		return false
	}
	b.take(c, n)
	if b.free < 0 {
		b.overdraw = c
	}
	return true
}

// fits reports whether a claim's key may have n bytes more. b.mu is held.
func (b *Budget) fits(c *Claim, n int64) bool { return c.key == "" || b.held[c.key]+n <= b.Share() }

// take gives n bytes to a claim. b.mu is held.
func (b *Budget) take(c *Claim, n int64) {
	if !b.fits(c, n) && b.over[c.key] == nil {
		b.over[c.key] = c
	}
	b.free -= n
	c.held += n
	if c.key != "" {
		b.held[c.key] += n
	}
}

// give takes n bytes back from a claim. b.mu is held.
func (b *Budget) give(c *Claim, n int64) {
	b.free += n
	c.held -= n
	if c.key == "" {
		return
	}
	if b.held[c.key] -= n; b.held[c.key] == 0 {
		delete(b.held, c.key)
	}
	if b.held[c.key] <= b.Share() || c.held == 0 && b.over[c.key] == c {
		delete(b.over, c.key)
	}
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
	if b.next() == nil && b.free >= n && b.mayGrow(c, n) {
		b.take(c, n)
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
			c.of.cutSilent(c)
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

// grant gives to those who wait, in turn, as long as there is something to give. b.mu is held.
func (b *Budget) grant() {
	if b.free >= 0 {
		b.overdraw = nil
	}
	for {
		c := b.next()
		if c == nil {
			return
		}
		if c.wants > b.free {
			if b.overdraw != nil && b.overdraw != c {
				return
			}
			b.overdraw = c
		}
		b.take(c, c.wants)
		close(c.granted)
		at := slices.Index(b.waiting, c)
		b.waiting = slices.Delete(b.waiting, at, at+1)
	}
}

// next is whose turn it is of those that wait; nil: each waits for others of its own key. b.mu is held.
func (b *Budget) next() (first *Claim) {
	for _, c := range b.waiting {
		if c == b.overdraw {
			return c // it must come to its end, or nobody will
		}
		if b.mayGrow(c, c.wants) && (first == nil || b.held[c.key] < b.held[first.key]) {
			first = c
		}
	}
	return first
}

// mayGrow reports whether a claim need not wait for others of its key: there is enough, or it is the one that may overdraw. b.mu is held.
func (b *Budget) mayGrow(c *Claim, n int64) bool {
	over := b.over[c.key]
	return b.fits(c, n) || over == nil || over == c
}

// cutSilent cuts off the client that holds most of those that moved nothing for SilentMax, or are too slow. Who waits for others of its key has only
// these cut off.
func (b *Budget) cutSilent(waits *Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var most *Claim
	now, own := time.Now(), !b.mayGrow(waits, waits.wants)
	for c := range b.moving {
		if own && c.key != waits.key {
			continue
		}
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

// Progress notes that the client moved bytes, and tells whether others wait for the memory that it holds.
func (c *Claim) Progress() (contended bool) {
	if c == nil {
		return false
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.moved = time.Now()
	return c.of.next() != nil || slices.ContainsFunc(c.of.waiting, func(w *Claim) bool { return w.key == c.key })
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
	b.give(c, n)
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
	b.give(c, c.held)
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
