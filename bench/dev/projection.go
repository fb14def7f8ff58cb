package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir"
)

const (
	projectedRate    = 5_000
	projectedWriters = 50
)

// runProjection measures scenario B of the paper: from the answer to an append until the projected
// row is committed.
func runProjection(ctx context.Context, b *bench) error {
	fmt.Printf("%d appends a second to 10,000 streams. From the answer to an append until what the projection made of it is committed: on PostgreSQL a row of a table, by batches in their own transaction; elsewhere a value in memory.\n\n", projectedRate)
	fmt.Println("| store | appends/s | append p50, p99 | projected p50 | p99 | longest |\n| --- | --- | --- | --- | --- | --- |")
	for _, s := range b.stores {
		address, closeStore, err := b.store(s)
		if err != nil {
			return err
		}
		log, category, closeLog, err := openCategory(ctx, address)
		if err == nil {
			var line string
			line, err = projectionLatency(ctx, log, category, s, address, b.load.length)
			closeLog()
			fmt.Println(line)
		}
		closeStore()
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// openCategory opens a log with a category.
func openCategory(ctx context.Context, address string) (*weir.Log, *weir.Category, func(), error) {
	log, err := weir.Open(ctx, address, weir.Options{Logger: warnings()})
	if err != nil {
		return nil, nil, nil, err
	}
	closeLog := func() { _ = log.Close(context.WithoutCancel(ctx)) }
	c, err := log.EnsureCategory(ctx, weir.CategorySpec{Name: "currency"})
	if err != nil {
		closeLog()
		return nil, nil, nil, err
	}
	return log, c, closeLog, nil
}

// upToDate waits until a projection has handled what is there.
func upToDate(ctx context.Context, log *weir.Log, name string) error {
	for end := time.Now().Add(20 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		info, err := log.Projection(ctx, name)
		if err != nil || info.Run.Lag == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("projection %s is behind by %d events after 20 minutes", name, info.Run.Lag)
		}
	}
}

// projectionLatency appends at the rate while a projection goes, and tells how late it was. Events
// are numbered: each is projected once.
func projectionLatency(ctx context.Context, log *weir.Log, c *weir.Category, kind, address string, length time.Duration) (string, error) {
	most := int(length.Seconds()+10) * projectedRate
	began := time.Now()                                                      // the clock of all that is noted
	answered, seen := make([]atomic.Int64, most), make([]atomic.Int64, most) // nanoseconds since began
	var numbers atomic.Int64
	project := func(events []weir.ProjectedEvent) error {
		at := int64(time.Since(began))
		for _, e := range events {
			if n := binary.BigEndian.Uint64(e.Data); n > 0 && !seen[n].CompareAndSwap(0, at) {
				return fmt.Errorf("event %d was projected twice", n)
			}
		}
		return nil
	}
	p := weir.Projection{Name: "latency", Categories: []string{c.Name()}, MaxBatch: 1000}
	p.BatchHandler = func(_ context.Context, events []weir.ProjectedEvent) error { return project(events) }
	if kind == "postgres" {
		pool, err := pgxpool.New(ctx, address)
		if err != nil {
			return "", err
		}
		defer pool.Close()
		if _, err := pool.Exec(ctx, `CREATE TABLE projected (stream text NOT NULL, version bigint NOT NULL, data bytea NOT NULL)`); err != nil {
			return "", err
		}
		p.BatchHandler = func(ctx context.Context, events []weir.ProjectedEvent) error {
			var streams []string
			var versions []int64
			var data [][]byte
			for _, e := range events {
				streams, versions, data = append(streams, e.Stream), append(versions, e.Version), append(data, e.Data)
			}
			tx, err := pool.Begin(ctx)
			if err != nil {
				return err
			}
			defer tx.Rollback(ctx)
			if _, err = tx.Exec(ctx, `INSERT INTO projected SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[])`, streams, versions, data); err != nil {
				return err
			}
			if err = events[len(events)-1].CommitTx(ctx, tx); err != nil {
				return err
			}
			if err = tx.Commit(ctx); err != nil {
				return err
			}
			return project(events)
		}
	}
	j, err := log.Project(ctx, p)
	if err != nil {
		return "", err
	}
	if err := upToDate(ctx, log, p.Name); err != nil {
		return "", err
	}
	result, err := pace{callers: projectedWriters, rate: projectedRate, warmUp: 2 * time.Second, length: length}.run(ctx, func(caller, n int, _ time.Time) error {
		number := numbers.Add(1)
		if int(number) >= most {
			return errors.New("more events than were planned")
		}
		data := append(binary.BigEndian.AppendUint64(nil, uint64(number)), eventData...)
		_, err := c.Append(ctx, fmt.Sprintf("stream %d of %d", n%(manyStreams/projectedWriters), caller), weir.AnyVersion, weir.NewStreamEvent{Type: "CurrencyInfoAdded", Data: data})
		answered[number].Store(int64(time.Since(began)))
		return err
	})
	if err := errors.Join(err, result.clean()); err != nil {
		return "", err
	}
	ended := time.Now()
	late := hdrhistogram.New(1, 600e6, 3)
	for n := int64(1); n <= numbers.Load(); n++ {
		for seen[n].Load() == 0 {
			if time.Since(ended) > 2*time.Minute {
				return "", fmt.Errorf("event %d of %d was not projected", n, numbers.Load())
			}
			time.Sleep(time.Millisecond)
		}
		_ = late.RecordValue(max(1, (seen[n].Load()-answered[n].Load())/1000))
	}
	if err := j.Close(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("| %s | %.0f | %s, %s | %s | %s | %s |", kind, result.perSecond, millis(result.took, 50), millis(result.took, 99), millis(late, 50), millis(late, 99), millis(late, 100)), nil
}
