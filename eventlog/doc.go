// Package eventlog is the core: one durable log of records in partitions, with a little keyed state beside it.
//
// Everything that any way of use does is one Entry, and a Store commits entries. Log gathers many
// callers' entries into one flush (appender.go), keeps recent batches in memory for readers near the end (tail.go),
// follows what other processes write (follower.go), and knows topics, producers and retention.
package eventlog
