package httpapi_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/door/httpapi"
)

// A member over HTTP and one of Kafka's consumer protocol (KIP-848) share a group: each event goes
// to one of them.
func TestHTTPAndKafkaMembersShareAGroup(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 4)
	c := d.join("g", `{"topics":["orders"],"from":"earliest"}`)
	k := d.withKafka(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("orders"), kgo.ServerSideBalancer(), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.BlockRebalanceOnPoll())
	var mu sync.Mutex // guards by
	by := map[string][]string{}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			fetches := k.PollFetches(ctx)
			mu.Lock()
			fetches.EachRecord(func(r *kgo.Record) { by[string(r.Value)] = append(by[string(r.Value)], "kafka") })
			mu.Unlock()
			_ = k.CommitUncommittedOffsets(context.WithoutCancel(ctx)) // what is not committed comes again, which the test sees
			k.AllowRebalance()
		}
	})
	published, kafkaHas := 0, 0
	for round := 0; kafkaHas == 0; round++ { // until Kafka's member has got its share
		for range 8 {
			d.publish("orders", 4, fmt.Sprint(published), fmt.Sprint(published+1), fmt.Sprint(published+2), fmt.Sprint(published+3))
			published += 4
		}
		values, next := c.events("?max=100&wait_ms=100")
		if next != "" {
			c.commit(fmt.Sprintf(`{"next":%q}`, next))
		}
		mu.Lock()
		for _, v := range values {
			by[v] = append(by[v], "http")
		}
		for _, who := range by {
			if who[0] == "kafka" {
				kafkaHas++
			}
		}
		mu.Unlock()
		if round > 2000 {
			t.Fatal("Kafka's member gets nothing")
		}
	}
	cancel()
	running.Wait()
	k.CloseAllowingRebalance()
	for {
		mu.Lock()
		seen := len(by)
		mu.Unlock()
		if seen == published {
			break
		}
		values, next := c.events("?max=100&wait_ms=1000")
		c.commit(fmt.Sprintf(`{"next":%q}`, next))
		for _, v := range values {
			by[v] = append(by[v], "http")
		}
	}
	for v, who := range by {
		if len(who) != 1 {
			t.Errorf("event %s went to %v", v, who)
		}
	}
}
