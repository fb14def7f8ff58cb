package budget_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/internal/budget"
	"github.com/weir-log/weir/internal/seed"
)

// holds is a claim that holds so much.
func holds(t *testing.T, b *budget.Budget, n int64) *budget.Claim {
	t.Helper()
	c := b.Begin()
	if _, err := c.Grow(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return c
}

// asks waits in line for so much; the answer comes when it is granted.
func asks(t *testing.T, b *budget.Budget, n int64) (*budget.Claim, <-chan error) {
	c, granted := b.Begin(), make(chan error, 1)
	go func() {
		_, err := c.Grow(t.Context(), n)
		granted <- err
	}()
	return c, granted
}

func TestOnePartIsKeptForThoseWhoWaitInLine(t *testing.T) {
	b := budget.New(100)
	large := b.Begin()
	if !large.TryGrow(75, false) {
		t.Fatal("three parts are not given")
	}
	small := b.Begin()
	if small.TryGrow(1, false) {
		t.Error("the last part is given to one who did not ask for all")
	}
	if !small.TryGrow(25, true) {
		t.Error("the last part is not given to one who asked for all")
	}
	if other := b.Begin(); other.TryGrow(1, true) {
		t.Error("more is given than there is")
	}
	large.Release()
	small.Release()
	if !b.Idle() {
		t.Error("something is still held")
	}
	if !large.TryGrow(1000, false) {
		t.Error("a budget that nobody uses does not give a claim what it wants")
	}
}

func TestNobodyOvertakesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(100)
		holds(t, b, 90)
		_, first := asks(t, b, 100) // it overdraws
		synctest.Wait()
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		waits, second := asks(t, b, 20)
		synctest.Wait()
		if b.Begin().TryGrow(1, true) {
			t.Error("a claim that began later is served before one that waits")
		}
		select {
		case <-second:
			t.Error("two claims overdraw")
		default:
		}
		_ = waits
	})
}

func TestWhoWaitsInVainHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(100)
		held := holds(t, b, 60)
		over := holds(t, b, 60) // overdraws
		c, stop := b.Begin(), make(chan struct{})
		close(stop)
		if _, err := c.GrowUntil(t.Context(), stop, 10); !errors.Is(err, budget.ErrStopped) || c.Held() != 0 {
			t.Errorf("%v, and %d bytes are held", err, c.Held())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Grow(ctx, 10); !errors.Is(err, context.DeadlineExceeded) || c.Held() != 0 {
			t.Errorf("%v, and %d bytes are held", err, c.Held())
		}
		held.Release()
		over.Release()
		if !b.Idle() {
			t.Error("something is still held")
		}
	})
}

// Who moved no byte for a second is cut, and who did not take an answer in its time; nobody is
// while nobody waits.
func TestSlowClientsAreCutWhileOthersWait(t *testing.T) {
	for name, moves := range map[string]bool{"silent": false, "slow": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := budget.New(4 << 20)
				slow := holds(t, b, 4<<20)
				gone := make(chan struct{})
				slow.Sends(func() { close(gone) })
				go func() {
					for tick := time.NewTicker(100 * time.Millisecond); ; {
						select {
						case <-tick.C:
							if moves {
								slow.Progress()
							}
						case <-gone:
							slow.Rests()
							slow.Release()
							return
						}
					}
				}()
				time.Sleep(time.Minute)
				select {
				case <-gone:
					t.Fatal("it is cut while nobody waits")
				default:
				}
				over := holds(t, b, 1) // who comes first overdraws
				began := time.Now()
				next := holds(t, b, 1)
				if took := time.Since(began); took > budget.SilentMax {
					t.Errorf("the next one waits %v", took)
				}
				over.Release()
				next.Release()
			})
		})
	}
}

func TestANilClaimCountsNothing(t *testing.T) {
	var c *budget.Claim
	if _, err := c.Grow(t.Context(), 1<<40); err != nil || !c.TryGrow(1<<40, false) || c.Held() != 0 || c.WasCut() || c.Progress() {
		t.Error("a nil claim counts")
	}
	c.Sends(nil)
	c.Shrink(1)
	c.Rests()
	c.Release()
}

