package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/budget"
)

// streams is the set of open streams. Their number is bounded, in all and per client. One goroutine
// watches them: it ends streams whose credentials are no longer valid, and wakes streams whose
// topic changed, so that neither happens only at the next event.
type streams struct {
	count  *limiter
	log    *eventlog.Log
	valid  func(context.Context, *caller) error
	logger *slog.Logger

	mu   sync.Mutex // guards the rest
	open map[*openStream]struct{}
}

// openStream is one stream in streams.
type openStream struct {
	who *caller
	end context.CancelFunc // ends the stream

	// Guarded by streams.mu.
	topic eventlog.Topic     // as the stream saw it last
	again context.CancelFunc // ends the stream's wait

	memory *budget.Claim // of Server.waits
}

// newStreams takes valid, a function that checks whether a caller's credentials are still valid.
func newStreams(most int, log *eventlog.Log, valid func(context.Context, *caller) error, logger *slog.Logger) *streams {
	return &streams{
		count: newLimiter(most, quarter(most), "open streams", "close some, or stream from another weir process", kindTooManyStreams),
		log:   log, valid: valid, logger: logger, open: make(map[*openStream]struct{}),
	}
}

// begin adds a stream, which holds the memory until it is closed, or returns an error at the limit.
func (ss *streams) begin(who *caller, topic eventlog.Topic, memory *budget.Claim, end context.CancelFunc) (*openStream, error) {
	if err := ss.count.begin(who); err != nil {
		memory.Release()
		return nil, err
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	st := &openStream{who: who, end: end, topic: topic, again: func() {}, memory: memory}
	ss.open[st] = struct{}{}
	return st, nil
}

// close ends a stream.
func (ss *streams) close(st *openStream) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.open, st)
	ss.count.end(st.who)
	st.memory.Release()
}

// refresh returns the stream's current topic, and a context for waiting that also ends when the
// topic is deleted or gets partitions.
func (ss *streams) refresh(ctx context.Context, st *openStream) (eventlog.Topic, context.Context, context.CancelFunc, error) {
	waiting, again := context.WithCancel(ctx)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	topic, err := ss.log.TopicByID(st.topic.ID)
	if err == nil {
		st.topic = topic
	}
	st.again = again
	return topic, waiting, again, err
}

// keyCheckEvery is how often credentials are checked while their clients wait.
const keyCheckEvery = 5 * time.Second

// watch checks credentials and topics of the streams until ctx ends.
func (ss *streams) watch(ctx context.Context) {
	keys := time.NewTicker(keyCheckEvery)
	defer keys.Stop()
	for {
		changed := ss.log.TopicsChanged()
		ss.wakeChanged()
		select {
		case <-ctx.Done():
			return
		case <-keys.C:
			ss.checkKeys(ctx)
		case <-changed:
		}
	}
}

// wakeChanged ends the wait of streams whose topic was deleted or has more partitions.
func (ss *streams) wakeChanged() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for st := range ss.open {
		if topic, err := ss.log.TopicByID(st.topic.ID); err != nil || len(topic.Partitions) != len(st.topic.Partitions) {
			st.again()
		}
	}
}

// checkKeys ends streams whose credentials are no longer valid. If the store is unavailable they
// continue.
func (ss *streams) checkKeys(ctx context.Context) {
	ss.mu.Lock()
	open := slices.Collect(maps.Keys(ss.open))
	ss.mu.Unlock()
	logged := make(map[string]bool)
	for _, st := range open { // this may take a store call
		err := ss.valid(ctx, st.who)
		if err == nil || errors.Is(err, eventlog.ErrUnavailable) {
			continue
		}
		st.end()
		if id := st.who.ID(); !logged[id] {
			logged[id] = true
			ss.logger.Info("http: closes the streams of a client whose credentials are no longer valid", "who", id, "err", err)
		}
	}
}
