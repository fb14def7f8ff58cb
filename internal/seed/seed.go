// Package seed makes random tests repeatable.
package seed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Variable names the environment variable that sets the seed of every random test: WEIR_SEED=12 go
// test -run TestX ./…
const Variable = "WEIR_SEED"

// Seeds names the environment variable that sets how many random histories a test runs.
const Seeds = "WEIR_SEEDS"

// New returns the seed that WEIR_SEED gives, or else a new one, and logs it.
func New(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv(Variable); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("%s=%s: a number from 0 to %d is needed", Variable, given, uint64(1<<64-1))
		}
	}
	t.Logf("%s=%d", Variable, seed)
	return seed
}

// Random returns a source of random numbers from New's seed.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(New(t), 0))
}

// Histories returns how many random histories a test runs: WEIR_SEEDS, or else few. With WEIR_SEED
// it is that one history.
func Histories(t testing.TB, few int) []uint64 {
	t.Helper()
	if os.Getenv(Variable) != "" {
		return []uint64{New(t)}
	}
	if given := os.Getenv(Seeds); given != "" {
		var err error
		if few, err = strconv.Atoi(given); err != nil || few < 1 {
			t.Fatalf("%s=%s: a number of histories is needed", Seeds, given)
		}
	}
	seeds := make([]uint64, few)
	for i := range seeds {
		seeds[i] = rand.Uint64()
	}
	return seeds
}
