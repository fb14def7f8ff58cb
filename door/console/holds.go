package console

import (
	"time"

	"github.com/weir-log/weir/eventlog"
)

// What the log knows of its store and its topics without asking the store.

// topicSize is what a topic holds, all partitions together.
type topicSize struct {
	Offsets int64 // from the first offset to the end
	Ends    int64 // the sum of the end offsets: it grows by one with each record
	Bytes   int64
}

// sized is what topics held at one time.
type sized struct {
	at     time.Time
	topics map[string]topicSize
}

// Watch has the history see what the topics of a log hold, as this process knows it, which costs no
// call of the store. It must be called before Run.
func (h *History) Watch(log *eventlog.Log) {
	h.log, h.epoch = log, log.LeaderEpoch()
	h.topics = func() map[string]topicSize {
		all := make(map[string]topicSize)
		for _, t := range log.Topics() {
			var size topicSize
			for _, p := range t.Partitions {
				b, _ := log.Known(p)
				size.Offsets += int64(b.Next - b.First)
				size.Ends += int64(b.Next)
				size.Bytes += b.Bytes
			}
			all[t.Name] = size
		}
		return all
	}
}

// storeState is what the log knows of its store without asking it.
type storeState struct {
	ReadOnly bool
	Behind   float64 // seconds, of a log that is read only
	Shards   int
	Epoch    int64 // when a leader epoch began in the last hour, in milliseconds since 1970; 0: none did
}

func (h *History) storeState() (s storeState) {
	if h.log == nil {
		return s
	}
	s.ReadOnly, s.Shards = h.log.ReadOnly(), h.log.Shards()
	if s.ReadOnly {
		s.Behind = h.log.Behind().Seconds()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.epochAt.IsZero() && time.Since(h.epochAt) < historyLasts {
		s.Epoch = h.epochAt.UnixMilli()
	}
	return s
}

// size notes what topics hold, each sizeEvery.
func (h *History) size(now time.Time) {
	h.mu.Lock()
	due := h.topics != nil && (len(h.sizes) == 0 || now.Sub(h.sizes[len(h.sizes)-1].at) >= sizeEvery)
	h.mu.Unlock()
	if !due {
		return
	}
	next := sized{now, h.topics()}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.sizes) > 0 && now.Sub(h.sizes[0].at) >= rateOver {
		h.sizes = h.sizes[1:]
	}
	h.sizes = append(h.sizes, next)
}

// topicLine is a topic in a list, beside its name.
type topicLine struct {
	topicSize
	Rate *float64 // records appended in a second, over the last rateOver; nil: not known
}

// topicLines returns what is known of topics, by name.
func (h *History) topicLines() map[string]topicLine {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := make(map[string]topicLine)
	if len(h.sizes) == 0 {
		return lines
	}
	first, last := h.sizes[0], h.sizes[len(h.sizes)-1]
	for name, size := range last.topics {
		line := topicLine{topicSize: size}
		if before, was := first.topics[name]; was && last.at.After(first.at) {
			rate := max(0, float64(size.Ends-before.Ends)) / last.at.Sub(first.at).Seconds()
			line.Rate = &rate
		}
		lines[name] = line
	}
	return lines
}
