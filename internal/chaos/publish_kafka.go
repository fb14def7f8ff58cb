package main

import (
	"context"
	"math/rand/v2"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// openKafka publishes with an idempotent producer, which finds the other broker when its own is away. Its records carry the time of
// long ago where the topic is for that.
func openKafka(w *world, session string, random *rand.Rand) (send, error) {
	client, err := w.kafkaClient(w.brokers, kgo.ClientID(session), kgo.UnknownTopicRetries(3))
	if err != nil {
		return nil, err
	}
	return func(_ context.Context, records []*record) (outcome, []place) {
		places := make([]place, len(records))
		var failed error
		var mu sync.Mutex
		var all sync.WaitGroup
		for i, r := range records {
			out := &kgo.Record{Topic: r.topic, Value: []byte(r.value)}
			if r.topic == old {
				out.Timestamp = longAgo
			}
			all.Add(1)
			client.Produce(context.Background(), out, func(out *kgo.Record, err error) {
				defer all.Done()
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed = err
				}
				places[i] = place{out.Partition, out.Offset}
			})
		}
		all.Wait()
		if id, _, err := client.ProducerID(context.Background()); err == nil && id >= 0 {
			w.model.producerID(session, id)
		}
		if failed != nil {
			return unknown, nil // the client does not tell whether the broker ever had them
		}
		return done, places
	}, nil
}
