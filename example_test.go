package weir_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir"
)

// must keeps the examples short. Programs handle their errors.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// A published event is on disk. Every group gets it, now or after a restart.
func Example() {
	ctx := context.Background()
	dir := must(os.MkdirTemp("", "weir"))
	defer os.RemoveAll(dir)

	w := must(weir.Open(ctx, "sqlite:"+filepath.Join(dir, "weir.db"), weir.Options{}))
	defer w.Close(ctx)
	check(w.EnsureTopic(ctx, weir.Topic{Name: "orders", Partitions: 4}))
	must(w.Publish(ctx, weir.Event{Topic: "orders", Key: []byte("4711"), Value: []byte("two teapots")}))

	billed := make(chan string)
	must(w.Consume(ctx, weir.Subscription{
		Group:  "billing",
		Topics: []string{"orders"},
		Handler: func(ctx context.Context, e weir.Event) error {
			billed <- fmt.Sprintf("%s: %s", e.Key, e.Value)
			return nil
		},
	}))
	fmt.Println(<-billed)
	// Output: 4711: two teapots
}

// The events of one call are published together or not at all, also across topics.
func ExampleLog_Publish() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{}))
	defer w.Close(ctx)
	check(w.EnsureTopic(ctx, weir.Topic{Name: "orders"}))

	placed := must(w.Publish(ctx,
		weir.Event{Topic: "orders", Key: []byte("4711"), Value: []byte("placed")},
		weir.Event{Topic: "orders", Key: []byte("4711"), Value: []byte("paid"), Headers: []weir.Header{{Key: "by", Value: []byte("card")}}},
	))
	fmt.Println(placed[0].Offset, placed[1].Offset)

	_, err := w.Publish(ctx, weir.Event{Topic: "orders"}, weir.Event{Topic: "no such topic"})
	fmt.Println(err != nil, must(w.Bounds(ctx, "orders"))[0].Next)
	// Output:
	// 0 1
	// true 2
}

// A call that is repeated with the same key publishes once.
func ExampleLog_PublishOnce() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{}))
	defer w.Close(ctx)
	check(w.EnsureTopic(ctx, weir.Topic{Name: "orders"}))

	for range 2 {
		placed, repeated, err := w.PublishOnce(ctx, "request-17", weir.Event{Topic: "orders", Value: []byte("two teapots")})
		fmt.Println(placed[0].Offset, repeated, err)
	}
	// Output:
	// 0 false <nil>
	// 0 true <nil>
}

// All consumers of a group share its work, in any number of processes on one store: each event
// comes to one of them.
func ExampleLog_Consume_sharing() {
	ctx := context.Background()
	dir := must(os.MkdirTemp("", "weir"))
	defer os.RemoveAll(dir)

	handled := make(chan string)
	for _, process := range []string{"a", "b"} { // which would be two programs
		w := must(weir.Open(ctx, "sqlite:"+filepath.Join(dir, "weir.db"), weir.Options{Logger: discard}))
		defer w.Close(ctx)
		check(w.EnsureTopic(ctx, weir.Topic{Name: "orders", Partitions: 8}))
		must(w.Consume(ctx, weir.Subscription{Group: "billing", Topics: []string{"orders"}, Name: process, Handler: func(ctx context.Context, e weir.Event) error {
			handled <- string(e.Value)
			return nil
		}}))
		must(w.Publish(ctx,
			weir.Event{Topic: "orders", Key: []byte("4711"), Value: []byte("a teapot, published by " + process)},
			weir.Event{Topic: "orders", Key: []byte("4712"), Value: []byte("a kettle, published by " + process)}))
	}
	for range 4 {
		fmt.Println(<-handled)
	}
	// Unordered output:
	// a teapot, published by a
	// a kettle, published by a
	// a teapot, published by b
	// a kettle, published by b
}

// Urgent events get a partition of their own.
func ExamplePartitioner() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{Partitioner: func(e *weir.Event, n int) int32 {
		if _, urgent := e.Header("urgent"); urgent {
			return 0
		}
		return 1 + int32(crc32.ChecksumIEEE(e.Key)%uint32(n-1))
	}}))
	defer w.Close(ctx)
	check(w.EnsureTopic(ctx, weir.Topic{Name: "orders", Partitions: 4}))

	placed := must(w.Publish(ctx,
		weir.Event{Topic: "orders", Key: []byte("4711"), Value: []byte("two teapots")},
		weir.Event{Topic: "orders", Key: []byte("4711"), Value: []byte("two more")},
		weir.Event{Topic: "orders", Key: []byte("4712"), Value: []byte("a kettle"), Headers: []weir.Header{{Key: "urgent"}}},
	))
	fmt.Println(placed[0].Partition > 0, placed[0].Partition == placed[1].Partition, placed[2].Partition)
	// Output: true true 0
}

