package publish_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/publish"
)

func TestNobodyPublishesToAnInternalTopicByItsName(t *testing.T) {
	log := run(t, memory.New(), eventlog.Config{})
	p := publish.New(log, publish.Config{})
	for _, name := range []string{"__weir_later", eventlog.OffsetsTopic} {
		inside := topic(t, log, name, 1)
		e := publish.Event{Topic: name, Value: []byte("v")}
		commit := func(ctx context.Context, batches []eventlog.Batch, _ []publish.Within) error {
			_, err := log.Append(ctx, eventlog.Entry{Batches: batches})
			return err
		}
		_, one := p.Publish(t.Context(), e)
		_, several := p.Publish(t.Context(), e, e)
		_, _, once := p.PublishOnce(t.Context(), "key", e)
		for how, err := range map[string]error{"one": one, "several": several, "once": once, "with a commit": p.PublishWith(t.Context(), commit, e)} {
			var invalid *eventlog.InvalidError
			if !errors.As(err, &invalid) {
				t.Errorf("%s, to %s: %v", how, name, err)
			}
		}
		if b, _ := log.Known(inside.Partitions[0]); b.Next != 0 {
			t.Errorf("%s has %d records", name, b.Next)
		}
		e.Internal = true
		if _, err := p.Publish(t.Context(), e); err != nil {
			t.Errorf("weir itself, to %s: %v", name, err)
		}
	}
}

func TestNobodyPublishesWhereStreamsAloneAppend(t *testing.T) {
	log := run(t, memory.New(), eventlog.Config{})
	p := publish.New(log, publish.Config{})
	to, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "order", Partitions: 1, Writer: "streams"})
	if err != nil {
		t.Fatal(err)
	}
	e := publish.Event{Topic: "order", Value: []byte("v")}
	_, one := p.Publish(t.Context(), e)
	_, several := p.Publish(t.Context(), e, e)
	_, _, once := p.PublishOnce(t.Context(), "key", e)
	for how, err := range map[string]error{"one": one, "several": several, "once": once} {
		var invalid *eventlog.InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "only streams append to it") {
			t.Errorf("%s: %v", how, err)
		}
	}
	if b, _ := log.Known(to.Partitions[0]); b.Next != 0 {
		t.Errorf("there are %d records", b.Next)
	}
}

// With a large max.message.bytes an event may have more headers than readers decode.
func TestAnEventThatNobodyWouldDecodeIsRefused(t *testing.T) {
	log := run(t, memory.New(), eventlog.Config{})
	if _, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 1, Config: map[string]string{"max.message.bytes": "100000000"}}); err != nil {
		t.Fatal(err)
	}
	p := publish.New(log, publish.Config{})
	e := publish.Event{Topic: "orders", Headers: make([]batch.RecordHeader, batch.DecodedMax/40+1)}
	if _, err := p.Publish(t.Context(), e, publish.Event{Topic: "orders"}); !errors.Is(err, eventlog.ErrTooLarge) || !strings.Contains(err.Error(), "headers") {
		t.Errorf("%d headers: %v", len(e.Headers), err)
	}
	e.Headers = e.Headers[:batch.DecodedMax/40-3]
	if _, err := p.Publish(t.Context(), e, publish.Event{Topic: "orders"}); err != nil {
		t.Errorf("%d headers: %v", len(e.Headers), err)
	}
}
