package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// runCompact fills a topic with -gib GiB of records of 1,000 bytes with a million keys, makes it a
// compacted one, and measures a producer beside the compaction, and the process's memory.
func runCompact(ctx context.Context, b *bench) error {
	const keys = 1_000_000
	for _, store := range b.stores {
		w, err := b.start(ctx, store)
		if err != nil {
			return err
		}
		defer w.close()
		client, err := kgo.NewClient(kgo.SeedBrokers(w.kafka), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(20_000), kgo.ProducerLinger(5*time.Millisecond))
		if err != nil {
			return err
		}
		defer client.Close()
		admin := kadm.NewClient(client)
		if _, err := admin.CreateTopic(ctx, 1, 1, map[string]*string{"retention.ms": kadm.StringPtr("-1")}, "big"); err != nil {
			return err
		}
		if _, err := admin.CreateTopic(ctx, 1, 1, nil, "probe"); err != nil {
			return err
		}
		failed := make(chan error, 1)
		value := make([]byte, 1000)
		for range int64(b.load.gib) << 30 / int64(len(value)) {
			client.Produce(ctx, &kgo.Record{Topic: "big", Key: fmt.Appendf(nil, "key-%06d", rand.IntN(keys)), Value: value}, func(_ *kgo.Record, err error) {
				if err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			})
		}
		if err := client.Flush(ctx); err != nil {
			return err
		}
		if len(failed) > 0 {
			return <-failed
		}
		producer, err := kgo.NewClient(kgo.SeedBrokers(w.kafka), kgo.DefaultProduceTopic("probe"), kgo.ProducerLinger(0))
		if err != nil {
			return err
		}
		defer producer.Close()
		size := func() (bytes int64, err error) {
			dirs, err := admin.DescribeAllLogDirs(ctx, nil)
			dirs.Each(func(d kadm.DescribedLogDir) {
				d.Topics.Each(func(p kadm.DescribedLogDirPartition) {
					if p.Topic == "big" {
						bytes = p.Size
					}
				})
			})
			return bytes, err
		}
		fmt.Printf("%s, %d GiB, %d keys:\n\n| | bytes of the topic | produce p50 | p99 | memory, and at most |\n| --- | --- | --- | --- | --- |\n", store, b.load.gib, keys)
		line := func(when string, length time.Duration) (bytes int64, err error) {
			l, err := probe(ctx, producer, length)
			if err != nil {
				return 0, err
			}
			if bytes, err = size(); err != nil {
				return 0, err
			}
			now, peak := w.rss()
			fmt.Printf("| %s | %.2f GB | %s | %.0f, %.0f MiB |\n", when, float64(bytes)/1e9, l, now, peak)
			return bytes, nil
		}
		last, err := line("before", b.load.length)
		if err != nil {
			return err
		}
		if _, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: kadm.StringPtr("compact")}}, "big"); err != nil {
			return err
		}
		began := time.Now()
		for still := 0; still < 3 && time.Since(began) < time.Hour; { // nothing changes for three lines: the passes are over
			bytes, err := line(fmt.Sprintf("after %.0f s", time.Since(began).Seconds()), 10*time.Second)
			if err != nil {
				return err
			}
			if still++; bytes != last || time.Since(began) < time.Minute {
				still = 0
			}
			last = bytes
		}
	}
	return nil
}
