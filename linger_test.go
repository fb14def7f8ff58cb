package weir_test

import (
	"context"
	"testing"
	"time"

	"github.com/weir-log/weir"
)

// Close does not wait for the linger of what a handler publishes.
func TestCloseEndsLingers(t *testing.T) {
	s := newSite(t, "sqlite")
	w := s.open(t)
	ensure(t, w, "orders", 1)
	if err := w.EnsureTopic(t.Context(), weir.Topic{Name: "lazy", Config: map[string]string{"weir.linger.ms": "5000"}}); err != nil {
		t.Fatal(err)
	}
	publishing := make(chan struct{})
	_, err := w.Consume(t.Context(), weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(ctx context.Context, _ weir.Event) error {
		close(publishing)
		_, err := w.Publish(context.WithoutCancel(ctx), weir.Event{Topic: "lazy", Value: []byte("v")})
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Publish(t.Context(), weir.Event{Topic: "orders", Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	<-publishing
	began := time.Now()
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("Close took %v", took)
	}
	w = s.open(t)
	if bounds, err := w.Bounds(t.Context(), "lazy"); err != nil || bounds[0].Next != 1 {
		t.Errorf("%v, %v, want the event", bounds, err)
	}
}
