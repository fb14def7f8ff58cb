package queue

import (
	"container/list"
	"sync"
	"time"
)

// claimLine has the claims of a queue that wait, in turn. Where there may be something to claim, the one that has waited longest looks. A claim that
// was woken and finds messages wakes two others, for there may be more: so as many look as there are messages, and not all of thousands for each.
type claimLine struct {
	mu    sync.Mutex  // guards what follows
	line  list.List   // of *waiter
	alarm *time.Timer // wakes one at a time; nil: none is set
	at    time.Time   // of alarm
}

// waiter is a claim that waits. It is in the line unless it was woken and has not begun to look since.
type waiter struct {
	bell  chan struct{} // has a value when it is to look
	place *list.Element // in the line; nil: none
}

// join puts a claim at the end of the line, before it looks: it is woken for what it does not see.
func (l *claimLine) join(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.place = l.line.PushBack(w)
}

// leave takes a claim out. If it was woken and has not looked since, another is woken for it.
func (l *claimLine) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.place == nil {
		l.wakeOne()
		return
	}
	l.line.Remove(w.place)
	if l.line.Len() == 0 && l.alarm != nil {
		l.alarm.Stop()
		l.alarm = nil
	}
}

func (l *claimLine) wake(claims int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range claims {
		l.wakeOne()
	}
}

// wakeOne wakes the first in line. The caller holds l.mu.
func (l *claimLine) wakeOne() {
	if first := l.line.Front(); first != nil {
		w := l.line.Remove(first).(*waiter)
		w.place = nil
		w.bell <- struct{}{}
	}
}

// wakeIn wakes one after some time, or earlier if that was said before.
func (l *claimLine) wakeIn(after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := time.Now().Add(after)
	if l.alarm != nil && !at.Before(l.at) {
		return
	}
	if l.alarm != nil {
		l.alarm.Stop()
	}
	var alarm *time.Timer
	alarm = time.AfterFunc(after, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.alarm == alarm {
			l.alarm = nil
		}
		l.wakeOne()
	})
	l.alarm, l.at = alarm, at
}
