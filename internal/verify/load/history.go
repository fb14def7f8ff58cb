package load

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// File is where a history is kept.
type File interface {
	io.Writer
	Sync() error
}

// History keeps entries in a file, and judges them as they come.
type History struct {
	file  File
	began time.Time

	syncing sync.Mutex // held by who syncs the file for all that wait
	mu      sync.Mutex // guards what follows
	out     *bufio.Writer
	judge   *judge
	added   uint64 // entries
	synced  uint64 // of them
	err     error  // the first one: nothing counts after it
}

// NewHistory begins a history in an empty file.
func NewHistory(file File) *History {
	return &History{file: file, began: time.Now(), out: bufio.NewWriterSize(file, 64<<10), judge: newJudge()}
}

// Note adds entries in their order. They may be lost if this machine fails.
func (h *History) Note(entries ...Entry) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.add(entries)
}

// Keep adds entries, and returns when they are on the disk. Callers share a sync.
func (h *History) Keep(entries ...Entry) error {
	h.mu.Lock()
	err := h.add(entries)
	mine := h.added
	h.mu.Unlock()
	if err != nil {
		return err
	}
	h.syncing.Lock()
	defer h.syncing.Unlock()
	h.mu.Lock()
	if h.err != nil || h.synced >= mine { // whoever synced before had it
		defer h.mu.Unlock()
		return h.err
	}
	all := h.added
	if err := h.out.Flush(); err != nil {
		h.err = fmt.Errorf("write the history: %w", err)
	}
	h.mu.Unlock()
	err = h.file.Sync()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil && h.err == nil {
		h.err = fmt.Errorf("sync the history: %w", err)
	}
	if h.err == nil {
		h.synced = all
	}
	return h.err
}

func (h *History) add(entries []Entry) error {
	if h.err != nil {
		return h.err
	}
	for _, e := range entries {
		e.At = time.Since(h.began).Milliseconds()
		line, err := json.Marshal(e)
		if err != nil {
			panic(err) // its fields can be encoded
		}
		if _, err := h.out.Write(append(line, '\n')); err != nil {
			h.err = fmt.Errorf("write the history: %w", err)
			return h.err
		}
		if err := h.judge.add(e); err != nil {
			panic(err) // the runner wrote what no judge reads
		}
		h.added++
	}
	return nil
}

// now asks the judge something.
func (h *History) now(ask func(*judge)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ask(h.judge)
}

// Logged puts what a logger writes into the history of a run. The zero value is ready.
type Logged struct{ to atomic.Pointer[History] }

func (l *Logged) Write(line []byte) (int, error) {
	if h := l.to.Load(); h != nil {
		_ = h.Note(Entry{Is: isLog, Text: strings.TrimSpace(string(line[:min(len(line), reasonMost)]))})
	}
	return len(line), nil
}
