package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// openHTTPSingle publishes one event a request.
func openHTTPSingle(w *world, _ string, random *rand.Rand) (send, error) {
	return func(ctx context.Context, records []*record) (outcome, []place) {
		return w.brokers[random.IntN(2)].publishOne(ctx, records[0], "")
	}, nil
}

// publishOne publishes one event, whose value is the body.
func (b *broker) publishOne(ctx context.Context, r *record, query string) (outcome, []place) {
	if r.topic == old {
		query = fmt.Sprintf("?timestamp=%d", longAgo.UnixMilli())
	}
	body, o, _ := b.call(context.WithoutCancel(ctx), "POST", "/v1/topics/"+r.topic+"/events"+query, []byte(r.value), nil)
	var at place
	if o == done && json.Unmarshal(body, &at) != nil {
		o = unknown
	}
	if o != done {
		return o, nil
	}
	return o, []place{at}
}

// openHTTPBatch publishes many events a request: all or none.
func openHTTPBatch(w *world, _ string, random *rand.Rand) (send, error) {
	return func(ctx context.Context, records []*record) (outcome, []place) {
		body, o, _ := w.brokers[random.IntN(2)].call(context.WithoutCancel(ctx), "POST", "/v1/topics/"+records[0].topic+"/batch", batchOf(records), nil)
		return placesIn(body, o)
	}, nil
}

// openHTTPKey publishes under an idempotency key, and tries again until the outcome is known.
func openHTTPKey(w *world, session string, random *rand.Rand) (send, error) {
	n := 0
	return func(ctx context.Context, records []*record) (outcome, []place) {
		n++
		header := http.Header{"Idempotency-Key": {fmt.Sprintf("%s-%d", session, n)}}
		for range triesMax {
			b := w.brokers[random.IntN(2)]
			body, o, err := b.call(context.WithoutCancel(ctx), "POST", "/v1/topics/"+records[0].topic+"/batch", batchOf(records), header)
			var answer *httpError
			if errors.As(err, &answer) && answer.status == http.StatusNotFound {
				return unknown, nil // an earlier try may have reached the topic before it was deleted
			}
			if o == done {
				return placesIn(body, o)
			}
			pause(ctx, 100*time.Millisecond)
		}
		return unknown, nil
	}, nil
}

// triesMax bounds how often a publication under a key is tried again.
const triesMax = 30

func batchOf(records []*record) any {
	type event struct {
		Value     string `json:"value"`
		Timestamp int64  `json:"timestamp,omitempty"`
	}
	var events []event
	for _, r := range records {
		e := event{Value: r.value}
		if r.topic == old {
			e.Timestamp = longAgo.UnixMilli()
		}
		events = append(events, e)
	}
	return map[string]any{"events": events}
}

func placesIn(body []byte, o outcome) (outcome, []place) {
	if o != done {
		return o, nil
	}
	var answer struct{ Events []place }
	if json.Unmarshal(body, &answer) != nil {
		return unknown, nil
	}
	return done, answer.Events
}
