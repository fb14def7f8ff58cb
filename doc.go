// Package weir keeps events in the storage that a program already has: PostgreSQL, MariaDB or
// MySQL, a SQLite file, a bucket of S3, several of these as shards, or memory. It opens the same
// log as `weir serve`, but in process and without a listener: Kafka clients, HTTP clients and SQL
// sessions see what is published here, and this package sees what they publish. Any number of
// processes may open one store; a SQLite file only those of one machine, and memory only one.
//
//	w, err := weir.Open(ctx, "postgres://user@localhost/shop", weir.Options{})
//	if err != nil { … }
//	defer w.Close(ctx)
//
//	err = w.EnsureTopic(ctx, weir.Topic{Name: "orders", Partitions: 8})
//	_, err = w.Publish(ctx, weir.Event{Topic: "orders", Key: []byte("4711"), Value: order})
//
//	consumer, err := w.Consume(ctx, weir.Subscription{
//		Group:  "billing",
//		Topics: []string{"orders"},
//		Handler: func(ctx context.Context, e weir.Event) error { return bill(ctx, e.Value) },
//	})
//
// # What may be relied on
//
// Publish returns when the events are on disk: all of them, or none. Events of one key are in one
// partition, in order. Concurrent calls share one trip to the store, so thousands of small calls
// are fast.
//
// PublishTx publishes within the caller's own transaction on PostgreSQL: the events exist if and
// only if it commits. A program that does nothing else needs no Log: TxPublisher works with any
// transaction, and a role that may only publish. OpenPool opens the database of a pgxpool.Pool.
//
// Consume delivers each event of the group's topics at least once. The partitions are divided among
// all consumers of the group, in this process and in other processes. The events of one partition
// come one after the other, in order: the next event comes after the handler has returned. An event
// counts as handled when its handler has returned nil; only then is its offset committed. Close
// lets running handlers finish and commits what they did, so a clean stop repeats nothing. After a
// kill the events whose offsets were not committed yet are delivered again. On PostgreSQL
// Event.CommitTx commits the offset within the handler's own transaction: then the handler's writes
// in that transaction happen exactly once. On other stores it returns ErrNotPostgres.
//
// A handler that fails or panics is called again after a pause, which grows with each attempt;
// other partitions continue. After Retry.Attempts attempts the event goes to the dead-letter topic,
// `<topic>.dlt`, with the reason in its headers. It goes there once: the dead letter and the commit
// of the event's offset are one change, except on a store made of shards (docs/shards.md).
//
// # Work queues
//
// A queue hands out the records of a topic one by one. CreateQueue creates a queue. Enqueue adds
// messages, optionally with a delay, priority or unique key. Work calls a handler for each message:
// at least once, by one worker at a time. A message whose handler fails comes again after a pause.
// After its last attempt it is a dead letter: see DeadMessages and Redrive. docs/queue.md has the
// promises.
//
// # Streams and projections
//
// A stream is the history of one thing, as events: Category.Append appends only if the stream is at
// the expected version; otherwise it returns a *ConflictError. Aggregate makes a decision from the
// state that a stream's events produce. Project keeps a read model of the events of categories, and
// can build a new one while readers still use the old one. docs/streams.md has the promises.
//
// # Errors
//
// There are three outcomes: done, certainly not done, and unknown. Only ErrUnsure means unknown:
// the change was sent to the store and the answer was lost. After ErrUnsure it is safe to repeat a
// call of PublishOnce, and an Append of events that all have an ID.
package weir
