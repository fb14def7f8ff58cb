package group

import (
	"sync"

	"github.com/weir-log/weir/eventlog"
)

// localPeers lets the peers of one process wake each other, so that a handover between them need not wait for the next poll. It is a
// hint: every peer polls as well.
var localPeers = register{running: make(map[place]map[*Peer]bool)}

type register struct {
	mu      sync.Mutex // guards running
	running map[place]map[*Peer]bool
}

// place is a group of one log.
type place struct {
	log   *eventlog.Log
	group string
}

// add registers a peer until the function it returns is called.
func (r *register) add(p *Peer) (leave func()) {
	at := place{p.log, p.cfg.Group}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[at] == nil {
		r.running[at] = make(map[*Peer]bool)
	}
	r.running[at][p] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if delete(r.running[at], p); len(r.running[at]) == 0 {
			delete(r.running, at)
		}
	}
}

// wake wakes the other peers of the group.
func (r *register) wake(from *Peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.running[place{from.log, from.cfg.Group}] {
		if p != from {
			poke(p.wake)
		}
	}
}
