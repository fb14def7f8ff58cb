package eventlog

// HeldAhead counts the bytes that were read ahead and wait for their readers.
func (l *Log) HeldAhead() (n int) {
	l.ahead.mu.Lock()
	defer l.ahead.mu.Unlock()
	for _, f := range l.ahead.next {
		n += bytesIn(f.slice.Batches)
	}
	return n
}