// Every process may register its topics when it starts.
func ExampleLog_EnsureTopic() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{}))
	defer w.Close(ctx)

	orders := weir.Topic{Name: "orders", Partitions: 4, Config: map[string]string{"retention.ms": "86400000"}}
	fmt.Println(w.EnsureTopic(ctx, orders))
	fmt.Println(w.EnsureTopic(ctx, orders))
	orders.Partitions = 8
	fmt.Println(errors.Is(w.EnsureTopic(ctx, orders), weir.ErrTopicDiffers))
	fmt.Println(w.RaisePartitions(ctx, "orders", 8), w.EnsureTopic(ctx, orders))
	// Output:
	// <nil>
	// <nil>
	// true
	// <nil> <nil>
}

// A batch handler gets the events that are there, up to MaxBatch. With MinBatch they wait for more
// events, at most for MaxWait.
func ExampleSubscription_batches() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{}))
	defer w.Close(ctx)
	check(w.EnsureTopic(ctx, weir.Topic{Name: "clicks"}))
	for i := range 10 {
		must(w.Publish(ctx, weir.Event{Topic: "clicks", Value: fmt.Appendf(nil, "click %d", i)}))
	}

	sizes := make(chan int)
	must(w.Consume(ctx, weir.Subscription{
		Group:    "statistics",
		Topics:   []string{"clicks"},
		MinBatch: 4,
		MaxBatch: 6,
		MaxWait:  time.Minute,
		BatchHandler: func(ctx context.Context, events []weir.Event) error {
			sizes <- len(events)
			return nil
		},
	}))
	fmt.Println(<-sizes, <-sizes)
	// Output: 6 4
}

// An event whose handler fails is tried again, after longer and longer pauses. After the last
// attempt it becomes a dead letter, and later events follow.
func ExampleSubscription_retryAndDeadLetter() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{Logger: discard}))
	defer w.Close(ctx)
	check(w.EnsureTopic(ctx, weir.Topic{Name: "orders"}))
	must(w.Publish(ctx, weir.Event{Topic: "orders", Value: []byte("no JSON")}, weir.Event{Topic: "orders", Value: []byte("{}")}))

	handled := make(chan string, 10)
	must(w.Consume(ctx, weir.Subscription{
		Group:  "billing",
		Topics: []string{"orders"},
		Retry:  weir.Retry{Attempts: 3, First: time.Millisecond},
		Handler: func(ctx context.Context, e weir.Event) error {
			handled <- fmt.Sprintf("%s, attempt %d", e.Value, e.Attempt)
			if e.Value[0] != '{' {
				return errors.New("cannot parse it") // weir.Permanent(err) would try no more
			}
			return nil
		},
	}))
	for range 4 {
		fmt.Println(<-handled)
	}

	for e, err := range w.Read(ctx, weir.TopicPartition{Topic: weir.DeadLetterTopic("orders")}, weir.Earliest) {
		check(err)
		reason, _ := e.Header(weir.HeaderReason)
		attempts, _ := e.Header(weir.HeaderAttempts)
		fmt.Printf("dead letter: %s: %s, after %s attempts\n", e.Value, reason, attempts)
	}
	// Output:
	// no JSON, attempt 1
	// no JSON, attempt 2
	// no JSON, attempt 3
	// {}, attempt 1
	// dead letter: no JSON: cannot parse it, after 3 attempts
}

// An event that can never be handled is given up at once.
func ExamplePermanent() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{Logger: discard}))
	defer w.Close(ctx)
	check(w.EnsureTopic(ctx, weir.Topic{Name: "orders"}))
	must(w.Publish(ctx, weir.Event{Topic: "orders", Value: []byte("no JSON")}, weir.Event{Topic: "orders", Value: []byte("{}")}))

	handled := make(chan string)
	must(w.Consume(ctx, weir.Subscription{Group: "billing", Topics: []string{"orders"}, Handler: func(ctx context.Context, e weir.Event) error {
		handled <- fmt.Sprintf("%s, attempt %d", e.Value, e.Attempt)
		var order struct{}
		if err := json.Unmarshal(e.Value, &order); err != nil {
			return weir.Permanent(err)
		}
		return nil // or an error of the database, which is worth another attempt
	}}))
	fmt.Println(<-handled)
	fmt.Println(<-handled)
	// Output:
	// no JSON, attempt 1
	// {}, attempt 1
}

