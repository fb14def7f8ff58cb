package weir_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir"
)

// Close does not wait for the linger of what a handler publishes.
func TestCloseEndsLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := weir.Open(t.Context(), "memory:", weir.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ensure(t, w, "orders", 1)
		if err := w.EnsureTopic(t.Context(), weir.Topic{Name: "lazy", Config: map[string]string{"weir.linger.ms": "5000"}}); err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, 1)
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(ctx context.Context, _ weir.Event) error {
			_, err := w.Publish(context.WithoutCancel(ctx), weir.Event{Topic: "lazy", Value: []byte("v")})
			answered <- err
			return err
		}})
		publish(t, w, "orders", "v")
		synctest.Wait() // the record waits
		began := time.Now()
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
	})
}
