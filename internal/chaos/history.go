package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"sync"
)

// history is what happened, in the order in which it was noticed. All of it goes to a file, and the last part stays in memory
// for those who report a violation.
type history struct {
	now  func() moment
	file *os.File

	mu   sync.Mutex // guards what follows
	out  *bufio.Writer
	kept []event
}

type event struct {
	at    moment
	text  string
	about []string
}

// historyKept is how many events are kept in memory.
const historyKept = 200_000

func newHistory(path string, now func() moment) (*history, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &history{now: now, file: file, out: bufio.NewWriter(file)}, nil
}

// add notes an event. What is about nothing in particular, as faults are, belongs to every report.
func (h *history) add(text string, about ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := event{h.now(), text, about}
	fmt.Fprintf(h.out, "%v %s\n", e.at, e.text)
	if len(h.kept) >= historyKept {
		h.kept = slices.Delete(h.kept, 0, historyKept/2)
	}
	h.kept = append(h.kept, e)
}

// around returns the last n events up to a time, and a few behind it, that speak of one of the names, or of all.
func (h *history) around(at moment, about []string, n int) []event {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []event
	after := 0
	for _, e := range h.kept {
		if len(e.about) > 0 && !slices.ContainsFunc(e.about, func(name string) bool { return slices.Contains(about, name) }) {
			continue
		}
		if e.at > at {
			if after++; after > 5 {
				break
			}
		}
		found = append(found, e)
	}
	return found[max(0, len(found)-n):]
}

func (h *history) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.out.Flush(); err != nil {
		return err
	}
	return h.file.Close()
}