// A DeadLetter of the program's own chooses the topic and the content of a dead letter.
func ExampleDeadLetter() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{Logger: discard}))
	defer w.Close(ctx)
	check(w.EnsureTopic(ctx, weir.Topic{Name: "orders"}))
	check(w.EnsureTopic(ctx, weir.Topic{Name: "complaints"}))
	must(w.Publish(ctx, weir.Event{Topic: "orders", Value: []byte("no JSON")}, weir.Event{Topic: "orders", Value: []byte("no JSON either")}))

	must(w.Consume(ctx, weir.Subscription{
		Group:   "billing",
		Topics:  []string{"orders"},
		Handler: func(ctx context.Context, e weir.Event) error { return weir.Permanent(errors.New("cannot parse it")) },
		DeadLetter: func(ctx context.Context, f weir.Failure) ([]weir.Event, error) {
			e := f.DeadLetterEvent()
			e.Topic = "complaints"
			e.Value = fmt.Appendf(nil, "%s: %s", f.Event.Value, f.Err)
			return []weir.Event{e}, nil // or none, to drop the event; or an error, to halt there
		},
	}))
	complaints := make(chan string)
	must(w.Consume(ctx, weir.Subscription{Group: "clerks", Topics: []string{"complaints"}, Handler: func(ctx context.Context, e weir.Event) error {
		complaints <- string(e.Value)
		return nil
	}}))
	fmt.Println(<-complaints)
	fmt.Println(<-complaints)
	// Output:
	// no JSON: cannot parse it
	// no JSON either: cannot parse it
}

// A batch handler tells which event failed: those before it are done, and are not delivered again.
func ExampleFailedAt() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{Logger: discard}))
	defer w.Close(ctx)
	check(w.EnsureTopic(ctx, weir.Topic{Name: "orders"}))
	must(w.Publish(ctx, weir.Event{Topic: "orders", Value: []byte("a")}, weir.Event{Topic: "orders", Value: []byte("b")}, weir.Event{Topic: "orders", Value: []byte("c")}))

	calls := make(chan int)
	failed := false
	must(w.Consume(ctx, weir.Subscription{
		Group:    "billing",
		Topics:   []string{"orders"},
		MinBatch: 2,
		BatchHandler: func(ctx context.Context, events []weir.Event) error {
			calls <- len(events)
			if !failed {
				failed = true
				return weir.FailedAt(1, errors.New("the second one failed"))
			}
			return nil
		},
	}))
	fmt.Println(<-calls, <-calls)
	// Output: 3 2
}

// Pause stops the partitions, and Seek moves the group to another position.
func ExampleConsumer_Seek() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{}))
	defer w.Close(ctx)
	check(w.EnsureTopic(ctx, weir.Topic{Name: "orders"}))
	for i := range 4 {
		must(w.Publish(ctx, weir.Event{Topic: "orders", Value: fmt.Appendf(nil, "order %d", i)}))
	}

	handled := make(chan string, 10)
	c := must(w.Consume(ctx, weir.Subscription{Group: "billing", Topics: []string{"orders"}, Handler: func(_ context.Context, e weir.Event) error {
		handled <- string(e.Value)
		return nil
	}}))
	for range 4 {
		fmt.Println(<-handled)
	}
	c.Pause()
	check(c.Seek(ctx, weir.AtOffset(2)))
	c.Resume()
	fmt.Println(<-handled)
	fmt.Println(<-handled)
	// Output:
	// order 0
	// order 1
	// order 2
	// order 3
	// order 2
	// order 3
}

