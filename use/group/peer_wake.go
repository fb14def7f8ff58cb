package group

import "sync"

// register lets a coordinator's peers wake each other, so that a handover between them need not
// wait for the next poll. It is a hint: every peer polls as well.
type register struct {
	mu      sync.Mutex                // guards running
	running map[string]map[*Peer]bool // by group
}

// add registers a peer until the function it returns is called.
func (r *register) add(p *Peer) (leave func()) {
	group := p.cfg.Group
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[group] == nil {
		r.running[group] = make(map[*Peer]bool)
	}
	r.running[group][p] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if delete(r.running[group], p); len(r.running[group]) == 0 {
			delete(r.running, group)
		}
	}
}

// wake wakes the other peers of the group.
func (r *register) wake(from *Peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.running[from.cfg.Group] {
		if p != from {
			poke(p.wake)
		}
	}
}
