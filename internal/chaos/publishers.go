package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-log/weir/internal/judge"
)

// publisher is one way to publish. Another door adds its own to publishers: what it publishes is
// judged as all else is.
type publisher struct {
	name    string
	stores  string // the only store that has it; "": all
	inOrder bool   // what one of them publishes in one partition keeps its order
	most    int    // records of one call
	open    func(w *world, session string, random *rand.Rand) (send, error)
}

// send publishes records to one topic, and says what became of them all, and where each is, if that
// is known.
type send func(ctx context.Context, records []*judge.Record) (judge.Outcome, []judge.Place)

var publishers = []publisher{
	{name: "kafka", inOrder: true, most: 5, open: openKafka},
	{name: "kafka-raw", inOrder: true, most: 5, open: openRaw},
	{name: "http", most: 1, open: openHTTPSingle},
	{name: "http-batch", most: 5, open: openHTTPBatch},
	{name: "http-key", most: 3, open: openHTTPKey},
	{name: "go", most: 5, open: openGo("publish")},
	{name: "go-once", most: 3, open: openGo("publish once")},
	{name: "go-tx", stores: "postgres", most: 5, open: openGoTx},
	{name: "sql", stores: "postgres", most: 6, open: openSQL},
	{name: "rows", stores: "sqlite", most: 6, open: openRows},
	{name: "rows", stores: "mysql", most: 6, open: openRows},
	{name: "rows", stores: "shards", most: 6, open: openRows},
}

// publish publishes to topics chosen at random until ctx ends.
func (w *world) publish(ctx context.Context, p publisher, nth int) {
	session := fmt.Sprintf("%s%d", p.name, nth)
	random := w.random("publisher " + session)
	send, err := p.open(w, session, random)
	if err != nil {
		w.model.Broken("B1", nil, "%s: %v", session, err)
		return
	}
	for ctx.Err() == nil {
		topic := w.anyTopic(random)
		if w.model.Living(topic) == nil && random.IntN(4) > 0 {
			pause(ctx, 20*time.Millisecond)
			continue
		}
		records := w.model.Invoke(session, topic, 1+random.IntN(p.most), p.inOrder)
		outcome, places := send(ctx, records)
		w.model.End(records, outcome, places)
		w.counts.addN("records "+outcome.String()+" by "+p.name, len(records))
		pause(ctx, time.Duration(random.IntN(50))*time.Millisecond)
	}
}

// anyTopic chooses a topic to publish to.
func (w *world) anyTopic(random *rand.Rand) string {
	switch n := random.IntN(10); {
	case n < 2:
		return steady
	case n < 4:
		return trimmed
	case n < 5:
		return []string{brief, old}[random.IntN(2)]
	}
	return passing[random.IntN(len(passing))]
}

func valuesOf(records []*judge.Record) (values []string) {
	for _, r := range records {
		values = append(values, r.Value)
	}
	return values
}