// Close lets a running handler finish, and commits what it did: the next consumer continues after
// it.
func ExampleConsumer_Close() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{}))
	defer w.Close(ctx)
	check(w.EnsureTopic(ctx, weir.Topic{Name: "orders"}))
	must(w.Publish(ctx, weir.Event{Topic: "orders", Value: []byte("first")}, weir.Event{Topic: "orders", Value: []byte("second")}))

	begun, finish := make(chan struct{}), make(chan struct{})
	c := must(w.Consume(ctx, weir.Subscription{Group: "billing", Topics: []string{"orders"}, Handler: func(_ context.Context, e weir.Event) error {
		close(begun)
		<-finish
		fmt.Println("handled:", string(e.Value))
		return nil
	}}))
	<-begun
	time.AfterFunc(50*time.Millisecond, func() { close(finish) }) // while Close waits

	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // it waits no longer
	defer cancel()
	check(c.Close(ctx))
	group := must(w.Group(ctx, "billing"))
	fmt.Println("committed:", group.Offsets[0].Committed, "lag:", group.Lag)
	// Output:
	// handled: first
	// committed: 1 lag: 1
}

// A group without members is moved to another position, here to handle all events again.
func ExampleLog_ResetGroup() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{}))
	defer w.Close(ctx)
	check(w.EnsureTopic(ctx, weir.Topic{Name: "orders"}))
	must(w.Publish(ctx, weir.Event{Topic: "orders", Value: []byte("first")}, weir.Event{Topic: "orders", Value: []byte("second")}))

	handled := make(chan string)
	billing := weir.Subscription{Group: "billing", Topics: []string{"orders"}, Handler: func(_ context.Context, e weir.Event) error {
		handled <- string(e.Value)
		return nil
	}}
	c := must(w.Consume(ctx, billing))
	fmt.Println(<-handled)
	fmt.Println(<-handled)
	fmt.Println(errors.Is(w.ResetGroup(ctx, "billing", "orders", weir.Earliest), weir.ErrGroupInUse))
	check(c.Close(ctx))
	check(w.ResetGroup(ctx, "billing", "orders", weir.Earliest)) // or weir.AtTime(yesterday)
	must(w.Consume(ctx, billing))
	fmt.Println("again:", <-handled)
	fmt.Println("again:", <-handled)
	// Output:
	// first
	// second
	// true
	// again: first
	// again: second
}

// discard takes what examples log.
var discard = (&logged{}).logger()

// The event exists if and only if the order does.
func ExampleLog_PublishTx() {
	ctx := context.Background()
	url := "postgres://user@localhost/shop"
	w := must(weir.Open(ctx, url, weir.Options{}))
	defer w.Close(ctx)
	conn := must(pgx.Connect(ctx, url))
	defer conn.Close(ctx)
	check(publishWithOrder(ctx, w, conn))
}

func publishWithOrder(ctx context.Context, w *weir.Log, conn *pgx.Conn) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id, what) VALUES ($1, $2)`, 4711, "two teapots"); err != nil {
			return err
		}
		return w.PublishTx(ctx, tx, weir.Event{Topic: "orders", Key: []byte("4711"), Value: []byte("two teapots")})
	})
}

// The same with database/sql.
func ExampleLog_PublishSQLTx() {
	ctx := context.Background()
	url := "postgres://user@localhost/shop"
	w := must(weir.Open(ctx, url, weir.Options{}))
	defer w.Close(ctx)
	db := must(sql.Open("pgx", url))
	defer db.Close()
	check(publishWithOrderSQL(ctx, w, db))
}

func publishWithOrderSQL(ctx context.Context, w *weir.Log, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, what) VALUES ($1, $2)`, 4712, "a kettle"); err != nil {
		return err
	}
	if err := w.PublishSQLTx(ctx, tx, weir.Event{Topic: "orders", Key: []byte("4712"), Value: []byte("a kettle")}); err != nil {
		return err
	}
	return tx.Commit()
}

// A bill is written exactly once for each order, with database/sql.
func ExampleEvent_CommitSQLTx() {
	ctx := context.Background()
	url := "postgres://user@localhost/shop"
	w := must(weir.Open(ctx, url, weir.Options{}))
	defer w.Close(ctx)
	db := must(sql.Open("pgx", url))
	defer db.Close()
	must(w.Consume(ctx, weir.Subscription{Group: "billing", Topics: []string{"orders"}, Handler: billExactlyOnceSQL(db)}))
}

func billExactlyOnceSQL(db *sql.DB) func(context.Context, weir.Event) error {
	return func(ctx context.Context, e weir.Event) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, `INSERT INTO bills (what) VALUES ($1)`, string(e.Value)); err != nil {
			return err
		}
		if err := e.CommitSQLTx(ctx, tx); err != nil {
			return err
		}
		return tx.Commit()
	}
}

