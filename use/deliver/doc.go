// Package deliver passes the events of topics to a handler in this process, as a member of a
// consumer group: in order within each partition, again after a failure, at least once, or exactly
// once with the handler's own transaction.
//
//	Delivery ── Join ──► Consumer ── one for each assigned partition ──► Partition
//	what a process has   a member of a group: it follows the             reads, calls the handler,
//	                     assignment and commits for all partitions       retries, gives up
//
// The goroutine of a Partition is in one of these states:
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
// What others want of a Partition (pause, seek, the loss of the partition) is a request: it is
// noted under the lock, Partition.mu, and ends what the goroutine waits for. Values of four types
// are under the lock: control (what was requested, and whether the Partition has halted), progress
// (how far the events are handled and committed), transaction (what the running or last call has
// committed by itself), and call (which call is running).
package deliver
