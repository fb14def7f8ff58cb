package sqlfn

import (
	"testing"
	"testing/synctest"
	"time"
)

// Any session may notify in a loop.
func TestAStormOfNotificationsDoesNotMakeAStormOfLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stirred := make(chan struct{})
		close(stirred) // it receives all the time
		m := &Mover{forgot: time.Now(), cfg: Config{Poll: pollEvery}}
		looks := 0
		for end := time.Now().Add(time.Second); time.Now().Before(end) && looks < 10_000; looks++ {
			m.rest(t.Context(), -1, time.Now(), stirred)
		}
		if looks > 500 {
			t.Errorf("%d looks in a second", looks)
		}
		before := time.Now()
		m.rest(t.Context(), -1, before.Add(-lookEvery), stirred)
		if waited := time.Since(before); waited > 0 {
			t.Errorf("the last look was long ago, and a notification waited %v", waited)
		}
	})
}
