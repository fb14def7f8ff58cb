package group

import "sync"

// register lets a coordinator's peers and hosts wake each other, so that a handover between them
// need not wait for the next poll. It is a hint: every peer polls as well.
type register struct {
	mu      sync.Mutex                        // guards running
	running map[string]map[chan struct{}]bool // by group: what wakes each peer and host
}

// add registers a peer or a host until the function it returns is called.
func (r *register) add(group string, wake chan struct{}) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[group] == nil {
		r.running[group] = make(map[chan struct{}]bool)
	}
	r.running[group][wake] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if delete(r.running[group], wake); len(r.running[group]) == 0 {
			delete(r.running, group)
		}
	}
}

// wakeOthers wakes the other peers and the host of the group.
func (r *register) wakeOthers(group string, from chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for wake := range r.running[group] {
		if wake != from {
			poke(wake)
		}
	}
}
