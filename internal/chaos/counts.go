package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
)

// counts says how much of what was done: what stands at zero was not tested.
type counts struct {
	mu sync.Mutex // guards of
	of map[string]int
}

func (c *counts) add(what string) { c.addN(what, 1) }

func (c *counts) addN(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[what] += n
}

func (c *counts) print(out io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(c.of)) {
		fmt.Fprintf(out, "  %8d  %s\n", c.of[what], what)
	}
}
