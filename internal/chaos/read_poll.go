package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/internal/judge"
)

// tellMax is how soon whoever waits is told, while nothing is done to anybody: that there are
// events, or that the topic is gone.
const tellMax = 5 * time.Second

type page struct {
	Events []struct {
		judge.Place
		Value string
	}
	Next  int64               `json:"next_offset"`
	First int64               `json:"first_offset"`
	End   int64               `json:"end_offset"`
	Gap   *struct{ To int64 } `json:"gap"`
}

// poll reads what comes next in a partition, and waits for it.
func (b *broker) poll(ctx context.Context, topic string, partition int32, from int64, wait time.Duration) (p page, err error) {
	path := fmt.Sprintf("/v1/topics/%s/partitions/%d/events?offset=%d&wait_ms=%d", topic, partition, from, wait.Milliseconds())
	body, _, err := b.call(ctx, "GET", path, nil, nil)
	if err == nil {
		err = json.Unmarshal(body, &p)
	}
	return p, err
}

// runPoller follows a partition of each topic of a name with long polls, at one broker.
func (w *world) runPoller(ctx context.Context, b *broker, topic string, partition int32) {
	const wait = 30 * time.Second
	r := &judge.Reader{Who: fmt.Sprintf("poller of %s/%d at %s", topic, partition, b.name), Next: map[int32]int64{}}
	for ctx.Err() == nil {
		l := w.model.Living(topic)
		if l == nil {
			pause(ctx, 20*time.Millisecond)
			continue
		}
		if r.Life != l {
			if !knows(ctx, b, l) { // what it answers may still be of the topic before
				pause(ctx, 20*time.Millisecond)
				continue
			}
			r.Begin(l)
		}
		process, invoked := b.id(), w.now()
		p, err := b.poll(ctx, topic, partition, r.Next[partition], wait)
		if ctx.Err() != nil {
			return
		}
		w.judgeEnd(b, r.Who, l, tellMax)
		if l != w.model.Living(topic) || err != nil {
			var answer *httpError
			if errors.As(err, &answer) && answer.status == http.StatusRequestedRangeNotSatisfiable && l == w.model.Living(topic) {
				first := w.firstOf(ctx, b, topic, partition)
				switch {
				case w.model.MayLose(l, partition):
					r.Next[partition] = first
				case first > r.Next[partition] && l == w.model.Living(topic):
					w.model.Broken("L9", []string{topic, r.Who}, "%s: the log begins at %d, and the reader is at %d: what nobody asked to drop is gone", r.Who, first, r.Next[partition])
				}
			}
			if err != nil {
				w.history.Add(fmt.Sprintf("%s: %v", r.Who, err), topic, r.Who)
				pause(ctx, 50*time.Millisecond)
			}
			continue // what came may be of either topic
		}
		w.model.ShowEnd(process, l, partition, invoked, p.End)
		for _, e := range p.Events {
			w.model.Follow(r, judge.Sight{Topic: topic, Place: e.Place, Value: e.Value})
		}
		if p.Gap != nil {
			w.model.PassGap(r, topic, partition, r.Next[partition], p.Gap.To)
		}
		w.counts.addN("read by polls", len(p.Events))
	}
}

// knows says whether this very broker has heard of a topic, which it is asked for by its id.
func knows(ctx context.Context, b *broker, l *judge.Life) bool {
	client, err := b.kafkaClient()
	if err != nil {
		return false
	}
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.TopicID = l.ID
	req.Topics = append(req.Topics, t)
	ctx, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	answer, err := client.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return false
	}
	topics := answer.(*kmsg.MetadataResponse).Topics
	return len(topics) == 1 && topics[0].ErrorCode == 0
}

func (w *world) firstOf(ctx context.Context, b *broker, topic string, partition int32) int64 {
	path := fmt.Sprintf("/v1/topics/%s/partitions/%d/events?max=1", topic, partition)
	body, _, err := b.call(ctx, "GET", path, nil, nil)
	var p page
	if err != nil || json.Unmarshal(body, &p) != nil {
		return 0
	}
	return p.First
}

// judgeEnd sees whether somebody who waited for a topic that went away was told so in time. It is
// called right after the wait.
func (w *world) judgeEnd(b *broker, who string, l *judge.Life, most time.Duration) {
	now := w.now()
	if l == nil || l.GoneAt(w.model) == 0 {
		return
	}
	gone := l.GoneAt(w.model)
	if now > gone+judge.Moment(most) && w.calm.between(gone, now, b.name) {
		w.model.Broken("L7", []string{l.Name, who, b.name}, "%s waited for %s, which was gone at %v, until %v: the limit is %v", who, l, gone, now, most)
	}
}
