package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

const publishMany = `SELECT weir.publish_all('moved', $1::text[], $2::bytea[])`

// runMover fills the inbox while no process runs and lets one empty it; then it publishes steadily,
// and watches how far the log is behind.
func runMover(ctx context.Context, b *bench) error {
	fmt.Printf("A backlog of %d rows, published while no weir runs.\n\n", b.load.rows)
	fmt.Println("| rows moved | since the process was started | rows/s |")
	fmt.Println("| --- | --- | --- |")
	for range b.runs {
		if err := b.backlog(ctx); err != nil {
			return err
		}
	}
	return b.keepUp(ctx)
}

func (b *bench) backlog(ctx context.Context) error {
	w, err := b.start(ctx, "postgres")
	if err != nil {
		return err
	}
	defer w.close()
	if err := createTopic(ctx, w.kafka, "moved", 4); err != nil {
		return err
	}
	if err := w.stop(); err != nil {
		return err
	}
	if err := publishBacklog(ctx, w.store, b.load.rows); err != nil {
		return err
	}
	if err := w.run(ctx, b.weir); err != nil {
		return err
	}
	begin := time.Now()
	for {
		n, err := w.records(ctx, "moved")
		if err != nil {
			return err
		}
		if n > int64(b.load.rows) {
			return fmt.Errorf("%d rows were published, but the log has %d", b.load.rows, n)
		}
		if n == int64(b.load.rows) {
			took := w.started + time.Since(begin)
			fmt.Printf("| %d | %.2f s | %.0f |\n", n, took.Seconds(), float64(n)/took.Seconds())
			return nil
		}
		if time.Since(begin) > 10*time.Minute {
			return fmt.Errorf("after ten minutes %d of %d rows were moved", n, b.load.rows)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// publishBacklog publishes rows, a thousand a transaction.
func publishBacklog(ctx context.Context, address string, rows int) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for done := 0; done < rows; {
		n := min(1000, rows-done)
		keys, values := many(n, done)
		if _, err := conn.Exec(ctx, publishMany, keys, values); err != nil {
			return fmt.Errorf("publish a backlog: %w", err)
		}
		done += n
	}
	return nil
}

func many(n, seed int) (keys []string, values [][]byte) {
	for i := range n {
		keys = append(keys, "key-"+strconv.Itoa((seed+i)%1000))
		values = append(values, noise(eventSize, seed+i))
	}
	return keys, values
}

// keepUp publishes 15,000 events a second, in transactions of a hundred, and looks every second how
// many of them are not in the log yet.
func (b *bench) keepUp(ctx context.Context) error {
	const rate, together, callers = 15_000, 100, 10
	w, err := b.start(ctx, "postgres")
	if err != nil {
		return err
	}
	defer w.close()
	if err := createTopic(ctx, w.kafka, "moved", 4); err != nil {
		return err
	}
	var published atomic.Int64
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var (
		watcher sync.WaitGroup
		lag     []int64 // one a second
		failed  error
	)
	watcher.Go(func() { lag, failed = w.watchLag(watching, &published) })
	got, err := publishSteadily(ctx, w.store, pace{callers: callers, rate: rate / together, length: 3 * b.load.length}, together, &published)
	stop()
	watcher.Wait()
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if err := w.drained(ctx); err != nil {
		return err
	}
	stored, err := w.records(ctx, "moved")
	if err != nil {
		return err
	}
	third := max(1, len(lag)/3)
	if len(lag) == 0 {
		return errors.New("the run was too short to measure the lag: set -length to a few seconds or more")
	}
	fmt.Printf("\n%d events a second wanted, in transactions of %d, for %v. Lag: events committed, and not in the log yet.\n\n", rate, together, 3*b.load.length)
	fmt.Println("| published/s | lag, first third | last third | most | stored as committed |")
	fmt.Println("| --- | --- | --- | --- | --- |")
	fmt.Printf("| %.0f | %d | %d | %d | %s |\n", got.perSecond*together, median(lag[:third]), median(lag[len(lag)-third:]), slices.Max(lag), agree(stored, published.Load()))
	return nil
}

func publishSteadily(ctx context.Context, address string, p pace, together int, published *atomic.Int64) (paced, error) {
	conns := make([]*pgx.Conn, p.callers)
	for i := range conns {
		conn, err := pgx.Connect(ctx, address)
		if err != nil {
			return paced{}, err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		conns[i] = conn
	}
	keys, values := many(together, 0)
	got, err := p.run(ctx, func(caller, _ int, _ time.Time) error {
		if _, err := conns[caller].Exec(ctx, publishMany, keys, values); err != nil {
			return err
		}
		published.Add(int64(together))
		return nil
	})
	return got, errors.Join(err, got.clean())
}

// watchLag looks once a second how many published events are not in the log, until ctx ends.
func (w *broker) watchLag(ctx context.Context, published *atomic.Int64) (lag []int64, err error) {
	for every := time.NewTicker(time.Second); ; {
		select {
		case <-ctx.Done():
			return lag, nil
		case <-every.C:
		}
		said := published.Load() // before the log is asked: what lands meanwhile makes the lag less, never more
		stored, err := w.records(ctx, "moved")
		if ctx.Err() != nil {
			return lag, nil
		}
		if err != nil {
			return lag, err
		}
		lag = append(lag, max(0, said-stored))
	}
}
