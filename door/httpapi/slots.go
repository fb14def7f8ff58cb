package httpapi

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// slots bounds how many requests do something costly at the same time, in all and per key. A key is
// the id of a caller or of a network. Other requests wait. A free slot goes to the key with the
// fewest slots; then to the key that got a slot longest ago; then to the key with the fewest
// requests waiting. So a key with many requests delays only its own.
type slots struct {
	most, mostKey int

	mu      sync.Mutex // guards the rest
	taken   int
	granted uint64               // counts grants
	ofKey   map[string]*keySlots // keys that have a slot or wait for one, by their id
	waiting []*slotWait          // the first came first
}

type keySlots struct {
	taken, waiting int
	last           uint64 // slots.granted at the key's last grant, or at its first request
}

type slotWait struct {
	id    string
	ready chan struct{} // closed once it has a slot
}

// newSlots lets one key have a quarter of the slots.
func newSlots(most int) *slots {
	return &slots{most: most, mostKey: max(1, most/4), ofKey: make(map[string]*keySlots)}
}

// acquire waits for a slot for the key with this id until ctx ends; then it returns ctx's error.
// The key "" (callers without an id) has only the limit of all keys.
func (s *slots) acquire(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := &slotWait{id: key, ready: make(chan struct{})}
	s.mu.Lock()
	k := s.ofKey[w.id]
	if k == nil {
		k = &keySlots{last: s.granted} // as if the key had got a slot just now, which may be true: so it does not go before keys that wait
		s.ofKey[w.id] = k
	}
	k.waiting++
	s.waiting = append(s.waiting, w)
	s.grant()
	s.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, w); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		k.waiting--
		s.forget(w.id)
	} else { // the slot was granted at the last moment
		s.giveBack(w.id)
	}
	return ctx.Err()
}

// release gives back a slot.
func (s *slots) release(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBack(key)
}

func (s *slots) giveBack(id string) {
	s.taken--
	s.ofKey[id].taken--
	s.forget(id)
	s.grant()
}

func (s *slots) forget(id string) {
	if k := s.ofKey[id]; k.taken == 0 && k.waiting == 0 {
		delete(s.ofKey, id)
	}
}

// grant gives free slots to requests that wait. s.mu is held.
func (s *slots) grant() {
	for s.taken < s.most {
		best, of := -1, (*keySlots)(nil)
		for i, w := range s.waiting {
			k := s.ofKey[w.id]
			if w.id != "" && k.taken >= s.mostKey {
				continue
			}
			if best < 0 || cmp.Or(cmp.Compare(k.taken, of.taken), cmp.Compare(k.last, of.last), cmp.Compare(k.waiting, of.waiting)) < 0 {
				best, of = i, k
			}
		}
		if best < 0 {
			return
		}
		w := s.waiting[best]
		s.waiting = slices.Delete(s.waiting, best, best+1)
		s.taken++
		s.granted++
		of.taken, of.waiting, of.last = of.taken+1, of.waiting-1, s.granted
		close(w.ready)
	}
}
