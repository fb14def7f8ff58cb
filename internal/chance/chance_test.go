package chance_test

import (
	"testing"

	"github.com/weir-log/weir/internal/chance"
)

func TestASeedMakesTheSameNumbers(t *testing.T) {
	began := uint64(0)
	chance.Begins(func() { began = chance.Uint64() })
	draw := func(seed uint64) [3]uint64 {
		defer chance.Seed(seed)()
		return [3]uint64{began, chance.Uint64(), uint64(chance.N(1 << 40))}
	}
	if a, b, c := draw(1), draw(1), draw(2); a != b || a == c {
		t.Errorf("the seeds 1, 1, 2 made %v, %v, %v", a, b, c)
	}
	if a, b := chance.Uint64(), chance.Uint64(); a == b || chance.N(1) != 0 {
		t.Errorf("without a seed, two numbers are %d and %d", a, b)
	}
}
