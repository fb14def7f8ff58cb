package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/apikey"
)

// streams is the set of open streams. Their number is bounded, in all and per key. One goroutine watches them: it ends streams whose key is no
// longer valid, and wakes streams whose topic changed, so that neither has to wait for the next event.
type streams struct {
	most, mostKey int
	log           *eventlog.Log
	valid         func(context.Context, apikey.Identity) error
	logger        *slog.Logger

	mu    sync.Mutex // guards the rest
	open  map[*openStream]struct{}
	ofKey map[string]int // open streams by the key's id
}

// openStream is one stream in streams.
type openStream struct {
	who apikey.Identity
	end context.CancelFunc // ends the stream

	// Guarded by streams.mu.
	topic eventlog.Topic     // as the stream saw it last
	again context.CancelFunc // ends the stream's wait
}

// newStreams gets valid, which checks whether a key is still valid.
func newStreams(most, mostKey int, log *eventlog.Log, valid func(context.Context, apikey.Identity) error, logger *slog.Logger) *streams {
	return &streams{most: most, mostKey: mostKey, log: log, valid: valid, logger: logger, open: make(map[*openStream]struct{}), ofKey: make(map[string]int)}
}

// begin adds a stream, or returns an error at the limit. Without keys all clients count as one, without a limit per key.
func (ss *streams) begin(who apikey.Identity, topic eventlog.Topic, end context.CancelFunc) (*openStream, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	switch n := ss.ofKey[who.ID()]; {
	case who.ID() != "" && n >= ss.mostKey:
		return nil, kindTooManyStreams.past(int64(ss.mostKey), "the key %s has %d streams here, and %d of %d are the most for one key; close some, or stream from another process", who, n, ss.mostKey, ss.most)
	case len(ss.open) >= ss.most:
		return nil, kindOverloaded.past(int64(ss.most), "there are %d streams, the most there may be; try again later", ss.most)
	}
	st := &openStream{who: who, end: end, topic: topic, again: func() {}}
	ss.open[st] = struct{}{}
	ss.ofKey[who.ID()]++
	return st, nil
}

// close ends a stream.
func (ss *streams) close(st *openStream) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.open, st)
	if ss.ofKey[st.who.ID()]--; ss.ofKey[st.who.ID()] == 0 {
		delete(ss.ofKey, st.who.ID())
	}
}

// refresh returns the stream's current topic, and a context for waiting that also ends when the topic changes again.
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

// keyCheckEvery is how often keys are checked while their clients wait.
const keyCheckEvery = 5 * time.Second

// watch checks keys and topics of the streams until ctx ends.
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

// wakeChanged ends the wait of streams whose topic has changed.
func (ss *streams) wakeChanged() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for st := range ss.open {
		if topic, err := ss.log.TopicByID(st.topic.ID); err != nil || len(topic.Partitions) != len(st.topic.Partitions) {
			st.again()
		}
	}
}

// checkKeys ends streams whose key is no longer valid. If the store is unavailable they continue.
func (ss *streams) checkKeys(ctx context.Context) {
	ss.mu.Lock()
	who := make(map[string]apikey.Identity)
	for st := range ss.open {
		who[st.who.ID()] = st.who
	}
	ss.mu.Unlock()
	for id, key := range who { // this may take a store call
		err := ss.valid(ctx, key)
		if err == nil || errors.Is(err, eventlog.ErrUnavailable) {
			delete(who, id)
			continue
		}
		ss.logger.Info("http: the streams of a key end with it", "key", id, "reason", err)
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for st := range ss.open {
		if _, invalid := who[st.who.ID()]; invalid {
			st.end()
		}
	}
}
