package stream_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// Of a category that was deleted nothing can be read, and nothing is left once it was swept.
func TestNothingIsLeftOfADeletedCategory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := orders(t, func(*testing.T) eventlog.Store { return memory.New() })
		events := named("a")
		events[0].Tags = []string{"t"}
		_, err := c.Append(t.Context(), "s", 0, events...)
		check(t, err)
		check(t, c.SetRetention(t.Context(), stream.Retention{Events: 10}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(5 * time.Minute) // fake time: retention is applied
		check(t, p.log.DeleteTopic(t.Context(), "orders"))
		for e, err := range c.Events(t.Context(), "s", stream.Range{}) {
			if !errors.Is(err, stream.ErrUnknownCategory) {
				t.Errorf("read %+v, %v", e, err)
			}
		}
		if _, err := c.State(t.Context(), "s"); !errors.Is(err, stream.ErrUnknownCategory) {
			t.Errorf("the state: %v", err)
		}
		time.Sleep(5 * time.Minute)
		cancel()
		check(t, <-done)
		check(t, p.log.ListAll(t.Context(), "stream/", func(kv eventlog.KeyValue) error {
			t.Errorf("left is %s", strings.SplitN(kv.Key, "/", 3)[1])
			return nil
		}))
	})
}

// However often a category is deleted and created again, a decoder has it in memory once, and finds
// no events of the deleted ones.
func TestADecoderForgetsDeletedCategories(t *testing.T) {
	p := begin(t, memory.New())
	decoder := p.Decoder()
	var before eventlog.TopicID
	for range 3 {
		c, err := p.CreateCategory(t.Context(), stream.Spec{Name: "order", Partitions: 1})
		check(t, err)
		if _, _, err := decoder.Events(t.Context(), "order", c.ID()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := decoder.Events(t.Context(), "order", before); !errors.Is(err, stream.ErrUnknownCategory) {
			t.Errorf("an event of a deleted category: %v, want ErrUnknownCategory", err)
		}
		before = c.ID()
		check(t, p.log.DeleteTopic(t.Context(), "order"))
	}
	if n := decoder.Known(); n != 1 {
		t.Errorf("%d categories are in memory, want 1", n)
	}
}
