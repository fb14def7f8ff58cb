package weir_test

import (
	"context"
	"errors"
	"testing"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/s3test"
)

// With read_only=true a program reads what others write to a bucket, and every change is refused at
// once.
func TestALogOfABucketMayBeReadOnly(t *testing.T) {
	address := s3test.URL(t)
	open := func(address string) *weir.Log {
		log, err := weir.Open(t.Context(), address, weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := log.Close(context.Background()); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		return log
	}
	writer := open(address)
	if err := writer.EnsureTopic(t.Context(), weir.Topic{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	replica := open(address + "&read_only=true")
	if _, err := writer.Publish(t.Context(), weir.Event{Topic: "orders", Value: []byte("one")}); err != nil {
		t.Fatal(err)
	}
	n := 0
	for e, err := range replica.Read(t.Context(), weir.TopicPartition{Topic: "orders"}, weir.Earliest) {
		if n++; err != nil || string(e.Value) != "one" {
			t.Fatalf("%q, %v", e.Value, err)
		}
	}
	if n != 1 {
		t.Errorf("%d events, want 1", n)
	}
	handler := func(context.Context, weir.Event) error { return nil }
	for name, change := range map[string]func() error{
		"publish": func() error {
			_, err := replica.Publish(t.Context(), weir.Event{Topic: "orders", Value: []byte("two")})
			return err
		},
		"publish once": func() error {
			_, _, err := replica.PublishOnce(t.Context(), "key", weir.Event{Topic: "orders", Value: []byte("two")})
			return err
		},
		"make a topic": func() error { return replica.EnsureTopic(t.Context(), weir.Topic{Name: "other", Partitions: 1}) },
		"consume": func() error {
			_, err := replica.Consume(t.Context(), weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: handler})
			return err
		},
		"make a queue":    func() error { return replica.CreateQueue(t.Context(), weir.Queue{Name: "q"}) },
		"make a category": func() error { _, err := replica.CreateCategory(t.Context(), weir.CategorySpec{Name: "c"}); return err },
	} {
		if err := change(); !errors.Is(err, weir.ErrReadOnly) || errors.Is(err, weir.ErrUnsure) || errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
