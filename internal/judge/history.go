package judge

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"sync"
)

// History is what happened, in the order in which it was noticed. All of it goes to a file, and the
// last part stays in memory for those who report a violation.
type History struct {
	now  func() Moment
	file io.WriteCloser

	mu   sync.Mutex // guards what follows
	out  *bufio.Writer
	kept []event
}

type event struct {
	At    Moment
	Text  string
	about []string
}

// historyKept is how many events are kept in memory.
const historyKept = 200_000

// NewHistory keeps a history in a file, which it closes.
func NewHistory(file io.WriteCloser, now func() Moment) *History {
	return &History{now: now, file: file, out: bufio.NewWriter(file)}
}

// Add notes an event. What is about nothing in particular, as faults are, belongs to every report.
func (h *History) Add(text string, about ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := event{h.now(), text, about}
	fmt.Fprintf(h.out, "%v %s\n", e.At, e.Text)
	if len(h.kept) >= historyKept {
		h.kept = slices.Delete(h.kept, 0, historyKept/2)
	}
	h.kept = append(h.kept, e)
}

// Around returns the last n events up to a time, and a few after it, that are about one of the
// names or about nothing in particular.
func (h *History) Around(at Moment, about []string, n int) []event {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []event
	after := 0
	for _, e := range h.kept {
		if len(e.about) > 0 && !slices.ContainsFunc(e.about, func(name string) bool { return slices.Contains(about, name) }) {
			continue
		}
		if e.At > at {
			if after++; after > 5 {
				break
			}
		}
		found = append(found, e)
	}
	return found[max(0, len(found)-n):]
}

func (h *History) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.out.Flush(); err != nil {
		return err
	}
	return h.file.Close()
}
