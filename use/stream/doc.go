// Package stream is event-sourced streams: events are appended to a stream at an expected version,
// and read back by version.
//
// A stream is a key with a version, and its events are records of a topic, its category. So every
// reader of topics reads streams: consumer groups, Kafka clients, HTTP and SQL get a category's
// events partition by partition, and those of one stream in order. A stream keeps the partition
// that it got with its first event.
//
// An append is one entry. It checks that the stream's head is as the caller's process knows it,
// puts the new head, appends the events to the stream's partition, and puts each of them under a
// key, too, so that the cost of reading a stream depends on how much is read, not on how long the
// log is, or how many other streams the partition has:
//
//	stream/category/<topic id>                      that the topic is a category, and its Retention
//	stream/retained/<topic id>                      that Retention was applied to it; its age says when
//	stream/head/<topic id>/<stream>                 where the stream ends and begins (head)
//	stream/event/<topic id>/<stream>/<version>      an event
//	stream/snapshot/<topic id>/<stream>/<version>   a snapshot; the newest is first
//	stream/id/<topic id>/<hash>                     the first version of an append that expected no version; the hash is of its events' ids
//	stream/subject/<topic id>/<subject>             the key that encrypts events about a subject; {} once it is destroyed
//	stream/tag/<topic id>/<tag>                     how many events have had a tag
//	stream/tag/<topic id>/                          0; its version changes when keys of tags are removed with their last events
//	stream/tagged/<topic id>/<tag>/<number>         the stream and version of an event with the tag
//	stream/projection/<name>                        which run of a projection readers use, and which is made beside it (Projection)
//	stream/gone/<topic id>/<stream>                 marks a stream with deleted events that must be removed: the head at the deletion
//
// The version of the head's key decides conflicts (eventlog.Check). Appends to one stream that wait
// in one process share an entry; if another process has appended, the check fails, and the appends
// here are judged again.
//
// A stream is at version n when it has had n events: they have the versions 0 to n-1, without gaps.
// A version is never used twice, not even if a stream was deleted and begun again.
package stream
