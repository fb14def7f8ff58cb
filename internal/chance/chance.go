// Package chance makes those of the product's random numbers that need not be secret: for pauses,
// and for versions of keys. A simulation makes them depend on its seed.
package chance

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// seeded is a source of numbers that depend on a seed.
type seeded struct {
	mu     sync.Mutex // guards random
	random *rand.Rand
}

var (
	source atomic.Pointer[seeded] // nil: the numbers of math/rand/v2
	begins []func()
)

// Begins calls f now, and whenever a simulation begins. It is for numbers that a process draws when
// it starts: call it in init.
func Begins(f func()) {
	begins = append(begins, f)
	f()
}

// Seed makes the numbers that follow depend on a seed, until end is called. It is for simulations.
func Seed(seed uint64) (end func()) {
	source.Store(&seeded{random: rand.New(rand.NewPCG(seed, 1))})
	for _, f := range begins {
		f()
	}
	return func() { source.Store(nil) }
}

// Uint64 returns a random number.
func Uint64() uint64 {
	s := source.Load()
	if s == nil {
		return rand.Uint64()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.Uint64()
}

// Uint32 returns a random number.
func Uint32() uint32 { return uint32(Uint64()) }

// N returns a random number from 0 to below n. It panics if n is not positive.
func N[Int ~int | ~int32 | ~int64](n Int) Int {
	s := source.Load()
	if s == nil {
		return rand.N(n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return Int(s.random.Int64N(int64(n)))
}
