package budget_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/internal/budget"
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

// Who moved no byte for a second is cut, and who did not take an answer in its time; nobody is while nobody waits.
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
