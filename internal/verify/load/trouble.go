package load

import (
	"fmt"
	"sync"
	"time"
)

// trouble tells when calls of a protocol begin to fail, and when all who failed succeed again.
type trouble struct {
	protocol, what string // what: writes or reads
	history        *History
	say            func(string)

	mu    sync.Mutex // guards what follows
	fails map[int]bool
	since time.Time
}

// reasonMost bounds the text of an error in the history.
const reasonMost = 500

func (t *trouble) failed(caller int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fails == nil {
		t.fails = map[int]bool{}
	}
	if t.fails[caller] = true; len(t.fails) > 1 || !t.since.IsZero() {
		return
	}
	t.since = time.Now()
	text := err.Error()
	text = text[:min(len(text), reasonMost)]
	t.say(fmt.Sprintf("%s: %s fail: %s", t.protocol, t.what, text))
	_ = t.history.Note(Entry{Is: isTrouble, Protocol: t.protocol, Reader: t.what, Text: text}) // an error comes again with the next entry that counts
}

func (t *trouble) succeeded(caller int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.fails, caller)
	if len(t.fails) > 0 || t.since.IsZero() {
		return
	}
	took := time.Since(t.since)
	t.since = time.Time{}
	t.say(fmt.Sprintf("%s: %s succeed again after %.1f s", t.protocol, t.what, took.Seconds()))
	_ = t.history.Note(Entry{Is: isRecovered, Protocol: t.protocol, Reader: t.what})
}

// now reports whether calls fail.
func (t *trouble) now() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.since.IsZero()
}
