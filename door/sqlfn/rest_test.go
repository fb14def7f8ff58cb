package sqlfn

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Any session may notify in a loop.
func TestAStormOfNotificationsDoesNotMakeAStormOfLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stirred := make(chan struct{})
		close(stirred) // it receives all the time
		m := &Mover{prunedAt: time.Now(), cfg: Config{Poll: pollEvery}}
		looks := 0
		for end := time.Now().Add(time.Second); time.Now().Before(end) && looks < 10_000; looks++ {
			m.idle(t.Context(), -1, time.Now(), stirred)
		}
		if looks > 500 {
			t.Errorf("%d looks in a second", looks)
		}
		before := time.Now()
		m.idle(t.Context(), -1, before.Add(-pollFast), stirred)
		if waited := time.Since(before); waited > 0 {
			t.Errorf("the last look was long ago, and a notification waited %v", waited)
		}
	})
}

func TestAStormOfNotificationsDoesNotMakeAStormOfLooksForClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notified := make(chan struct{})
		close(notified) // it receives all the time
		c := &claims{}
		looks := 0
		for end := time.Now().Add(time.Second); time.Now().Before(end) && looks < 10_000; {
			asked, rested := c.hears(notified)
			select {
			case <-asked:
				looks++
				c.emptyAt = time.Now()
			case <-rested:
			}
		}
		if looks > 500 {
			t.Errorf("%d looks in a second that found nothing", looks)
		}
		c.emptyAt = time.Now().Add(-pollFast)
		if asked, _ := c.hears(notified); asked == nil {
			t.Error("the last look that found nothing was long ago, and a notification has to wait")
		}
	})
}

// Positions that wait in memory are due at once while the database is away: they must not shorten
// the pause after an error.
func TestTheMoverPausesAfterAnErrorWhilePositionsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &Mover{cfg: Config{Poll: pollEvery}, positions: positions{rows: make([]row, 3)}}
		began := time.Now()
		for failures := 1; failures <= 20; failures++ {
			now := time.Now()
			m.idle(t.Context(), m.pauseAfter(false, errors.New("no connection"), failures, 0), now, nil)
		}
		if took := time.Since(began); took < 20*time.Second {
			t.Errorf("20 tries that failed took %v", took)
		}
		m.positions.carried = time.Now()
		now := time.Now()
		m.idle(t.Context(), -1, now, nil)
		if took := time.Since(now); took > carryEvery {
			t.Errorf("positions that are due after %v were left alone for %v", carryEvery, took)
		}
	})
}
