package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"
)

// runCache consumes a topic several times with Kafka's perf tool: from Apache Kafka, from weir on
// PostgreSQL, and with a cache in front of it, which the first pass fills.
func runCache(ctx context.Context, b *bench) error {
	bytes := int64(b.load.gib) << 30
	plain, err := b.settings("plain")
	if err != nil {
		return err
	}
	fmt.Println("| | first pass | the other passes, median |\n| --- | --- | --- |")
	pass := func(name, address string) error {
		if _, err := fillKafka(ctx, address, "history", time.Now().Add(time.Hour), bytes); err != nil {
			return err
		}
		var all []float64
		for range b.runs + 1 {
			got, err := b.perfConsume(ctx, way{name, address, plain}, "history", int(bytes/1024))
			if err != nil {
				return err
			}
			all = append(all, got.consumeMB*1.048576)
		}
		fmt.Printf("| %s | %.0f MB/s | %.0f MB/s |\n", name, all[0], median(all[1:]))
		return nil
	}
	address, stop, err := b.apacheStarted(ctx)
	if err != nil {
		return err
	}
	err = pass("apache kafka", address)
	stop()
	if err != nil {
		return err
	}
	for _, flags := range [][]string{nil, {"--cache-dir", filepath.Join(b.dir, "cache"), "--cache-bytes", strconv.FormatInt(2*int64(b.load.gib), 10) + "GiB"}} {
		name := "weir on postgres"
		if flags != nil {
			name += ", with a cache"
		}
		w, err := b.startBinary(ctx, b.weir, "postgres", flags...)
		if err != nil {
			return err
		}
		err = pass(name, w.kafka)
		w.close()
		if err != nil {
			return err
		}
	}
	return nil
}
