package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-log/weir/internal/judge"
)

// group is a consumer group whose members get everything in its topics at least once. Another use
// of groups adds its own to groups; what it handles it tells Model.Deliver, and finalCheck judges
// it as all others.
type group struct {
	name   string
	stores string // the only store that has it; "": all
	topics []string
	bills  bool // what it handled is in the table bills, exactly once
	reset  bool // people set it back, or delete it
	tells  bool // its members tell all that they commit: register.go judges it
	epochs bool // its members are of the consumer protocol
	run    func(ctx context.Context, w *world, g group)
}

var everyTopic = append([]string{steady, trimmed}, passing...)

// Kafka's clients know topics by their names, and may take one that was made anew for the one
// before: their groups read topics that stay.
var stayingTopics = []string{steady, trimmed}

var groups = []group{
	{name: "go-single", topics: everyTopic, run: runGo("single")},
	{name: "go-batch", topics: everyTopic, reset: true, run: runGo("batch")},
	{name: "go-tx", stores: "postgres", topics: everyTopic, bills: true, run: runGo("tx")},
	{name: "kafka-cooperative", topics: stayingTopics, reset: true, tells: true, run: runKafka(0, cooperates)},
	{name: "kafka-static", topics: stayingTopics, tells: true, run: runKafka(1, static)},
	{name: "kafka-consumer", topics: stayingTopics, reset: true, tells: true, epochs: true, run: runKafka(0, serverAssigns)},
	{name: "mixed", topics: stayingTopics, run: runMixed},
	{name: "http-members", topics: everyTopic, reset: true, run: runHTTP},
	{name: "sql", stores: "postgres", topics: stayingTopics, bills: true, run: runSQL},
}

// hasStore says whether this run's store has something that is for the store only alone; "": for
// all.
func (o options) hasStore(only string) bool { return only == "" || only == o.store }

// runGo is a group with a consumer in each of the embedded logs. When its program starts anew, so
// does the consumer.
func runGo(mode string) func(context.Context, *world, group) {
	return func(ctx context.Context, w *world, g group) {
		random := w.random("group " + g.name)
		subscribed := map[string]bool{}
		paused := map[string]bool{}
		for ctx.Err() == nil {
			for _, e := range w.embedded {
				if life := e.id(); !subscribed[life] {
					said := e.ask(ctx, order{Do: "consume", Group: g.name, Name: g.name + "@" + e.name, Topics: g.topics, Mode: mode, Session: 2 * time.Second})
					subscribed[life] = said.Outcome == judge.Done
					paused[e.name] = false
				}
			}
			pause(ctx, time.Duration(100+random.IntN(400))*time.Millisecond)
			e := w.embedded[random.IntN(2)]
			name := g.name + "@" + e.name
			switch n := random.IntN(20); {
			case paused[e.name] || n == 0:
				do := map[bool]string{false: "pause", true: "resume"}[paused[e.name]]
				paused[e.name] = !paused[e.name]
				e.ask(context.WithoutCancel(ctx), order{Do: do, Name: name})
				w.counts.add(do)
			case n == 1 && g.reset:
				w.history.Add(fmt.Sprintf("%s seeks to the beginning", name), g.name)
				e.ask(ctx, order{Do: "seek", Name: name})
				w.counts.add("seek")
			}
		}
		for _, e := range w.embedded { // a paused consumer would never have read all
			e.ask(context.WithoutCancel(ctx), order{Do: "resume", Name: g.name + "@" + e.name})
		}
		w.keepConsuming(g, mode, subscribed)
	}
}

// keepConsuming subscribes those that started anew after the last look.
func (w *world) keepConsuming(g group, mode string, subscribed map[string]bool) {
	for _, e := range w.embedded {
		if !subscribed[e.id()] {
			e.ask(context.Background(), order{Do: "consume", Group: g.name, Name: g.name + "@" + e.name, Topics: g.topics, Mode: mode, Session: 2 * time.Second})
		}
	}
}

// hear takes what the handlers in an embedded log say.
func (w *world) hear(said judge.Word) {
	if said.Job != nil {
		w.hearWorker(said)
		return
	}
	if said.Projection {
		w.hearProjection(said)
		return
	}
	w.model.Deliver(said.Group, said.Consumer, said.Once, said.Handled...)
	w.counts.addN("handled by "+said.Group, len(said.Handled))
}

// dawdled is how long a member works on what it got: now and then for a second.
func dawdled(random *rand.Rand) time.Duration {
	if random.IntN(50) == 0 {
		return time.Duration(random.IntN(1500)) * time.Millisecond
	}
	return time.Duration(random.IntN(3)) * time.Millisecond
}

// acts says whether a group is part of a run.
func (o options) acts(g group) bool { return o.hasStore(g.stores) && o.does(g.name) }
