package group

import (
	"sync"

	"github.com/weir-log/weir/eventlog"
)

// meetings lets the peers of one process wake each other, so that a handover between them waits for nobody's look. It is a hint: peers of
// other processes look as well.
var meetings = register{running: make(map[place]map[*Peer]bool)}

type register struct {
	mu      sync.Mutex // guards running
	running map[place]map[*Peer]bool
}

// place is where peers of one process meet.
type place struct {
	log   *eventlog.Log
	group string
}

// enter registers a peer until the function it returns is called.
func (r *register) enter(p *Peer) (leave func()) {
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
