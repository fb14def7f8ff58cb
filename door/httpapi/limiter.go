package httpapi

import (
	"sync"

	"github.com/weir-log/weir/use/apikey"
)

// limiter bounds the concurrent requests of a kind, in all and per key.
type limiter struct {
	most, mostKey int
	what          string // "claims waiting"
	instead       string // what a client can do
	tooMany       kind   // for one key

	mu    sync.Mutex // guards the rest
	all   int
	ofKey map[string]int // by the key's id
}

func newLimiter(most, mostKey int, what, instead string, tooMany kind) *limiter {
	return &limiter{most: most, mostKey: mostKey, what: what, instead: instead, tooMany: tooMany, ofKey: make(map[string]int)}
}

// begin counts a request, or returns an error at the limit. Without keys all clients count as one, without a limit per key.
func (l *limiter) begin(who apikey.Identity) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := l.ofKey[who.ID()]; {
	case who.ID() != "" && n >= l.mostKey:
		return l.tooMany.past(int64(l.mostKey), "the key %s has %d %s here, and %d of %d are the most for one key; %s", who, n, l.what, l.mostKey, l.most, l.instead)
	case l.all >= l.most:
		return kindOverloaded.past(int64(l.most), "there are %d %s, the most there may be; try again later", l.most, l.what)
	}
	l.all++
	l.ofKey[who.ID()]++
	return nil
}

func (l *limiter) end(who apikey.Identity) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.ofKey[who.ID()]--; l.ofKey[who.ID()] == 0 {
		delete(l.ofKey, who.ID())
	}
}
