// Package deliver passes the events of topics to a handler in this process, as a member of a
// consumer group: in order within each partition, again after a failure, at least once, or exactly
// once with the handler's own transaction.
//
//	Delivery ── Join ──► Consumer ── one for each assigned partition ──► Partition
//	what a process has   a member of a group: it follows the             reads, calls the handler,
//	                     assignment and commits for all partitions       retries, gives up
//
// A Partition is in one of these states; its goroutine is in one at a time:
//
//	          ┌─────────────────────────── handled, failed ◄──────────────┐
//	          ▼                                                           │
//	     ┌─────────┐  events   ┌─────────┐  one more may run  ┌─────────┐ │
//	 ──► │ reading │ ────────► │ waiting │ ─────────────────► │ calling │─┘
//	     └─────────┘           └─────────┘                    └─────────┘
//	       ▲     │ paused, halted     │ drained, lost              │ failed for good
//	resume │     ▼                    ▼                            ▼
//	     ┌─────────┐             ┌─────────┐                 ┌───────────┐ letters are published
//	     │ stopped │ ──────────► │  ended  │ ◄────────────── │ giving up │ with the commit, or it
//	     └─────────┘ drained,    └─────────┘                 └───────────┘ halts: stopped
//	                 lost
//
// What others want of it (pause, seek, the loss of the partition) is a request: it is noted under
// the lock, and ends what the goroutine waits for. Three values are under the lock: control (what
// was requested), progress (how far the events are handled and committed), and transaction (what
// the running call has committed by itself).
package deliver
