// Package budget shares memory among clients that may be slow or silent. The doors claim from it
// the memory of the requests that they read and of the answers that they send.
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
	// SilentMax is how long a client that holds memory may move no bytes, while other claims wait
	// for memory.
	SilentMax = time.Second
	// silentCheck is how often a waiting claim looks for such clients.
	silentCheck = SilentMax / 4

	// While other claims wait, a client has SilentMax to take an answer, and a second more for each
	// slowRate bytes, but at most slowMax more.
	slowRate = 1 << 20
	slowMax  = 15 * time.Second

	// Parts is how many answers of one Share each fit into a budget. TryGrow leaves one part free,
	// for the claims that wait in line.
	Parts = 4
)

// ErrStopped is the error of a claim that did not grow because its caller stopped waiting.
var ErrStopped = errors.New("the wait for memory was ended")

// Budget is memory that connections share, such as that of requests being read. Each claims memory
// as bytes come, and waits if no more is free. These rules keep the connections moving:
//
//   - Only one claim at a time may overdraw, the first in line. So one claim can always be
//     completed, and gives back what it holds. At most the budget plus the whole need of one claim
//     is in use.
//   - While a claim waits, a client that moved nothing for SilentMax is cut off, and so is a client
//     that is too slow to take an answer (Sends).
//   - The claims of one key together hold at most one part of the budget plus the whole need of one
//     claim. Of the waiting claims, those whose key holds least come first. So the claims of one
//     key, however many and slow they are, delay only each other.
type Budget struct {
	begun atomic.Int64 // how many claims began

	mu       sync.Mutex // guards all, and the fields of claims
	size     int64
	free     int64             // below zero while overdrawn
	overdraw *Claim            // the claim that took more than was free
	held     map[string]int64  // bytes, by key
	over     map[string]*Claim // the claim that took more than its key's part, by key
	moving   map[*Claim]func() // claims whose clients must move bytes, and how to cut these off
	waiting  []*Claim          // the claim that began first is first
}

// Claim is what one request or answer holds of a budget. Its methods are called by one goroutine at
// a time. A nil claim counts nothing, and never waits.
type Claim struct {
	of      *Budget
	key     string // "": it has no key
	number  int64  // in the order in which claims began
	held    int64
	wants   int64
	granted chan struct{}
	moved   time.Time
	by      time.Time // when the client must have taken the answer, if other claims wait; zero: no such time
	cut     bool
	moves   bool // Moves or Sends was called, and neither Rests nor Release since
}

// New makes a budget of size bytes.
func New(size int64) *Budget {
	return &Budget{size: size, free: size, held: make(map[string]int64), over: make(map[string]*Claim), moving: make(map[*Claim]func())}
}

// Begin begins a claim that holds nothing yet.
func (b *Budget) Begin() *Claim { return b.BeginFor("") }

// BeginFor is Begin for a key, whose claims share one part of the budget.
func (b *Budget) BeginFor(key string) *Claim { return &Claim{of: b, key: key, number: b.begun.Add(1)} }

// Share is the most that one of many answers should hold.
func (b *Budget) Share() int64 { return max(b.size/Parts, 1) }

// Held is how many bytes the claim holds.
func (c *Claim) Held() int64 {
	if c == nil {
		return 0
	}
	return c.held // no other goroutine changes it, unless this claim waits
}

// TryGrow claims n bytes more if it need not wait for them, and reports whether it did. It leaves
// one part of the budget free for the claims that wait in line, unless all is true. If no other
// claim holds anything, it may claim any n.
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

// Grow claims n bytes more, and waits for them if it must. It returns how long it waited.
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
	cut, moves := b.moving[c] // while the claim waits, its own client need not move anything
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

// giveUp takes a claim out of the line. If its bytes were granted in the same moment, it keeps
// them.
func (c *Claim) giveUp(why error) error {
	b := c.of
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := slices.Index(b.waiting, c); at >= 0 {
		b.waiting = slices.Delete(b.waiting, at, at+1)
		b.grant() // another claim may be first now
	}
	return why
}

// grant gives to the waiting claims, in turn, as long as it can. b.mu is held.
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

// next returns the waiting claim whose turn it is; nil: none waits, or each waits for other claims
// of its key. b.mu is held.
func (b *Budget) next() (first *Claim) {
	for _, c := range b.waiting {
		if c == b.overdraw {
			return c // it must come to its end first: until then nobody else may overdraw
		}
		if b.mayGrow(c, c.wants) && (first == nil || b.held[c.key] < b.held[first.key]) {
			first = c
		}
	}
	return first
}

// mayGrow reports whether a claim need not wait for other claims of its key: the key's part is
// enough, or this claim may exceed it. b.mu is held.
func (b *Budget) mayGrow(c *Claim, n int64) bool {
	over := b.over[c.key]
	return b.fits(c, n) || over == nil || over == c
}

// cutSilent cuts off a client that moved nothing for SilentMax, or is too slow: of several, the one
// that holds most. If the claim that waits is held up by its own key, only clients of that key are
// cut off.
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

// Moves begins a time in which the client must move bytes: if it does not while other claims wait,
// cut is called, once, to cut it off. cut must not block.
func (c *Claim) Moves(cut func()) { c.begin(cut, time.Time{}) }

// Sends is Moves for an answer that the claim holds: while other claims wait, the client also has a
// bounded time to take the whole answer.
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

// Progress notes that the client moved bytes, and reports whether other claims wait for the memory
// that it holds.
func (c *Claim) Progress() (contended bool) {
	if c == nil {
		return false
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.moved = time.Now()
	return c.of.next() != nil || slices.ContainsFunc(c.of.waiting, func(w *Claim) bool { return w.key == c.key })
}

// WasCut reports whether the client was cut off since Moves or Sends.
func (c *Claim) WasCut() bool {
	if c == nil {
		return false
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.cut
}

// Rests ends the time that Moves or Sends began, and reports whether the client was cut off. After
// Rests, cut is not called.
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
		return // nothing to do: the usual case
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

// Held is how many bytes all claims hold.
func (b *Budget) Held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size - b.free
}

// Idle reports whether nobody holds anything.
func (b *Budget) Idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free == b.size && len(b.waiting) == 0 && len(b.moving) == 0
}
