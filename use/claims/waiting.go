package claims

import (
	"container/list"
	"sync"
	"time"
)

// Line holds a queue's waiting claims, the oldest first. When there may be a message, only the
// oldest claim is woken. If it finds messages, it wakes two other claims, since there may be more
// messages. So a message does not wake thousands of claims for nothing.
type Line struct {
	mu    sync.Mutex  // guards what follows
	line  list.List   // its elements are *Waiter
	alarm *time.Timer // wakes one claim; nil: not set
	at    time.Time   // when alarm goes off
}

// Waiter is a claim that waits. It is in the line unless it was woken and has not begun to look for
// messages since.
type Waiter struct {
	Bell  chan struct{} // has a value once the claim is woken
	place *list.Element // in the line; nil: none
}

// Join puts a claim at the end of the line. A claim joins before it looks for messages, so that it
// is woken for messages that come after that.
func (l *Line) Join(w *Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.place = l.line.PushBack(w)
}

// Leave takes a claim out of the line. If it was woken and has not looked for messages since,
// another claim is woken instead.
func (l *Line) Leave(w *Waiter) {
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

// Wake wakes as many waiting claims as the parameter claims says, or all if there are fewer.
func (l *Line) Wake(claims int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range claims {
		l.wakeOne()
	}
}

// wakeOne wakes the first claim in line. The caller holds l.mu.
func (l *Line) wakeOne() {
	if first := l.line.Front(); first != nil {
		w := l.line.Remove(first).(*Waiter)
		w.place = nil
		w.Bell <- struct{}{}
	}
}

// WakeIn wakes one claim after some time, or earlier if an earlier alarm is set.
func (l *Line) WakeIn(after time.Duration) {
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
