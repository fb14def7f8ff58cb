package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// Watch tells when a stream may have changed. Close it after use.
type Watch struct {
	changed chan struct{}
	follows *follower
	stream  string
}

// Watch begins to watch a stream, which need not exist yet. Each later append to it, and its
// deletion, sends a value to Changed.
func (c *Category) Watch(stream string) (*Watch, error) {
	if err := checkName(stream); err != nil {
		return nil, fmt.Errorf("watch a stream of category %q: %w", c.Name(), err)
	}
	w := &Watch{changed: make(chan struct{}, 1), stream: stream}
	s := c.owner
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.followers[c.topic.ID]
	if f == nil {
		topic, err := c.knownTopic()
		if err != nil {
			return nil, fmt.Errorf("watch stream %q: %w", shorten(stream), err)
		}
		f = newFollower(c, topic)
		s.followers[c.topic.ID] = f
	}
	w.follows = f
	if f.watches[stream] == nil {
		f.watches[stream] = make(map[*Watch]struct{})
	}
	f.watches[stream][w] = struct{}{}
	return w, nil
}

// Changed returns a channel that has a value after the stream has changed, and sometimes when it
// has not. Changes share one value until it is received.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

// Close ends the watch.
func (w *Watch) Close() {
	f := w.follows
	s := f.category.owner
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(f.watches[w.stream], w)
	if len(f.watches[w.stream]) == 0 {
		delete(f.watches, w.stream)
	}
	if len(f.watches) == 0 && s.followers[f.category.topic.ID] == f {
		delete(s.followers, f.category.topic.ID)
		f.stop()
	}
}

// follower reads what is appended to a category, and tells the watches of its streams. It runs
// while there are any.
type follower struct {
	category *Category
	stop     context.CancelFunc
	watches  map[string]map[*Watch]struct{} // by stream; guarded by Streams.mu

	// The follower's goroutine uses these.
	moved *eventlog.Watch
	next  []eventlog.Offset // by partition
	turn  int               // which partition comes first, so that none starves
}

const (
	// followBytes bounds what a follower reads at a time, followSpan what it reads of one
	// partition, and followersRead how many followers read at the same time.
	followBytes, followSpan = 1 << 20, 64 << 10
	followersRead           = 4
	// followPause is how long a follower pauses after an error.
	followPause = time.Second
)

func newFollower(c *Category, topic eventlog.Topic) *follower {
	ctx, stop := context.WithCancel(context.Background())
	f := &follower{category: c, stop: stop, watches: make(map[string]map[*Watch]struct{}), moved: c.owner.log.Watch(topic.ID)}
	for _, p := range topic.Partitions {
		bounds, _ := c.owner.log.Known(p)
		f.next = append(f.next, bounds.Stable())
	}
	go f.run(ctx)
	return f
}

func (f *follower) run(ctx context.Context) {
	defer f.moved.Close()
	for ctx.Err() == nil {
		if err := f.follow(ctx); err != nil && ctx.Err() == nil {
			f.tell("", true) // so that those who watch read the stream, and get the error
			select {
			case <-ctx.Done():
			case <-time.After(followPause):
			}
		}
	}
}

// follow reads what there is, and waits if there is nothing.
func (f *follower) follow(ctx context.Context) error {
	changed := f.category.owner.log.TopicsChanged()
	topic, err := f.category.knownTopic()
	if err != nil {
		return err
	}
	for len(f.next) < len(topic.Partitions) { // what was appended to new partitions is read from the beginning
		f.next = append(f.next, 0)
	}
	some, err := f.read(ctx, topic)
	if some || err != nil {
		return err
	}
	select {
	case <-f.moved.Moved():
	case <-changed:
	case <-ctx.Done():
	}
	return nil
}

// read reads records, and tells the watches of their streams. some: there may be more.
func (f *follower) read(ctx context.Context, topic eventlog.Topic) (some bool, err error) {
	select {
	case f.category.owner.following <- struct{}{}:
		defer func() { <-f.category.owner.following }()
	case <-ctx.Done():
		return false, nil
	}
	spans := make([]eventlog.Span, len(f.next))
	f.turn++
	at := func(i int) int { return (i + f.turn) % len(f.next) }
	for i := range spans {
		spans[i] = eventlog.Span{Partition: topic.Partitions[at(i)], From: f.next[at(i)], MaxBytes: followSpan}
	}
	slices, err := f.category.owner.log.Fetch(ctx, eventlog.Want{Spans: spans, MaxBytes: followBytes})
	if err != nil {
		return false, err
	}
	for i, slice := range slices {
		next := &f.next[at(i)]
		var outside *eventlog.RangeError
		var damaged *eventlog.DamagedError
		switch {
		case errors.As(slice.Err, &outside) && *next > outside.Next: // the store was rewound
			*next = outside.Next
			f.tell("", true)
		case errors.As(slice.Err, &outside): // retention was faster
			*next = outside.First
			f.tell("", true)
		case errors.As(slice.Err, &damaged) && damaged.Next > *next:
			*next = damaged.Next
			f.tell("", true)
		case slice.Err != nil:
			return false, slice.Err
		}
		some = some || slice.Err != nil || len(slice.Batches) > 0
		for _, b := range slice.Batches {
			*next = max(*next, b.End())
			for r, err := range b.Decode() {
				f.tell(string(r.Key), err != nil)
			}
		}
	}
	return some, nil
}

// tell tells the watches of a stream, or of all streams.
func (f *follower) tell(stream string, all bool) {
	s := f.category.owner
	s.mu.Lock()
	defer s.mu.Unlock()
	tell := func(watches map[*Watch]struct{}) {
		for w := range watches {
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}
	if !all {
		tell(f.watches[stream])
		return
	}
	for _, watches := range f.watches {
		tell(watches)
	}
}
