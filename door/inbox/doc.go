// Package inbox lets transactions of other programs publish events on MariaDB, MySQL and SQLite,
// and on every database that is a shard of a store: a transaction inserts rows into the table
// weir_inbox, and the mover publishes what was committed. door/sqlfn does more on a PostgreSQL that
// is not a shard.
//
// Each event is published exactly once. The entry that publishes a chunk of rows also puts a key
// that names them, with a check that no other mover put it meanwhile; the rows are deleted after
// that. Whoever finds the key deletes the rows that it names before reading more. On shards there
// is such a key for each partition to which rows go: see shards.go.
//
// On MariaDB and MySQL the procedures weir_events and weir_consume read the log; nothing of it goes
// through this package.
//
// Events of one transaction keep their order in a partition. Of two transactions, the one that was
// committed before the other began comes first.
package inbox
