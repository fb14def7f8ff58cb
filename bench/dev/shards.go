package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/pgtest"
)

// shards starts n PostgreSQL servers and returns the address of the set.
func (b *bench) shards(n int) (address string, closeAll func() error, err error) {
	var urls []string
	closeAll = func() error { return nil }
	for range n {
		server, err := pgtest.Launch("")
		if err != nil {
			return "", nil, errors.Join(err, closeAll())
		}
		others := closeAll
		closeAll = func() error { return errors.Join(server.Close(), others()) }
		urls = append(urls, strings.ReplaceAll(server.Admin(), ",", ",,"))
	}
	return "shard:" + strings.Join(urls, ","), closeAll, nil
}

// runShards compares three PostgreSQL servers as shards with one server. Then it publishes as
// EventSQL's benchmark does: one event of about 213 bytes a call into 10 partitions, at a fixed
// rate, 20,000 a second and database, with one group that consumes. EventSQL's events have no key;
// these have, so that their order can be checked.
func runShards(ctx context.Context, b *bench) error {
	plain, err := b.settings("plain")
	if err != nil {
		return err
	}
	one, err := b.start(ctx, "postgres")
	if err != nil {
		return err
	}
	address, closeAll, err := b.shards(3)
	if err != nil {
		one.close()
		return err
	}
	three := &broker{store: address, closeStore: func() { _ = closeAll() }, kafka: freePort(), http: freePort(), log: one.log + ".shards"}
	if err := three.run(ctx, b.weir); err != nil {
		one.close()
		three.closeStore()
		return err
	}
	err = b.compare(ctx, way{"one PostgreSQL", one.kafka, plain}, way{"three as shards", three.kafka, plain})
	one.close()
	three.close()
	if err != nil {
		return err
	}
	fmt.Println("\n| databases | meant | published/s | publish p50 | p99 | end to end p50 | p99 | max | delivered, in order, once |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, n := range []int{1, 3} {
		if err := b.pacedShards(ctx, n, n*20_000); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) pacedShards(ctx context.Context, databases, rate int) error {
	const callers, partitions, warmUp = 2000, 10, 5 * time.Second
	address, closeAll, err := b.shards(databases)
	if err != nil {
		return err
	}
	defer func() { _ = closeAll() }()
	if databases == 1 {
		address = strings.ReplaceAll(strings.TrimPrefix(address, "shard:"), ",,", ",")
	}
	w, err := weir.Open(ctx, address, weir.Options{Logger: warnings()})
	if err != nil {
		return err
	}
	defer w.Close(context.WithoutCancel(ctx))
	if err := w.EnsureTopic(ctx, weir.Topic{Name: "library", Partitions: partitions}); err != nil {
		return err
	}
	sent := newSender(w, 213, callers)
	seen := newReceiver(sent)
	consumer, err := w.Consume(ctx, weir.Subscription{Group: "bench", Topics: []string{"library"}, Handler: seen.handle})
	if err != nil {
		return err
	}
	defer consumer.Close(context.WithoutCancel(ctx))
	seen.countFrom(time.Now().Add(warmUp))
	got, err := pace{callers: callers, rate: rate, warmUp: warmUp, length: b.load.length}.run(ctx, sent.publish)
	if err := errors.Join(err, got.clean(), seen.await(ctx)); err != nil {
		return err
	}
	fmt.Printf("| %d | %d/s | %.0f | %s | %s | %s | %s | %s | %s |\n", databases, rate, got.perSecond, millis(got.took, 50), millis(got.took, 99),
		millis(seen.endToEnd, 50), millis(seen.endToEnd, 99), millis(seen.endToEnd, 100), seen.verdict())
	return nil
}
