// Package verify reads everything in a store, changes nothing, and says where the store's content
// contradicts itself. Servers may use the store meanwhile.
//
// An [Exam] walks the log once, partition by partition, and then runs its [Check]s, which read the
// keys. This package has the frame, and the checks of the log:
//
//	log       each partition's offsets are dense from its first to its end, each batch has its
//	          checksum, as many records and offsets as it says, and the time that the store's index
//	          has for it; a search by time finds what the batches say
//	topics    each partition of a topic exists, and each partition belongs to one topic
//	producers what the log knows of idempotent producers agrees with their batches
//
// A check of keys stands beside the codec that wrote them, so that no format is known in two
// places: group.Verify, stream.Verify, queue.Verify, and store.Verify for the objects of a bucket.
// internal/node puts those of the uses together.
//
// # Reads while others write
//
// A check compares what it read with several calls, and in between others commit. So it judges in
// two steps. A first look finds what may be wrong. Then [Exam.Confirm] looks again, until two looks
// in a row found the same and read all keys in the same versions: then there was a moment, between
// the two, when the store had what both read. A version is never used again for another value, so
// what did not hold at that moment is not reported. What changes with every look is not reported as
// a finding, but as undecided, and the exam is not complete.
//
// Ends of partitions are not compared between two looks: they grow with each record. A check reads
// keys before the ends that they must not pass, and ends only grow.
package verify
