package kafka

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestLacksAreToldAgainAfterAWhileAndTakeBoundedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lacks
		for i := range 2 * lacksMax {
			if got, want := l.first(lack{strconv.Itoa(i), "x"}), i < lacksMax; got != want {
				t.Fatalf("lack %d is told: %v, expected %v", i, got, want)
			}
		}
		if l.first(lack{"0", "x"}) || len(l.logged) != lacksMax {
			t.Errorf("%d lacks are remembered, the limit is %d", len(l.logged), lacksMax)
		}
		time.Sleep(lacksAgain) // of fake time
		if !l.first(lack{"new", "x"}) || len(l.logged) != 1 {
			t.Error("after a while nothing new is told")
		}
	})
}
