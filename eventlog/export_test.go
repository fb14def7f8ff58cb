package eventlog

import "testing"

// HeldPrefetched counts the bytes that were prefetched and wait for their readers.
func (l *Log) HeldPrefetched() (n int) {
	l.prefetch.mu.Lock()
	defer l.prefetch.mu.Unlock()
	for _, f := range l.prefetch.next {
		n += bytesIn(f.slice.Batches)
	}
	return n
}

// Limits are the bounds that tests change.
type Limits = limits

// With returns the configuration with other limits.
func (c Config) With(l Limits) Config {
	c.limits = l
	return c
}

// Know makes this weir know names under NeedsKey, for one test.
func Know(t *testing.T, names ...string) {
	before := knows
	knows = append(knows, names...)
	t.Cleanup(func() { knows = before })
}
