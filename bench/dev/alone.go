package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// runLatency sends 1,000 records a second, each in a request of its own, from 50 connections.
func runLatency(ctx context.Context, b *bench) error {
	fmt.Println("| store | produce p50 | p99 | max | end to end p50 | p99 | max | records | failed |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, store := range b.stores {
		for range b.runs {
			w, err := b.start(ctx, store)
			if err != nil {
				return err
			}
			seen, err := kafkaLoad{address: w.kafka, topic: "latency", partitions: 4, rate: 1000, size: 1024, clients: 50,
				warmUp: 5 * time.Second, length: 30 * time.Second}.run(ctx, true)
			w.close()
			if err != nil {
				return err
			}
			fmt.Printf("| %s | %s | %s | %s | %s | %s | %s | %d | %d |\n", store,
				millis(seen.produce, 50), millis(seen.produce, 99), millis(seen.produce, 100),
				millis(seen.endToEnd, 50), millis(seen.endToEnd, 99), millis(seen.endToEnd, 100), seen.delivered, seen.failed)
		}
	}
	return nil
}

// runIdle leaves a broker with a topic alone for a while, and then with ten queues, each with two
// workers that wait.
func runIdle(ctx context.Context, b *bench) error {
	fmt.Println("| store | | memory | processor | store transactions |")
	fmt.Println("| --- | --- | --- | --- | --- |")
	for _, store := range b.stores {
		w, err := b.start(ctx, store)
		if err != nil {
			return err
		}
		err = w.idle(ctx, store)
		w.close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *broker) idle(ctx context.Context, store string) error {
	if _, err := (kafkaLoad{address: w.kafka, topic: "idle", partitions: 10, rate: 10, size: 100, clients: 1, length: time.Second}).run(ctx, false); err != nil {
		return err
	}
	if err := w.leaveAlone(ctx, store+" | one topic"); err != nil {
		return err
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	for n := range 10 {
		if err := w.createQueue(ctx, fmt.Sprintf(`{"name": "idle-%d"}`, n)); err != nil {
			return err
		}
		for range 2 {
			go func() {
				for waiting.Err() == nil {
					_ = w.ask(waiting, "POST", fmt.Sprintf("/v1/queues/idle-%d/claim", n), []byte(`{"wait_ms": 60000}`), nil)
				}
			}()
		}
	}
	return w.leaveAlone(ctx, store+" | and ten queues, each with two claims that wait")
}

// leaveAlone measures what the broker costs while nothing happens.
func (w *broker) leaveAlone(ctx context.Context, what string) error {
	const length = 30 * time.Second
	time.Sleep(2 * time.Second)
	cpu := w.cpu()
	before, counted, err := w.transactions(ctx)
	if err != nil {
		return err
	}
	time.Sleep(length)
	after, _, err := w.transactions(ctx)
	if err != nil {
		return err
	}
	queries := "not counted"
	if counted {
		queries = fmt.Sprintf("%.1f a second", float64(after-before)/length.Seconds())
	}
	now, _ := w.rss()
	fmt.Printf("| %s | %.0f MiB | %.2f %% of a core | %s |\n", what, now, 100*(w.cpu()-cpu).Seconds()/length.Seconds(), queries)
	return nil
}

// runLength fills a log, restarts the broker on it, and fetches at its beginning, middle and end,
// as it grows.
func runLength(ctx context.Context, b *bench) error {
	fmt.Println("| store | log | start-up | fetch of 1 MiB at the start | in the middle | near the end |")
	fmt.Println("| --- | --- | --- | --- | --- | --- |")
	for _, store := range b.stores {
		w, err := b.start(ctx, store)
		if err != nil {
			return err
		}
		err = b.lengths(ctx, w, store)
		w.close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) lengths(ctx context.Context, w *broker, store string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka), kgo.DefaultProduceTopic("long"), kgo.ProducerBatchMaxBytes(900_000), kgo.MaxBufferedBytes(64<<20),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(20*time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(ctx, 1, 1, nil, "long"); err != nil {
		return err
	}
	const size = 100 << 10
	written := 0
	for _, gib := range []int{1, b.load.gib} {
		for ; written < gib*(1<<30)/size && ctx.Err() == nil; written++ {
			client.Produce(ctx, kgo.SliceRecord(noise(size, written)), func(_ *kgo.Record, err error) {
				if err != nil {
					fmt.Fprintln(os.Stderr, "produce:", err)
				}
			})
		}
		if err := client.Flush(ctx); err != nil {
			return err
		}
		if err := w.stop(); err != nil {
			return err
		}
		if err := w.run(ctx, b.weir); err != nil {
			return err
		}
		row := fmt.Sprintf("| %s | %d GiB | %.2f s |", store, gib, w.started.Seconds())
		for _, at := range []int64{0, int64(written) / 2, int64(written) - 20} {
			took, err := fetchTime(ctx, w.kafka, at)
			if err != nil {
				return err
			}
			row += fmt.Sprintf(" %.1f ms |", float64(took.Microseconds())/1000)
		}
		fmt.Println(row)
	}
	return nil
}

// fetchTime is the median time of fetches at an offset, each by a reader of its own.
func fetchTime(ctx context.Context, address string, at int64) (time.Duration, error) {
	var all []time.Duration
	for range 21 {
		client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.FetchMaxPartitionBytes(1<<20), kgo.FetchMaxBytes(1<<20),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"long": {0: kgo.NewOffset().At(at)}}))
		if err != nil {
			return 0, err
		}
		if err := client.Ping(ctx); err != nil {
			return 0, err
		}
		begin := time.Now()
		fetches := client.PollFetches(ctx)
		all = append(all, time.Since(begin))
		client.Close()
		if err := fetches.Err(); err != nil || fetches.NumRecords() == 0 {
			return 0, fmt.Errorf("fetch at %d gave %d records: %w", at, fetches.NumRecords(), err)
		}
	}
	return median(all), nil
}

