package queue

import (
	"slices"
	"strings"

	"github.com/weir-log/weir/eventlog/batch"
)

// What a queue must remember about a message is in headers of its record, all named weir.queue.…. A
// client that may publish to the queue's topic can write such headers, too, or copy such headers of
// another record. So they count only if a queue wrote them:
//
//   - An enqueue drops them (isQueues).
//   - A queue marks the batches that it writes (batch.MarkOwn), which no client can do. In other
//     batches, headers about a message's past (tellsPast) are dropped when they are read, except in
//     the wheel, to whose topic nobody may publish.
//   - A unique key in the store says where its message is (holder.place).
const headerPrefix = "weir.queue."

// isQueues reports whether a header is a queue's own, so that no caller can give it to a message.
// The headers of a schedule may be passed on.
func isQueues(h batch.RecordHeader) bool {
	return strings.HasPrefix(h.Key, headerPrefix) && h.Key != HeaderSchedule && h.Key != HeaderTick
}

// tellsPast reports whether a header is about a message's past, before it was moved to this record.
func tellsPast(h batch.RecordHeader) bool {
	switch h.Key {
	case HeaderID, HeaderEnqueued, HeaderPriorAttempts, headerAvailable, headerTo, headerDue:
		return true
	}
	return false
}

// headersWith returns the headers of the record that a message moves to: those of rec, without the
// ones named in drop, and the added ones. An added header replaces those of its name: one that came
// twice would be a list in SQL, which reads it as one text.
func headersWith(rec batch.Record, drop []string, added ...batch.RecordHeader) []batch.RecordHeader {
	all := make([]batch.RecordHeader, 0, len(rec.Headers)+len(added))
	for _, h := range rec.Headers {
		replaced := slices.ContainsFunc(added, func(a batch.RecordHeader) bool { return a.Key == h.Key })
		if !replaced && !slices.Contains(drop, h.Key) {
			all = append(all, h)
		}
	}
	return append(all, added...)
}

// headerTo names the queue of a record that is in the wheel, or that came back from the wheel or
// from the dead letters.
func (q *Queue) headerTo() batch.RecordHeader {
	return batch.RecordHeader{Key: headerTo, Value: []byte(q.name + "/" + q.id)}
}

// isTo reports whether a record that was delayed, or came back, is a message of this queue.
func (q *Queue) isTo(rec batch.Record) bool {
	to, _ := header(rec, headerTo)
	return to == string(q.headerTo().Value)
}

// isOthers reports whether a record came back into the topic, for a retry or by a redrive, for
// another queue that reads the topic. An enqueued message is for all queues that read the topic,
// also if it was delayed.
func (q *Queue) isOthers(rec batch.Record) bool {
	_, back := header(rec, HeaderPriorAttempts)
	return back && !q.isTo(rec)
}
