// Package claims is what work queues know of the messages of partitions, and how workers claim them
// one by one.
//
// The state of a partition is a floor, and above it runs of messages that share a fate:
//
//	partition   0 ........ floor ............................. next ........ end
//	            | all done | claimed | waiting | done | claimed | not claimed yet
//
// A [State] is the value of a key: of one partition, or of several that share [Limits].
// [State.Take] decides what a claim gets, and [Edit] what becomes of claimed messages. Both are
// arithmetic: the caller puts the new state, in an entry that checks the key's version. A lease
// ends when the store's time, as [Clock] tells it, is past its end: nothing is written then.
//
// A claim that finds no message waits in a [Line].
package claims
