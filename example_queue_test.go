package weir_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir"
)

// A message and your rows are written together, or neither is.
func ExampleLog_EnqueueTx() {
	ctx := context.Background()
	url := "postgres://user@localhost/shop"
	w := must(weir.Open(ctx, url, weir.Options{}))
	defer w.Close(ctx)
	conn := must(pgx.Connect(ctx, url))
	defer conn.Close(ctx)

	check(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id, what) VALUES ($1, $2)`, 4711, "two teapots"); err != nil {
			return err
		}
		return w.EnqueueTx(ctx, tx, "mail", weir.NewMessage{Value: []byte("order 4711 is placed")})
	}))
}

// The handler acknowledges in the transaction of its writes: they happen once, also if the lease
// ends and another worker gets the message.
func ExampleJob_AckTx() {
	ctx := context.Background()
	url := "postgres://user@localhost/shop"
	w := must(weir.Open(ctx, url, weir.Options{}))
	defer w.Close(ctx)
	pool := must(pgxpool.New(ctx, url))
	defer pool.Close()

	worker := must(w.Work(ctx, weir.WorkOptions{Queue: "bills", Handler: func(ctx context.Context, j weir.Job) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO bills (what) VALUES ($1)`, string(j.Value)); err != nil {
				return err
			}
			return j.AckTx(ctx, tx) // its error rolls the transaction back
		})
	}}))
	defer worker.Close(ctx)
}

// A schedule enqueues a message at each tick, once however many processes run. Every process may
// set it when it starts.
func ExampleLog_SetSchedule() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{}))
	defer w.Close(ctx)
	check(w.EnsureQueue(ctx, weir.Queue{Name: "mail"}))

	set := must(w.SetSchedule(ctx, "mail", weir.Schedule{
		Name: "digest", Cron: "30 8 * * MON-FRI", Zone: "Europe/Berlin", Message: weir.NewMessage{Value: []byte("digest")},
	}))
	berlin := must(time.LoadLocation("Europe/Berlin"))
	fmt.Println(set.Name, "is next due at", set.Next.In(berlin).Format("15:04"))
	// Output: digest is next due at 08:30
}

// RetryAfter says when a failed message is tried again, whatever the queue's own pauses are.
func ExampleRetryAfter() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{}))
	defer w.Close(ctx)
	check(w.EnsureQueue(ctx, weir.Queue{Name: "mail", Settings: weir.QueueSettings{Delays: []time.Duration{time.Hour}}}))
	must(w.Enqueue(ctx, "mail", weir.NewMessage{Value: []byte("to: a@example.org")}))

	sent := make(chan string)
	worker := must(w.Work(ctx, weir.WorkOptions{Queue: "mail", Handler: func(ctx context.Context, j weir.Job) error {
		if j.Attempt == 1 {
			return weir.RetryAfter(10*time.Millisecond, errors.New("the mail server asks for a moment"))
		}
		sent <- fmt.Sprintf("%s, attempt %d", j.Value, j.Attempt)
		return nil
	}}))
	fmt.Println(<-sent)
	check(worker.Close(ctx))
	// Output: to: a@example.org, attempt 2
}

// Middleware wraps the handlers of a worker, for instance to log their failures. The first is the
// outermost.
func ExampleWorkOptions_middleware() {
	ctx := context.Background()
	w := must(weir.Open(ctx, "memory:", weir.Options{}))
	defer w.Close(ctx)
	check(w.EnsureQueue(ctx, weir.Queue{Name: "mail", Settings: weir.QueueSettings{Delays: []time.Duration{0}}}))
	must(w.Enqueue(ctx, "mail", weir.NewMessage{Value: []byte("to: a@example.org")}))

	told := make(chan string)
	logged := func(next weir.JobHandler) weir.JobHandler {
		return func(ctx context.Context, j weir.Job) error {
			err := next(ctx, j)
			told <- fmt.Sprintf("attempt %d: %v", j.Attempt, err)
			return err
		}
	}
	worker := must(w.Work(ctx, weir.WorkOptions{Queue: "mail", Middleware: []func(weir.JobHandler) weir.JobHandler{logged}, Handler: func(ctx context.Context, j weir.Job) error {
		if j.Attempt == 1 {
			return errors.New("the mail server is busy")
		}
		return nil
	}}))
	fmt.Println(<-told)
	fmt.Println(<-told)
	check(worker.Close(ctx))
	// Output:
	// attempt 1: the mail server is busy
	// attempt 2: <nil>
}
