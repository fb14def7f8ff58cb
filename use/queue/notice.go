package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// Each process caches the definitions of the queues that it uses. A change of messages' states
// checks the definition. A claim that waits, and most enqueues, change no state and do not check
// it. So each change of a definition appends a notice to an internal topic: a record whose key is
// the queue's name. Each process that has opened a queue waits for notices, just as the log waits
// for changes of topics in partition 0. This costs no store call while no queue is changed.
const (
	noticeTopic = "__weir_queues"
	noticeBytes = 64 << 10 // how many bytes of notices are read at a time
	noticeKept  = time.Hour
)

// define appends an entry that changes a queue's definition, with a notice.
func (qs *Queues) define(ctx context.Context, name string, e eventlog.Entry) error {
	for again := true; ; again = false {
		topic, err := qs.notices(ctx)
		if err != nil {
			return err
		}
		notice, err := topic.Seal(topic.Partitions[0], []batch.Record{{Timestamp: time.Now().UnixMilli(), Key: []byte(name)}})
		if err != nil {
			return err
		}
		noticed := e
		noticed.Batches = append([]eventlog.Batch{notice}, e.Batches...)
		_, err = qs.log.Append(ctx, noticed)
		if err == nil {
			qs.hear(name)
		}
		if !again || !errors.Is(err, eventlog.ErrNoPartition) {
			return err
		}
		if err := qs.log.RefreshTopics(ctx); err != nil { // a store that was rewound may have lost the topic
			return err
		}
	}
}

// notices returns the topic of notices, and creates it if it does not exist.
func (qs *Queues) notices(ctx context.Context) (eventlog.Topic, error) {
	t, _, err := qs.makeTopic(ctx, eventlog.TopicSpec{Name: noticeTopic, Partitions: 1, Internal: true, Config: map[string]string{retentionMs: fmt.Sprint(noticeKept.Milliseconds())},
		Beside: func(eventlog.TopicID) string { return defPrefix }})
	return t, err
}

// followDefinitions lets this process hear of queues that other processes change, once it has
// opened a queue.
func (qs *Queues) followDefinitions(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-qs.uses:
	}
	for failures := 0; ctx.Err() == nil; {
		heard, err := qs.hearNotices(ctx)
		if err == nil {
			failures = 0
			continue
		}
		if heard {
			failures = 0
		}
		if failures++; failures == 1 && ctx.Err() == nil {
			qs.logger.Warn("cannot read changes of queues; trying again", "err", err)
		}
		eventlog.Pause(ctx, failures)
	}
}

// hearNotices marks all opened queues to be read again, then reads new notices until the store is
// found rewound. heard: it began to read notices.
func (qs *Queues) hearNotices(ctx context.Context) (heard bool, err error) {
	changed := qs.log.IncarnationChanged()
	topic, err := qs.notices(ctx)
	if err != nil {
		return false, err
	}
	p := topic.Partitions[0]
	at, err := qs.log.Bounds(ctx, p)
	if err == nil {
		err = at[0].Err
	}
	if err != nil {
		return false, err
	}
	qs.mu.Lock()
	qs.heard++ // a definition that is being read now is read again
	opened := slices.Collect(maps.Keys(qs.opened))
	qs.mu.Unlock()
	for _, name := range opened {
		qs.hear(name)
	}
	if err := qs.dropDeleted(ctx, opened); err != nil {
		return false, err
	}
	for from := at[0].Bounds.Next; ; {
		got, err := qs.log.Fetch(ctx, eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: from, MaxBytes: noticeBytes}}, MaxBytes: noticeBytes, MaxWait: time.Hour, Stop: changed})
		if err == nil {
			err = got[0].Err
		}
		if err != nil || isClosed(changed) || ctx.Err() != nil {
			return true, err
		}
		var names []string
		for _, b := range got[0].Batches {
			records, next, err := qs.records.decode(ctx, b)
			if err != nil {
				return true, err
			}
			for _, rec := range records {
				qs.hear(string(rec.Key))
				names = append(names, string(rec.Key))
			}
			from = next
		}
		if err := qs.dropDeleted(ctx, names); err != nil {
			return true, err
		}
	}
}

// dropDeleted forgets the opened queues of these names that were purged or deleted: one store call
// for a thousand names, none if none is opened. A caller that uses such a queue keeps it until its
// call ends.
func (qs *Queues) dropDeleted(ctx context.Context, names []string) error {
	opened := make(map[string]*Queue) // by key
	qs.mu.Lock()
	for _, name := range names {
		if q := qs.opened[name]; q != nil {
			opened[defKey(name)] = q
		}
	}
	qs.mu.Unlock()
	return qs.log.GetAll(ctx, slices.Sorted(maps.Keys(opened)), func(kv eventlog.KeyValue) error {
		q := opened[kv.Key]
		if kv.Version > 0 {
			if d, err := parseDefinition(kv); err != nil || d.id == q.id {
				return nil // an error is told to whoever uses the queue
			}
		}
		qs.dropOpened(q)
		return nil
	})
}

// hear makes the next use of a queue read its definition again, and wakes a waiting claim.
func (qs *Queues) hear(name string) {
	qs.mu.Lock()
	qs.heard++
	q := qs.opened[name]
	qs.mu.Unlock()
	if q != nil {
		q.hear()
	}
}

func (q *Queue) hear() {
	q.mu.Lock()
	q.heard++
	if !isClosed(q.outdated) {
		close(q.outdated)
	}
	q.mu.Unlock()
	q.wakeClaims()
}

// outdates returns a channel that is closed when this process hears that the definition was
// changed.
func (q *Queue) outdates() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.outdated
}

// update reads the definition again if this process has heard that it was changed. Errors are those
// of redefine.
func (q *Queue) update(ctx context.Context) error {
	if !isClosed(q.outdates()) {
		return nil
	}
	return q.redefine(ctx)
}

// redefine reads the definition again: one store call, or more if it is changed meanwhile.
// ErrUnknownQueue if it was deleted or purged, even if a queue has its name now. Until the new
// definition is read the old one counts as outdated.
func (q *Queue) redefine(ctx context.Context) error {
	for {
		heard := q.news()
		d, err := q.owner.read(ctx, q.name)
		if err == nil && d.id != q.id {
			err = fmt.Errorf("%w: %q was purged, or deleted and created again", ErrUnknownQueue, q.name)
		}
		if errors.Is(err, ErrUnknownQueue) {
			q.owner.dropOpened(q)
		}
		if err != nil {
			q.hear()
			return err
		}
		if q.take(&d, heard) {
			return nil
		}
	}
}

// news returns how often this process has heard that the definition was changed.
func (q *Queue) news() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.heard
}

// take keeps a definition that was read, unless a newer one is known. false: the definition was
// changed since news returned heard.
func (q *Queue) take(d *definition, heard int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.heard != heard {
		return false
	}
	if d.version >= q.def.Load().version || q.rewound {
		q.def.Store(d)
		q.rewound = false
	}
	if isClosed(q.outdated) {
		q.outdated = make(chan struct{})
	}
	return true
}
