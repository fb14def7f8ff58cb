package main

import (
	"context"
	"math/rand/v2"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/internal/judge"
)

// openKafka publishes with an idempotent producer, which finds the other broker when its own is
// away. Its records carry the time of long ago where the topic is for that.
func openKafka(w *world, session string, random *rand.Rand) (send, error) {
	client, err := w.kafkaClient(w.brokers, kgo.ClientID(session), kgo.UnknownTopicRetries(3))
	if err != nil {
		return nil, err
	}
	return func(_ context.Context, records []*judge.Record) (judge.Outcome, []judge.Place) {
		places := make([]judge.Place, len(records))
		var failed error
		var mu sync.Mutex
		var all sync.WaitGroup
		for i, r := range records {
			out := &kgo.Record{Topic: r.Topic, Value: []byte(r.Value)}
			if r.Topic == old {
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
				places[i] = judge.Place{Partition: out.Partition, Offset: out.Offset}
			})
		}
		all.Wait()
		if id, _, err := client.ProducerID(context.Background()); err == nil && id >= 0 {
			w.model.ProducerID(session, id)
		}
		if failed != nil {
			return judge.Unknown, nil // the client does not tell whether the broker ever had them
		}
		return judge.Done, places
	}, nil
}
