// Package queue is the work queue: messages are claimed, acknowledged, retried and given up one by
// one.
//
// A queue is like a consumer group that acknowledges each message by itself. Its messages are the
// records of a topic, so one topic can feed queues and consumer groups alike, and they do not
// affect each other. Where a consumer group keeps one offset for a partition, a queue keeps what
// became of each message, see package claims.
//
// A queue consists of these keys in the store. Their values are text that people can read, mostly
// JSON:
//
//	queue/def/<name>             what the queue is: its id, topic and settings
//	queue/state/<id>/<partition> what became of the messages of one partition (claims.State)
//	queue/clock                  read to get the store's time; its value does not matter (claims.Clock)
//	queue/dead/<id>/<partition>  what became of the dead letters (Redrive, Discard)
//	queue/unique/<id>/<hash>     which message has a unique key (holder)
//	queue/schedule/<id>/<name>   a schedule: its expression, next tick and last tick; <id> is that of the schedules, which a purge does not change
//	queue/scheduled/<id>/<name>  the schedule's message, with the same <id>
//	queue/later/<partition>      what became of the messages in one slot of the wheel
//	queue/places/<partition>/<n> which messages of a slot are whose (block)
//	queue/gone/<id>              marks the id of a purged or deleted queue, whose keys must be deleted
//	queue/turner                 the process that moves delayed messages now (wheel)
//
// The version of a state's key decides conflicts. Any process may claim and acknowledge in any
// partition: each change checks that the state is still as that process knows it. If not, the
// process reads it again and repeats the change. The operations of many callers on one partition
// that come while a flush is in flight become one change (shard). No row is rewritten for each
// message.
//
// A claim is durable before the worker has it. It lasts until the worker acknowledges the message
// or gives it back, or until its lease ends by the store's clock. A receipt is for one claim: once
// the message is claimed again, the older receipt changes nothing, and its use returns
// ErrStaleReceipt.
package queue
