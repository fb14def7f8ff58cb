package publish_test

import (
	"context"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/publish"
)

// forgetful is a store that keeps no records, so that only publishing is measured.
type forgetful struct{ eventlog.Store }

func (f forgetful) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	out := make([]eventlog.Outcome, len(flush))
	for i, e := range flush {
		if len(e.Puts) > 0 {
			return f.Store.Commit(ctx, flush)
		}
		out[i].Base = make([]eventlog.Offset, len(e.Batches))
	}
	return out, nil
}

// One event a call, 50 callers a processor: what Publisher.Publish adds to eventlog.Log.Publish.
func BenchmarkOneEventACall(b *testing.B) {
	log, err := eventlog.Open(b.Context(), forgetful{memory.New()}, eventlog.Config{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- log.Run(ctx) }()
	defer func() { cancel(); <-done }()
	orders, err := log.CreateTopic(ctx, eventlog.TopicSpec{Name: "orders", Partitions: 4})
	if err != nil {
		b.Fatal(err)
	}
	p := publish.New(log, publish.Config{})
	key, value := []byte("some key"), make([]byte, 130)
	for name, publish := range map[string]func() error{
		"Log": func() error {
			_, err := log.Publish(ctx, orders.Partitions[0], batch.Record{Key: key, Value: value})
			return err
		},
		"Publisher": func() error {
			_, err := p.Publish(ctx, publish.Event{Topic: "orders", Key: key, Value: value})
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(50)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := publish(); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
