package httpapi

import (
	"sync"

	"github.com/weir-log/weir/use/apikey"
)

// limiter bounds the number of things of one kind that clients hold, such as waiting requests, in all and per key.
type limiter struct {
	most, mostKey int
	what          string // "claims waiting"
	instead       string // what a client can do
	tooMany       kind   // for one key

	mu    sync.Mutex // guards the rest
	all   int
	ofKey map[string]int // by the key's id
}

// quarter is the limit for one key: a quarter of most.
func quarter(most int) int { return max(1, most/4) }

func newLimiter(most, mostKey int, what, instead string, tooMany kind) *limiter {
	return &limiter{most: most, mostKey: mostKey, what: what, instead: instead, tooMany: tooMany, ofKey: make(map[string]int)}
}

// begin counts one more, or returns an error at the limit. Without keys all clients count as one, without a limit per key.
func (l *limiter) begin(who apikey.Identity) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := l.ofKey[who.ID()]; {
	case who.ID() != "" && n >= l.mostKey:
		return l.tooMany.past(int64(l.mostKey), "the key %s already has %d %s in this process; one key may have %d of the %d; %s", who, n, l.what, l.mostKey, l.most, l.instead)
	case l.all >= l.most:
		return kindOverloaded.past(int64(l.most), "there are already %d %s, the limit; try again later", l.most, l.what)
	}
	l.all++
	l.ofKey[who.ID()]++
	return nil
}

func (l *limiter) end(who apikey.Identity) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	l.uncount(who)
}

// move counts one thing for the key to, and no longer for the key from. It returns false if to is at its limit.
func (l *limiter) move(from, to apikey.Identity) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to.ID() != "" && l.ofKey[to.ID()] >= l.mostKey {
		return false
	}
	l.uncount(from)
	l.ofKey[to.ID()]++
	return true
}

func (l *limiter) uncount(who apikey.Identity) {
	if l.ofKey[who.ID()]--; l.ofKey[who.ID()] == 0 {
		delete(l.ofKey, who.ID())
	}
}

// keyShares bounds how many bytes the requests of one key hold.
type keyShares struct {
	most int64

	mu    sync.Mutex // guards the rest
	ofKey map[string]int64
}

// take counts n more bytes for a request that holds held bytes. It returns false if the key's requests would hold too much. If it is the key's only request, it may hold any number.
func (k *keyShares) take(who apikey.Identity, n, held int64) bool {
	if who.ID() == "" { // without keys all clients are one
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
func (k *keyShares) add(who apikey.Identity, n int64) {
	if who.ID() == "" || n == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ofKey[who.ID()] += n; k.ofKey[who.ID()] == 0 {
		delete(k.ofKey, who.ID())
	}
}
