package eventlog

// Watch tells a reader of all partitions of a topic when to fetch again. It costs the same however
// many partitions the topic has, while a Fetch that waits costs memory for each of its spans. Close
// it after use.
type Watch struct {
	moved chan struct{}
	close func()
}

// Watch begins to watch a topic. Call it before the first fetch: what is appended later is noticed.
func (l *Log) Watch(topic TopicID) *Watch {
	w := &Watch{moved: make(chan struct{}, 1)}
	w.close = func() { l.tail.removeWatch(topic, w) }
	l.tail.addWatch(topic, w)
	return w
}

// WatchPartition is Watch for one partition.
func (l *Log) WatchPartition(p Partition) *Watch {
	w := &Watch{moved: make(chan struct{}, 1)}
	spans := []Span{{Partition: p}}
	w.close = func() { l.tail.unwatch(spans, w.moved) }
	l.tail.watch(spans, w.moved)
	return w
}

// Moved returns a channel that has a value after one of the topic's partitions got records, the
// topic was deleted, or a new leader epoch began; and sometimes without a reason. Reasons share one
// value until it is received. Records of partitions that this process does not know yet to be of
// the topic are not noticed: fetch again after TopicsChanged, too.
func (w *Watch) Moved() <-chan struct{} { return w.moved }

// Close ends the watch.
func (w *Watch) Close() { w.close() }

func (t *tail) addWatch(topic TopicID, w *Watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watches[topic] == nil {
		t.watches[topic] = make(map[*Watch]struct{})
	}
	t.watches[topic][w] = struct{}{}
}

func (t *tail) removeWatch(topic TopicID, w *Watch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.watches[topic], w)
	if len(t.watches[topic]) == 0 {
		delete(t.watches, topic)
	}
}
