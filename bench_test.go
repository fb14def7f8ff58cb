package weir_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog/batch"
)

// One event per call, 50 callers, ~130 bytes: through the library, and through the core below it
// for comparison.
//
//	go test -run xxx -bench Publish -benchtime 200000x .
func BenchmarkPublish(b *testing.B) {
	value := make([]byte, 120)
	for _, kind := range []string{"memory", "sqlite", "postgres"} {
		b.Run("library/"+kind, func(b *testing.B) {
			w := benchSite(b, kind)
			b.ReportAllocs()
			b.SetParallelism(50)
			var n atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := w.Publish(context.Background(), weir.Event{Topic: "orders", Key: fmt.Append(nil, n.Add(1)), Value: value}); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
		b.Run("core/"+kind, func(b *testing.B) {
			log := benchSite(b, kind).Core()
			topic, err := log.Topic(context.Background(), "orders")
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetParallelism(50)
			var n atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					i := n.Add(1)
					if _, err := log.Publish(context.Background(), topic.Partitions[i%4], batch.Record{Key: fmt.Append(nil, i), Value: value}); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// Events that are there already, through a handler that does nothing.
//
//	go test -run xxx -bench Consume -benchtime 1000000x .
func BenchmarkConsume(b *testing.B) {
	for _, kind := range []string{"memory", "sqlite", "postgres"} {
		b.Run(kind, func(b *testing.B) {
			w := benchSite(b, kind)
			value := make([]byte, 120)
			for left := b.N; left > 0; left -= 1000 {
				events := make([]weir.Event, min(left, 1000))
				for i := range events {
					events[i] = weir.Event{Topic: "orders", Key: fmt.Append(nil, left-i), Value: value}
				}
				if _, err := w.Publish(context.Background(), events...); err != nil {
					b.Fatal(err)
				}
			}
			var n atomic.Int64
			done := make(chan struct{})
			b.ReportAllocs()
			b.ResetTimer()
			c, err := w.Consume(context.Background(), weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(context.Context, weir.Event) error {
				if n.Add(1) == int64(b.N) {
					close(done)
				}
				return nil
			}})
			if err != nil {
				b.Fatal(err)
			}
			<-done
			b.StopTimer()
			if err := c.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func benchSite(b *testing.B, kind string) *weir.Log {
	b.Helper()
	s := newSite(b, kind)
	w, err := s.try(context.Background(), weir.Options{Logger: discard})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := w.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	if err := w.EnsureTopic(context.Background(), weir.Topic{Name: "orders", Partitions: 4}); err != nil {
		b.Fatal(err)
	}
	return w
}
