package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/weir-log/weir/internal/judge"
)

// runHTTP is a group with a member at each broker. Go consumers could share it.
func runHTTP(ctx context.Context, w *world, g group) {
	for i, b := range w.brokers {
		w.members.Go(func() { w.httpMember(b, g, fmt.Sprintf("%s-%d", g.name, i)) })
	}
	<-ctx.Done()
}

// httpMember joins, asks for events, handles them, commits; and joins again when it is told to. It
// runs until the world rests.
func (w *world) httpMember(b *broker, g group, name string) {
	random := w.random("member " + name)
	ctx := context.Background()
	at := ""
	for w.handling() {
		if at == "" {
			body, _, err := b.call(ctx, "POST", "/v1/groups/"+g.name+"/members", map[string]any{"topics": g.topics, "session_ms": 3000, "client": name}, nil)
			var joined struct{ ID string }
			if err != nil || json.Unmarshal(body, &joined) != nil {
				pause(ctx, 300*time.Millisecond)
				continue
			}
			at = "/v1/groups/" + g.name + "/members/" + url.PathEscape(joined.ID)
			w.history.Add(fmt.Sprintf("%s joined as %s", name, joined.ID), g.name)
		}
		body, _, err := b.call(ctx, "GET", at+"/events?max=50&wait_ms=500", nil, nil)
		var page struct {
			Events []struct {
				Topic string
				judge.Place
				Value string
			}
			Next string
		}
		if err == nil {
			err = json.Unmarshal(body, &page)
		}
		if err != nil {
			w.history.Add(fmt.Sprintf("%s joins again: %v", name, err), g.name)
			at = ""
			pause(ctx, 100*time.Millisecond)
			continue
		}
		if len(page.Events) == 0 {
			continue
		}
		var got []judge.Sight
		for _, e := range page.Events {
			got = append(got, judge.Sight{Topic: e.Topic, Place: e.Place, Value: e.Value})
		}
		pause(ctx, dawdled(random))
		w.model.Deliver(g.name, name, false, got...)
		w.counts.addN("handled by "+g.name, len(got))
		if _, _, err := b.call(ctx, "POST", at+"/commit", map[string]any{"next": page.Next}, nil); err != nil {
			w.history.Add(fmt.Sprintf("%s was not let commit: %v", name, err), g.name)
		}
		if random.IntN(100) == 0 {
			_, _, _ = b.call(ctx, "DELETE", at, nil, nil) // it leaves; if that fails its session ends
			at = ""
		}
	}
}
