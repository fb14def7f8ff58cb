// Package publish turns events into records: it finds the topic, chooses the partition, checks the
// event against the topic's limits and makes it durable. The doors for people without a Kafka
// client (HTTP, the Go library) publish through it.
//
// A single event, or many for one partition, is gathered with events of other callers into shared
// batches. Events for several partitions or topics become one eventlog.Entry: all are published, or
// none.
//
// When events are published under an idempotency key, the same entry puts keys in the store that
// say where the events went:
//
//	publish/once/<key>     what was published, and where; escaped as in a URL path, with "<topic id>/" before a key that belongs to a topic
//	publish/once/<key>/<n> where the events of the n-th other partition went
//
// So a repetition is recognised by any process, also after a crash. Publisher.Run deletes old keys.
package publish
