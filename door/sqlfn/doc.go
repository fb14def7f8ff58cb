// Package sqlfn is the door for SQL sessions on PostgreSQL. They publish with weir.publish, inside
// their own transactions, into the table weir.inbox; the Mover moves what was committed into the
// log. docs/sql.md is for users. The functions are in sql/functions, each in a file of its own
// name; the tables in sql/tables.
//
// A row is deleted from the inbox by the transaction that appends it to the log, so it is moved
// once. Rows are moved in the order in which they were inserted, as far as they are committed: if
// an event was inserted after another event of its key was committed, it comes later in the log. A
// transaction that stays open holds up nobody: its rows are moved when it has ended.
//
// Rows that cannot be moved, because something is wrong with them or their partition, are left in
// the inbox and tried again every minute. Later rows of the partition wait behind them; other
// partitions go on.
//
// Workers of queues claim with weir.claim: a request in a table, which a running weir answers
// (claim.go). Their acks, nacks and extensions are rows of the inbox (ack.go).
package sqlfn
