package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// runKafka is a group with two members at one broker: a Kafka client finds its coordinator by the broker that it knows. They run until the
// world rests, and so read what is left when everything else has ended.
func runKafka(home int, static bool) func(context.Context, *world, group) {
	return func(ctx context.Context, w *world, g group) {
		for i := range 2 {
			opts := []kgo.Opt{
				kgo.ConsumerGroup(g.name), kgo.ConsumeTopics(g.topics...), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
				kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond), kgo.RebalanceTimeout(10 * time.Second),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(500 * time.Millisecond),
			}
			if static {
				opts = append(opts, kgo.InstanceID(fmt.Sprintf("%s-%d", g.name, i)), kgo.Balancers(kgo.RangeBalancer()))
			} else {
				opts = append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer()))
			}
			client, err := w.kafkaClient(w.brokers[home:home+1], opts...)
			if err != nil {
				w.model.broken("B1", []string{g.name}, "%s: %v", g.name, err)
				return
			}
			w.members.Go(func() { w.kafkaMember(client, g, fmt.Sprintf("%s-%d", g.name, i)) })
		}
		<-ctx.Done()
	}
}

// kafkaMember handles what it is given, and commits it then.
func (w *world) kafkaMember(client *kgo.Client, g group, name string) {
	random := w.random("member " + name)
	for w.handling() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		fetches := client.PollRecords(ctx, 50)
		cancel()
		if fetches.IsClientClosed() {
			return
		}
		var got []sight
		fetches.EachRecord(func(r *kgo.Record) {
			got = append(got, sight{r.Topic, place{r.Partition, r.Offset}, string(r.Value)})
		})
		if len(got) > 0 {
			pause(context.Background(), dawdled(random))
			w.model.deliver(g.name, name, false, got...)
			w.counts.addN("handled by "+g.name, len(got))
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			_ = client.CommitRecords(ctx, fetches.Records()...) // one that is lost is made up for by the next
			cancel()
		}
		client.AllowRebalance()
	}
}
