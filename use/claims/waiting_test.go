package claims

import (
	"testing"
	"testing/synctest"
	"time"
)

// waiters joins n claims to a line, and returns who was woken since it was last called.
func waiters(l *Line, n int) (all []*Waiter, woken func() []int) {
	for range n {
		w := &Waiter{Bell: make(chan struct{}, 1)}
		l.Join(w)
		all = append(all, w)
	}
	return all, func() (who []int) {
		for i, w := range all {
			select {
			case <-w.Bell:
				who = append(who, i)
			default:
			}
		}
		return who
	}
}

func same(t *testing.T, what string, got []int, want ...int) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %v are woken, want %v", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: %v are woken, want %v", what, got, want)
		}
	}
}

// Claims are woken in the order in which they came, each once.
func TestTheOldestClaimIsWokenFirst(t *testing.T) {
	var l Line
	all, woken := waiters(&l, 4)
	l.Wake(1)
	same(t, "one", woken(), 0)
	l.Wake(2)
	same(t, "two more", woken(), 1, 2)
	l.Join(all[0]) // it found nothing, and waits again
	l.Wake(1)
	same(t, "one that came before it", woken(), 3)
	l.Wake(5)
	same(t, "as many as there are", woken(), 0)
}

// A claim that leaves after it was woken hands that on: there may be a message.
func TestAClaimThatLeavesHandsItsWakeOn(t *testing.T) {
	var l Line
	all, woken := waiters(&l, 3)
	l.Leave(all[1])
	same(t, "one that waited left", woken())
	l.Wake(1)
	l.Leave(all[0])
	same(t, "one that was woken left", woken(), 0, 2)
}

// The earliest alarm counts, and it wakes one claim.
func TestTheEarliestAlarmWakesOneClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Line
		all, woken := waiters(&l, 3)
		l.WakeIn(3 * time.Second)
		l.WakeIn(time.Second)
		l.WakeIn(2 * time.Second)
		time.Sleep(time.Second - 1)
		same(t, "before the alarm", woken())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		same(t, "at the alarm", woken(), 0)
		time.Sleep(time.Minute)
		synctest.Wait()
		same(t, "later", woken())
		l.WakeIn(time.Second)
		l.Leave(all[1])
		l.Leave(all[2]) // nobody waits: no alarm is left behind
		late := &Waiter{Bell: make(chan struct{}, 1)}
		l.Join(late)
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case <-late.Bell:
			t.Error("an alarm of claims that left woke another")
		default:
		}
	})
}
