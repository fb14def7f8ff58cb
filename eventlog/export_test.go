package eventlog

// HeldPrefetched counts the bytes that were prefetched and wait for their readers.
func (l *Log) HeldPrefetched() (n int) {
	l.prefetch.mu.Lock()
	defer l.prefetch.mu.Unlock()
	for _, f := range l.prefetch.next {
		n += bytesIn(f.slice.Batches)
	}
	return n
}