// A bill is written exactly once for each order, whatever crashes when.
func ExampleEvent_CommitTx() {
	ctx := context.Background()
	url := "postgres://user@localhost/shop"
	w := must(weir.Open(ctx, url, weir.Options{}))
	defer w.Close(ctx)
	must(w.Consume(ctx, weir.Subscription{Group: "billing", Topics: []string{"orders"}, Handler: billExactlyOnce(url)}))
}

func billExactlyOnce(url string) func(context.Context, weir.Event) error {
	return func(ctx context.Context, e weir.Event) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO bills (what) VALUES ($1)`, string(e.Value)); err != nil {
				return err
			}
			return e.CommitTx(ctx, tx)
		})
	}
}

// The events that a handler publishes and the rows that it writes exist exactly once: they are in
// the transaction that commits the handled event.
func ExampleEvent_CommitTx_publish() {
	ctx := context.Background()
	url := "postgres://user@localhost/shop"
	w := must(weir.Open(ctx, url, weir.Options{}))
	defer w.Close(ctx)
	pool := must(pgxpool.New(ctx, url))
	defer pool.Close()
	must(w.Consume(ctx, weir.Subscription{Group: "invoicing", Topics: []string{"orders"}, Handler: invoice(w, pool)}))
}

func invoice(w *weir.Log, pool *pgxpool.Pool) func(context.Context, weir.Event) error {
	return func(ctx context.Context, e weir.Event) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := w.PublishTx(ctx, tx, weir.Event{Topic: "invoices", Key: e.Key, Value: append([]byte("invoice for "), e.Value...)}); err != nil {
				return err
			}
			return e.CommitTx(ctx, tx)
		})
	}
}

// A queue hands each message to one worker, and hands it out again if the handler fails.
func ExampleLog_Work() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{}))
	defer w.Close(ctx)
	check(w.EnsureQueue(ctx, weir.Queue{Name: "mail", Settings: weir.QueueSettings{Delays: []time.Duration{0}}}))
	must(w.Enqueue(ctx, "mail", weir.NewMessage{Value: []byte("to: a@example.org")}))

	sent := make(chan string)
	worker := must(w.Work(ctx, weir.WorkOptions{Queue: "mail", Concurrency: 4, Handler: func(ctx context.Context, j weir.Job) error {
		if j.Attempt == 1 {
			return errors.New("the mail server is busy") // weir.Permanent(err) gives up, weir.RetryAfter(time.Hour, err) waits
		}
		sent <- fmt.Sprintf("%s, attempt %d", j.Value, j.Attempt)
		return nil
	}}))
	fmt.Println(<-sent)
	check(worker.Close(ctx))
	// Output: to: a@example.org, attempt 2
}

// A message can have a delay. A unique key prevents a second message while the first is not done.
func ExampleLog_Enqueue() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{}))
	defer w.Close(ctx)
	check(w.EnsureQueue(ctx, weir.Queue{Name: "mail", Settings: weir.QueueSettings{Unique: true}}))

	reminder := weir.NewMessage{Value: []byte("your cart"), Unique: "cart-17", Delay: 24 * time.Hour}
	first := must(w.Enqueue(ctx, "mail", reminder))
	second := must(w.Enqueue(ctx, "mail", reminder))
	fmt.Println(second[0].ID == first[0].ID, second[0].Repeated)
	// Output: true true
}

// A message that was given up is kept with the reason, and can be moved back into its queue.
func ExampleLog_Redrive() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{}))
	defer w.Close(ctx)
	check(w.EnsureQueue(ctx, weir.Queue{Name: "mail"}))
	must(w.Enqueue(ctx, "mail", weir.NewMessage{Value: []byte("to: nobody")}))

	tried := make(chan bool, 2)
	worker := must(w.Work(ctx, weir.WorkOptions{Queue: "mail", Handler: func(context.Context, weir.Job) error {
		tried <- true
		return weir.Permanent(errors.New("no such address"))
	}}))
	<-tried
	check(worker.Close(ctx))

	dead := must(w.DeadMessages(ctx, "mail", weir.MessageID{}, 10))
	fmt.Printf("%s: %s\n", dead[0].Value, dead[0].Error)
	fmt.Println(must(w.Redrive(ctx, "mail", dead...)), must(w.QueueStats(ctx, "mail")).Ready)
	// Output:
	// to: nobody: no such address
	// 1 1
}
