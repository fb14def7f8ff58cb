package httpapi

import "sync"

// holder is who holds something that is bounded: a caller, or a network.
type holder interface {
	ID() string     // "": everybody, who has no limit of its own
	String() string // for people
}

// limiter bounds the number of things of one kind that clients hold, such as waiting requests, in
// all and per client.
type limiter struct {
	most, mostKey int
	what          string // "claims waiting"
	instead       string // what a client can do
	tooMany       kind   // for one client

	mu    sync.Mutex // guards the rest
	all   int
	ofKey map[string]int // by the holder's id
}

// quarter is the limit for one client: a quarter of most.
func quarter(most int) int { return max(1, most/4) }

func newLimiter(most, mostKey int, what, instead string, tooMany kind) *limiter {
	return &limiter{most: most, mostKey: mostKey, what: what, instead: instead, tooMany: tooMany, ofKey: make(map[string]int)}
}

// begin counts one more, or returns an error at the limit. Callers without an id ("") count as one
// client, which has only the limit of all clients.
func (l *limiter) begin(who holder) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := l.ofKey[who.ID()]; {
	case who.ID() != "" && n >= l.mostKey:
		return l.tooMany.past(int64(l.mostKey), "the %s already has %d %s in this process; one client may have %d of the %d; %s", who, n, l.what, l.mostKey, l.most, l.instead)
	case l.all >= l.most:
		return kindOverloaded.past(int64(l.most), "there are already %d %s, the limit; try again later", l.most, l.what)
	}
	l.all++
	l.ofKey[who.ID()]++
	return nil
}

func (l *limiter) end(who holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	l.uncount(who)
}

// move takes one thing from the count of its first parameter, and adds it to the count of the
// second. It returns false, and does nothing, if the second is at its limit.
func (l *limiter) move(from, to holder) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to.ID() != "" && l.ofKey[to.ID()] >= l.mostKey {
		return false
	}
	l.uncount(from)
	l.ofKey[to.ID()]++
	return true
}

func (l *limiter) uncount(who holder) {
	if l.ofKey[who.ID()]--; l.ofKey[who.ID()] == 0 {
		delete(l.ofKey, who.ID())
	}
}

// keyShares bounds how many bytes the requests of one client hold.
type keyShares struct {
	most int64

	mu    sync.Mutex // guards the rest
	ofKey map[string]int64
}

// take counts n more bytes for a request that holds held bytes. It returns false if the client's
// requests would hold too much. If it is the client's only request, it may hold any number.
func (k *keyShares) take(who holder, n, held int64) bool {
	if who.ID() == "" { // all callers without an id are one client, which has no limit of its own
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	others := k.ofKey[who.ID()] - held
	if others > 0 && others+held+n > k.most {
		return false
	}
	k.ofKey[who.ID()] += n
	return true
}

// add counts n bytes; n is negative for bytes that are given back.
func (k *keyShares) add(who holder, n int64) {
	if who.ID() == "" || n == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ofKey[who.ID()] += n; k.ofKey[who.ID()] == 0 {
		delete(k.ofKey, who.ID())
	}
}
