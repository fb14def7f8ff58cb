package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/weir-log/weir/internal/judge"
)

// streamKeepAlive is about how often an idle stream says that it is alive, and so the longest that
// it may take to see that its topic is gone where nothing wakes it.
const streamKeepAlive = 15 * time.Second

// runSSE follows topics over server-sent events: cut off, it resumes after the last event that it
// saw.
func (w *world) runSSE(ctx context.Context, b *broker, topic string) {
	r := &judge.Reader{Who: "SSE of " + topic + " at " + b.name, Next: map[int32]int64{}}
	last := ""
	for ctx.Err() == nil {
		id, err := w.stream(ctx, b, topic, r, last)
		if ctx.Err() != nil {
			return
		}
		w.history.Add(fmt.Sprintf("%s ended: %v; it resumes at %q", r.Who, err, id), topic, r.Who)
		last = id
		pause(ctx, 100*time.Millisecond)
	}
}

// openStream asks for a topic's events: those after the event whose id is last, or if that is empty
// those that begin at the place from.
func (b *broker) openStream(ctx context.Context, topic, from, last string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+b.http+"/v1/topics/"+topic+"/events?from="+from, nil)
	if err != nil {
		panic(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	return b.client.Do(req)
}

// stream reads one stream until it ends, and returns where to resume. A position in a topic that is
// gone is good for nothing.
func (w *world) stream(ctx context.Context, b *broker, topic string, r *judge.Reader, last string) (id string, err error) {
	resp, err := b.openStream(ctx, topic, "earliest", last)
	if err != nil {
		return last, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return last, fmt.Errorf("%s", resp.Status)
	case resp.StatusCode >= 300:
		if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
			if told, _ := io.ReadAll(resp.Body); whereLost.Match(told) {
				w.toldOfLoss(r.Who, topic, string(told))
			}
		}
		r.Begin(nil)
		return "", fmt.Errorf("%s", resp.Status)
	}
	reading := w.model.Living(topic)
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	kind := ""
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			last = value
		case "event":
			kind = value
		case "":
			kind = ""
		case "data":
			if kind == "gap" {
				var told struct {
					Gap       struct{ From, To int64 }
					Partition int32
				}
				if err := json.Unmarshal([]byte(value), &told); err == nil {
					w.model.PassGap(r, topic, told.Partition, told.Gap.From, told.Gap.To)
				}
				continue
			}
			var e struct {
				judge.Place
				Value string
			}
			if err := json.Unmarshal([]byte(value), &e); err != nil {
				return last, err
			}
			w.model.Follow(r, judge.Sight{Topic: topic, Place: e.Place, Value: e.Value})
			w.counts.add("read by SSE")
		}
	}
	w.judgeEnd(b, r.Who, reading, streamKeepAlive+tellMax)
	return last, lines.Err()
}
