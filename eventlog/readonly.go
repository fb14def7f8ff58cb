package eventlog

import "time"

// ReadOnly reports whether the store is a Replica: it is followed and read, and this process writes
// nothing, neither for its callers, who get ErrReadOnly, nor by itself: no retention, no
// compaction, no leader epochs. The processes that write the store do all that.
func (l *Log) ReadOnly() bool { return l.readOnly }

// Behind returns, of a log that is ReadOnly, how long ago it last knew all that other processes had
// committed.
func (l *Log) Behind() time.Duration {
	age, _ := behind(l.store)
	return age
}

func behind(store Store) (age time.Duration, replica bool) {
	if r, is := As[Replica](store); is {
		return r.Replica()
	}
	return 0, false
}