// One key's claims have a part of the budget, and one claim's need. Others get memory at once,
// however many of these wait.
func TestTheClaimsOfOneKeyDelayOnlyTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(1000)
		granted, cut := make(chan *budget.Claim, 100), make(chan bool, 100)
		for range cap(granted) {
			c := b.BeginFor("greedy")
			go func() {
				if _, err := c.Grow(t.Context(), 80); err != nil {
					t.Error(err)
				}
				c.Sends(func() { cut <- true })
				granted <- c
			}()
		}
		synctest.Wait()
		if n := len(granted); n != 4 { // 3 fit, and one overdraws
			t.Errorf("%d claims of 80 bytes of one key are granted", n)
		}
		if b.BeginFor("greedy").TryGrow(1, true) {
			t.Error("the key gets more")
		}
		began := time.Now()
		other := b.BeginFor("other")
		if !other.TryGrow(100, false) {
			t.Error("another key's claim has to wait")
		}
		if _, err := other.Grow(t.Context(), 100); err != nil || time.Since(began) > 0 {
			t.Errorf("another key's claim waited %v, %v", time.Since(began), err)
		}
		if other.Sends(func() { t.Error("another key's client is cut off for those that wait for their own") }); other.Progress() {
			t.Error("another key's client is told that others wait for its memory")
		}
		time.Sleep(3 * budget.SilentMax)
		if len(cut) == 0 {
			t.Error("no slow client of the key is cut off while others of the key wait")
		}
		other.Release()
		for range cap(granted) { // each lets the next one in
			(<-granted).Release()
		}
		if !b.Idle() {
			t.Error("something is still held")
		}
	})
}

// Of those that wait for memory that many keys hold, those come first whose key holds least.
func TestKeysTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(1000)
		var all []*budget.Claim
		for _, key := range []string{"a", "b", "c", "d"} {
			c := b.BeginFor(key)
			if _, err := c.Grow(t.Context(), 250); err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		over := holds(t, b, 10) // overdraws
		served, granted := make(map[string]int), make(chan string, 4)
		count := func() {
			synctest.Wait()
			for len(granted) > 0 {
				served[<-granted]++
			}
		}
		for _, key := range []string{"a", "a", "new", "b"} {
			c := b.BeginFor(key)
			all = append(all, c)
			go func() {
				if _, err := c.Grow(t.Context(), 100); err != nil {
					t.Error(err)
				}
				granted <- key
			}()
			synctest.Wait()
		}
		all[1].Shrink(100)
		over.Release() // there is enough for one, and another may overdraw
		count()
		if len(served) != 2 || served["new"] != 1 || served["b"] != 1 {
			t.Errorf("first are served: %v", served)
		}
		for _, c := range all {
			c.Release()
			count()
		}
		for _, c := range all { // those that waited
			c.Release()
		}
		if served["a"] != 2 || !b.Idle() {
			t.Errorf("served: %v", served)
		}
	})
}

// Whatever claims of a few keys do, each comes to its end.
func TestEveryClaimComesToItsEnd(t *testing.T) {
	seed := seed.New(t)
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 0))
		b := budget.New(100)
		for range 300 {
			c, sizes := b.BeginFor([]string{"", "a", "b", "c"}[random.IntN(4)]), make([]int64, 1+random.IntN(4))
			for i := range sizes {
				sizes[i] = 1 + random.Int64N(60)
			}
			time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
			go func() {
				for _, n := range sizes {
					if !c.TryGrow(n, false) {
						if _, err := c.Grow(t.Context(), n); err != nil {
							t.Error(err)
						}
					}
					time.Sleep(time.Duration(n) * time.Millisecond)
				}
				c.Shrink(sizes[0])
				c.Release()
			}()
		}
		time.Sleep(time.Hour)
		if !b.Idle() {
			t.Error("some wait forever")
		}
	})
}
