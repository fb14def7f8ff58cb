// Package longlock has locks that may be held over a call of a store. They do what those of package
// sync do; but in fake time (testing/synctest) a goroutine that waits for one counts as waiting, so
// that time goes on for the one that holds it.
package longlock

import "sync"

// RWMutex is a sync.RWMutex. The zero value is an unlocked one.
type RWMutex struct {
	mu      sync.Mutex // guards what follows; never held while somebody waits
	changed *sync.Cond
	readers int
	writing bool
	writers int // that wait: no reader comes before them
}

// wait waits while something is so. mu is held.
func (l *RWMutex) wait(while func() bool) {
	if l.changed == nil {
		l.changed = sync.NewCond(&l.mu)
	}
	for while() {
		l.changed.Wait()
	}
}

// RLock locks for reading.
func (l *RWMutex) RLock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wait(l.closed)
	l.readers++
}

func (l *RWMutex) closed() bool { return l.writing || l.writers > 0 }

// TryRLock locks for reading, unless somebody has locked for writing or waits to.
func (l *RWMutex) TryRLock() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed() {
		return false
	}
	l.readers++
	return true
}

// RUnlock undoes one RLock.
func (l *RWMutex) RUnlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.readers == 0 {
		panic("longlock: RUnlock of a lock that nobody reads under")
	}
	l.readers--
	l.tell()
}

// Lock locks for writing.
func (l *RWMutex) Lock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writers++
	l.wait(func() bool { return l.writing || l.readers > 0 })
	l.writers--
	l.writing = true
}

// Unlock undoes Lock.
func (l *RWMutex) Unlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.writing {
		panic("longlock: Unlock of a lock that nobody holds")
	}
	l.writing = false
	l.tell()
}

func (l *RWMutex) tell() {
	if l.changed != nil {
		l.changed.Broadcast()
	}
}

// Mutex is a sync.Mutex. The zero value is an unlocked one.
type Mutex struct{ rw RWMutex }

// Lock locks.
func (l *Mutex) Lock() { l.rw.Lock() }

// Unlock undoes Lock.
func (l *Mutex) Unlock() { l.rw.Unlock() }

// TryLock locks, unless somebody holds the lock or waits for it.
func (l *Mutex) TryLock() bool { return l.rw.TryLock() }

// TryLock locks for writing, unless somebody holds the lock or waits for it.
func (l *RWMutex) TryLock() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed() || l.readers > 0 {
		return false
	}
	l.writing = true
	return true
}
