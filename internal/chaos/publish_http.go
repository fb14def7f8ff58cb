package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/weir-log/weir/internal/judge"
)

// openHTTPSingle publishes one event a request.
func openHTTPSingle(w *world, _ string, random *rand.Rand) (send, error) {
	return func(ctx context.Context, records []*judge.Record) (judge.Outcome, []judge.Place) {
		return w.brokers[random.IntN(2)].publishOne(ctx, records[0], "")
	}, nil
}

// publishOne publishes one event, whose value is the body.
func (b *broker) publishOne(ctx context.Context, r *judge.Record, query string) (judge.Outcome, []judge.Place) {
	return b.publishWithin(context.WithoutCancel(ctx), r, query)
}

// publishWithin is publishOne for who does not wait longer than ctx.
func (b *broker) publishWithin(ctx context.Context, r *judge.Record, query string) (judge.Outcome, []judge.Place) {
	if r.Topic == old {
		query = fmt.Sprintf("?timestamp=%d", longAgo.UnixMilli())
	}
	body, o, _ := b.call(ctx, "POST", "/v1/topics/"+r.Topic+"/events"+query, []byte(r.Value), nil)
	var at judge.Place
	if o == judge.Done && json.Unmarshal(body, &at) != nil {
		o = judge.Unknown
	}
	if o != judge.Done {
		return o, nil
	}
	return o, []judge.Place{at}
}

// openHTTPBatch publishes many events a request: all or none.
func openHTTPBatch(w *world, _ string, random *rand.Rand) (send, error) {
	return func(ctx context.Context, records []*judge.Record) (judge.Outcome, []judge.Place) {
		body, o, _ := w.brokers[random.IntN(2)].call(context.WithoutCancel(ctx), "POST", "/v1/topics/"+records[0].Topic+"/batch", batchOf(records), nil)
		return placesIn(body, o)
	}, nil
}

// openHTTPKey publishes under an idempotency key, and tries again until the outcome is known.
func openHTTPKey(w *world, session string, random *rand.Rand) (send, error) {
	n := 0
	return func(ctx context.Context, records []*judge.Record) (judge.Outcome, []judge.Place) {
		n++
		header := http.Header{"Idempotency-Key": {fmt.Sprintf("%s-%d", session, n)}}
		for range triesMax {
			b := w.brokers[random.IntN(2)]
			body, o, err := b.call(context.WithoutCancel(ctx), "POST", "/v1/topics/"+records[0].Topic+"/batch", batchOf(records), header)
			var answer *httpError
			if errors.As(err, &answer) && answer.status == http.StatusNotFound {
				return judge.Unknown, nil // an earlier try may have reached the topic before it was deleted
			}
			if o == judge.Done {
				return placesIn(body, o)
			}
			pause(ctx, 100*time.Millisecond)
		}
		return judge.Unknown, nil
	}, nil
}

// triesMax bounds how often a publication under a key is tried again.
const triesMax = 30

func batchOf(records []*judge.Record) any {
	type event struct {
		Value     string `json:"value"`
		Timestamp int64  `json:"timestamp,omitempty"`
	}
	var events []event
	for _, r := range records {
		e := event{Value: r.Value}
		if r.Topic == old {
			e.Timestamp = longAgo.UnixMilli()
		}
		events = append(events, e)
	}
	return map[string]any{"events": events}
}

func placesIn(body []byte, o judge.Outcome) (judge.Outcome, []judge.Place) {
	if o != judge.Done {
		return o, nil
	}
	var answer struct{ Events []judge.Place }
	if json.Unmarshal(body, &answer) != nil {
		return judge.Unknown, nil
	}
	return judge.Done, answer.Events
}
