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

// streams are all open streams. They are bounded, in all and for one key. One goroutine looks after them: it ends those whose key is not
// valid any more, and makes those look again whose topic changed, so that neither waits for the next event.
type streams struct {
	most, mostKey int
	log           *eventlog.Log
	valid         func(context.Context, apikey.Identity) error
	logger        *slog.Logger

	mu    sync.Mutex // guards the rest
	open  map[*openStream]struct{}
	ofKey map[string]int // how many are open, by the key's id
}

// openStream is one stream as streams sees it.
type openStream struct {
	who apikey.Identity
	end context.CancelFunc // ends the stream

	// Guarded by streams.mu.
	topic eventlog.Topic     // as the stream knows it
	again context.CancelFunc // ends the stream's wait
}

// newStreams wants to know whose key is still valid.
func newStreams(most, mostKey int, log *eventlog.Log, valid func(context.Context, apikey.Identity) error, logger *slog.Logger) *streams {
	return &streams{most: most, mostKey: mostKey, log: log, valid: valid, logger: logger, open: make(map[*openStream]struct{}), ofKey: make(map[string]int)}
}

// begin opens a stream, or says why there may be no more. Without keys all clients are one, and have all streams.
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

// look returns the stream's topic as it is now, and a context for waiting that also ends when the topic changes after that.
func (ss *streams) look(ctx context.Context, st *openStream) (eventlog.Topic, context.Context, context.CancelFunc, error) {
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

// keyLook is how often keys are looked at while their clients wait.
const keyLook = 5 * time.Second

// watch looks after the streams until ctx ends.
func (ss *streams) watch(ctx context.Context) {
	keys := time.NewTicker(keyLook)
	defer keys.Stop()
	for {
		changed := ss.log.TopicsChanged()
		ss.lookAgain()
		select {
		case <-ctx.Done():
			return
		case <-keys.C:
			ss.judge(ctx)
		case <-changed:
		}
	}
}

// lookAgain ends the wait of the streams whose topic is not any more what they know.
func (ss *streams) lookAgain() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for st := range ss.open {
		if topic, err := ss.log.TopicByID(st.topic.ID); err != nil || len(topic.Partitions) != len(st.topic.Partitions) {
			st.again()
		}
	}
}

// judge ends the streams whose keys are not valid any more. Where that cannot be known they go on.
func (ss *streams) judge(ctx context.Context) {
	ss.mu.Lock()
	who := make(map[string]apikey.Identity)
	for st := range ss.open {
		who[st.who.ID()] = st.who
	}
	ss.mu.Unlock()
	for id, key := range who { // that may take a trip to the store
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