// noise is bytes that do not compress, different for each seed.
func noise(n, seed int) []byte {
	b := make([]byte, n)
	x := uint64(seed)*0x9e3779b97f4a7c15 + 1
	for i := 0; i+8 <= n; i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		for k := range 8 {
			b[i+k] = byte(x >> (8 * k))
		}
	}
	return b
}

// runRetention keeps up a steady load on PostgreSQL, first alone, then with a foreign transaction
// held open for half of the time.
func runRetention(ctx context.Context, b *bench) error {
	const (
		rate  = 20 // MB/s
		size  = 10_000
		keep  = 2 * time.Minute
		parts = 4
	)
	live := float64(rate) * keep.Seconds()
	fmt.Printf("%d MB/s in records of %d bytes, retention.ms two minutes: %.0f MB are live.\n\n", rate, size, live)
	fmt.Println("| foreign transaction | minute | produce p50 | p99 | disk | disk / live |")
	fmt.Println("| --- | --- | --- | --- | --- | --- |")
	for _, foreign := range strings.Split(b.load.foreign, ",") {
		w, err := b.start(ctx, "postgres")
		if err != nil {
			return err
		}
		err = b.retention(ctx, w, foreign == "with", kafkaLoad{address: w.kafka, partitions: parts, rate: rate * 1e6 / size, size: size, clients: 4, linger: 5 * time.Millisecond,
			config: map[string]*string{"retention.ms": kadm.StringPtr(strconv.FormatInt(keep.Milliseconds(), 10))}}, live)
		w.close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) retention(ctx context.Context, w *broker, foreign bool, l kafkaLoad, live float64) error {
	held := "none"
	release := func() {}
	for minute := range b.load.minutes {
		switch quarter := b.load.minutes / 4; {
		case foreign && minute == quarter:
			conn, err := holdTransaction(ctx, w.store)
			if err != nil {
				return err
			}
			held, release = "open", conn
		case foreign && minute == 3*quarter:
			release()
			held = "closed"
		}
		l.topic, l.length = "steady", time.Minute
		seen, err := l.run(ctx, false)
		if err != nil {
			return err
		}
		disk, err := w.diskBytes(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("| %s | %d | %s | %s | %d MB | %.2f |\n", held, minute+1, millis(seen.produce, 50), millis(seen.produce, 99), disk/1e6, float64(disk)/1e6/live)
	}
	return nil
}

// holdTransaction opens a transaction that has a snapshot and has written, as a user's long job
// would, and returns what ends it.
func holdTransaction(ctx context.Context, url string) (release func(), err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	release = func() { _ = conn.Close(ctx) }
	for _, sql := range []string{
		`CREATE TABLE IF NOT EXISTS public.users_own (n int)`,
		`BEGIN ISOLATION LEVEL REPEATABLE READ`,
		`INSERT INTO public.users_own VALUES (1)`,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			release()
			return nil, fmt.Errorf("%s: %w", sql, err)
		}
	}
	return release, nil
}
