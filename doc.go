// Package weir keeps events in the storage that a program already has: PostgreSQL, a SQLite file, or memory. It is the
// same log that `weir serve` opens, in process and without a listener: whatever is published here is seen by
// Kafka clients, over HTTP and by SQL, and the other way round. Any number of processes may open one store.
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
// Publish returns when the events are on disk, all of them or none. Events of one key are in one partition, in order. Calls at the same
// time share one trip to the store, so thousands of small ones are fast.
//
// PublishTx publishes within the caller's own transaction on PostgreSQL: the events exist if and only if it commits.
//
// Consume delivers each event of the group's topics at least once. The partitions are divided among all
// consumers of the group, in this process and in others; of each partition the events come one after the other, in order, and the next
// one comes when the handler has returned. An event counts as handled when its handler returned nil, and only
// then its offset is committed. Close lets running handlers finish and commits what they did, so a clean stop repeats nothing; a process that is killed repeats
// what was not committed yet. Event.CommitTx commits the offset within the handler's own transaction: then
// what the handler writes there, it writes exactly once.
//
// A handler that fails, or panics, is called again after a pause that grows, while other partitions go on. After
// Retry.Attempts the event goes to the dead-letter topic, `<topic>.dlt`, with the reason in its headers: once, as that and the commit of its offset
// are one change.
//
// # Work queues
//
// A queue hands out the records of a topic one by one. CreateQueue makes one, Enqueue adds messages, with a delay, a priority or a unique key, and Work
// calls a handler for each: at least once, by one worker at a time. A message whose handler fails comes again after a pause, and becomes a dead letter
// after its last attempt: DeadMessages, Redrive. docs/queue.md has the promises.
//
// # Streams and projections
//
// A stream is the history of one thing, as events: Category.Append appends at the version that is expected, and a *ConflictError says that others were
// faster. Aggregate decides by the state that the events add up to. Project keeps a read model of the events of categories, and makes it anew beside
// the one that readers use. docs/streams.md has the promises.
//
// # Errors
//
// There are three outcomes: done, certainly not done, and unknown. Only ErrUnsure means the third: the change was sent to the store
// and the answer was lost. PublishOnce makes it safe to try such a publication again.
package weir
