package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

// runFanout lets groups follow a topic at its end, and counts what the database has to do for them.
func runFanout(ctx context.Context, b *bench) error {
	const rate, size = 1000, 1024
	fmt.Printf("A producer of %d records a second of %d bytes, and groups that read all of it, committing every 5 s as Kafka clients do.\n\n", rate, size)
	fmt.Println("| groups | transactions/s | look-ups in batches | rows of batches read | records produced | delivered |")
	fmt.Println("| --- | --- | --- | --- | --- | --- |")
	for _, groups := range []int{0, 1, 5} {
		w, err := b.start(ctx, "postgres")
		if err != nil {
			return err
		}
		err = b.fanout(ctx, w, groups, kafkaLoad{address: w.kafka, topic: "fanout", partitions: 4, rate: rate, size: size, clients: 1,
			linger: 20 * time.Millisecond, length: b.load.length})
		w.close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) fanout(ctx context.Context, w *broker, groups int, l kafkaLoad) error {
	if err := createTopic(ctx, w.kafka, l.topic, int32(l.partitions)); err != nil {
		return err
	}
	reading, stop := context.WithCancel(ctx)
	var (
		readers   sync.WaitGroup
		delivered atomic.Int64
	)
	defer readers.Wait()
	defer stop()
	for g := range groups {
		client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka), kgo.ConsumerGroup("group-"+strconv.Itoa(g)), kgo.ConsumeTopics(l.topic), kgo.FetchMinBytes(1))
		if err != nil {
			return err
		}
		readers.Go(func() {
			defer client.Close()
			for reading.Err() == nil {
				delivered.Add(int64(client.PollFetches(reading).NumRecords()))
			}
		})
	}
	// Until every group has got something, so that none is still joining.
	warm := l
	warm.length = 5 * time.Second
	if _, err := warm.run(ctx, false); err != nil {
		return err
	}
	if err := caughtUp(ctx, w, l.topic, groups, &delivered); err != nil {
		return err
	}
	before, err := readWork(ctx, w.store)
	if err != nil {
		return err
	}
	produced, err := w.records(ctx, l.topic)
	if err != nil {
		return err
	}
	got := delivered.Load()
	if _, err := l.run(ctx, false); err != nil {
		return err
	}
	if err := caughtUp(ctx, w, l.topic, groups, &delivered); err != nil {
		return err
	}
	after, err := readWork(ctx, w.store)
	if err != nil {
		return err
	}
	end, err := w.records(ctx, l.topic)
	if err != nil {
		return err
	}
	fmt.Printf("| %d | %.1f | %d | %d | %d | %d |\n", groups, float64(after.transactions-before.transactions)/after.at.Sub(before.at).Seconds(),
		after.lookups-before.lookups, after.rows-before.rows, end-produced, delivered.Load()-got)
	return nil
}

// caughtUp waits until every group has been given all that the topic holds.
func caughtUp(ctx context.Context, w *broker, topic string, groups int, delivered *atomic.Int64) error {
	held, err := w.records(ctx, topic)
	if err != nil {
		return err
	}
	for late := time.Now().Add(time.Minute); delivered.Load() != held*int64(groups); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(late) {
			return fmt.Errorf("the topic has %d records, but %d groups have received %d after a minute", held, groups, delivered.Load())
		}
	}
	return nil
}

// work is what a database has done so far.
type work struct {
	at            time.Time
	transactions  int64
	lookups, rows int64 // in tables of batches
}

// readWork reads the server's own counts. Sessions report to them about once a second, so it waits
// a little first.
func readWork(ctx context.Context, address string) (n work, err error) {
	time.Sleep(2 * time.Second)
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return n, err
	}
	defer conn.Close(ctx)
	n.at = time.Now()
	err = errors.Join(
		conn.QueryRow(ctx, `SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`).Scan(&n.transactions),
		conn.QueryRow(ctx, `
			SELECT coalesce(sum(seq_scan + idx_scan), 0)::bigint, coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint
			FROM pg_stat_user_tables WHERE schemaname = 'weir' AND relname LIKE 'batch\_%'`).Scan(&n.lookups, &n.rows))
	return n, err
}
