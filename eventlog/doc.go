// Package eventlog is the core: one durable log of records in partitions, and a little keyed state.
//
// Every change is one Entry, and a Store commits entries. Log commits the entries of many callers
// in one flush (appender.go), caches recent batches for readers near the end (tail.go), follows
// what other processes write (follower.go), and manages topics, producers and retention.
package eventlog
