package main

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/judge"
)

// listLetters lists up to most dead letters of a queue: those that follow the letter that after
// names.
func (w *world) listLetters(ctx context.Context, b *broker, q judge.WorkQueue, after string, most string) ([]judge.SeenLetter, error) {
	asked := w.now()
	var answer struct{ Letters []judge.SeenLetter }
	path := "/v1/queues/" + q.Name + "/dead?max=" + most
	if after != "" {
		path += "&after=" + after
	}
	if err := b.get(ctx, path, &answer); err != nil {
		return nil, err
	}
	w.model.Lists(q, asked, answer.Letters)
	return answer.Letters, nil
}

// takeLetters lists dead letters, redrives some or all of them, and discards some.
func (w *world) takeLetters(ctx context.Context) {
	random := w.random("dead letters")
	before := map[string][]string{} // by queue: those that were taken once
	die := slices.DeleteFunc(slices.Clone(queues), func(q judge.WorkQueue) bool { return q.Attempts == 0 && q.TTL == 0 })
	for ctx.Err() == nil {
		pause(ctx, time.Duration(random.IntN(600))*time.Millisecond)
		q := die[random.IntN(len(die))]
		b, call := w.brokers[random.IntN(2)], context.WithoutCancel(ctx)
		list, err := w.listLetters(call, b, q, "", "100")
		if err != nil || len(list) == 0 {
			continue
		}
		w.counts.addN("dead letters listed in "+q.Name, len(list))
		var some []string
		for _, i := range random.Perm(len(list))[:min(len(list), 1+random.IntN(5))] {
			some = append(some, list[i].Letter)
		}
		switch n := random.IntN(12); {
		case n < 2:
			w.take(call, b, q, "redrive", some, nil)
		case n < 6: // each by both brokers at once: one of them may take it
			for _, letter := range some {
				w.takeBoth(call, random, q, letter)
			}
		case n == 6 && len(before[q.Name]) > 0: // once more
			w.take(call, b, q, "redrive", before[q.Name][:1], nil)
		case n < 9:
			w.take(call, b, q, "discard", some, nil)
		case n == 9:
			w.sweep(call, b, q, map[string]any{"all": true})
		default:
			w.sweep(call, b, q, map[string]any{"all": true, "per_second": 1 + random.IntN(50)})
		}
		before[q.Name] = some
	}
}

// takeBoth redrives a letter through both brokers at once, or discards it through one of them.
func (w *world) takeBoth(ctx context.Context, random *rand.Rand, q judge.WorkQueue, letter string) {
	verbs := []string{"redrive", []string{"redrive", "discard"}[random.IntN(2)]}
	var both sync.WaitGroup
	for i, b := range w.brokers {
		both.Go(func() { w.take(ctx, b, q, verbs[i], []string{letter}, nil) })
	}
	both.Wait()
}

// take redrives or discards: the letters that are named, or what the body says. It returns how a
// sweep goes on; "": it is over.
func (w *world) take(ctx context.Context, b *broker, q judge.WorkQueue, verb string, letters []string, body map[string]any) (until string) {
	if letters != nil {
		body = map[string]any{"letters": letters}
	}
	t := w.model.Takes(q, verb, letters)
	text, o, err := b.call(ctx, "POST", "/v1/queues/"+q.Name+"/dead/"+verb, body, nil)
	var answer struct {
		Taken   int
		Until   string
		Problem json.RawMessage
	}
	if o == judge.Done {
		if err = json.Unmarshal(text, &answer); err != nil {
			o = judge.Unknown
		}
	}
	w.model.Taken(q, t, o, answer.Taken, answer.Problem == nil, err)
	w.counts.add("requests to " + verb + ", " + o.String())
	w.counts.addN("dead letters, "+verb, answer.Taken)
	return answer.Until
}

// sweep redrives all letters, and goes on if one request was not enough for that.
func (w *world) sweep(ctx context.Context, b *broker, q judge.WorkQueue, body map[string]any) {
	for range 3 {
		until := w.take(ctx, b, q, "redrive", nil, body)
		if until == "" {
			return
		}
		body["until"] = until
	}
}

// countLetters counts of each message of a queue how often it is in its topic, the letters that are
// listed, and all that ever were. In this order, so that neither a message that dies meanwhile nor
// a letter that is redriven looks like one too many.
func (w *world) countLetters(ctx context.Context, b *broker, log *weir.Log, q judge.WorkQueue) error {
	copies, err := w.countValues(ctx, log, q.Name)
	if err != nil {
		return err
	}
	var left []judge.SeenLetter
	for after := ""; ; {
		list, err := w.listLetters(ctx, b, q, after, "1000")
		if err != nil {
			return err
		}
		if len(list) == 0 {
			break
		}
		left, after = append(left, list...), list[len(list)-1].Letter
	}
	ever, err := w.countValues(ctx, log, q.Name+".dlt")
	if err == nil {
		w.model.Counts(q, left, ever, copies)
	}
	return err
}

// countValues counts how often each value is in a topic.
func (w *world) countValues(ctx context.Context, log *weir.Log, topic string) (map[string]int, error) {
	count := map[string]int{}
	if _, is := w.topicNow(ctx, topic); !is {
		return count, nil
	}
	h, err := judge.ReadAll(ctx, log, &judge.Life{Name: topic})
	for _, values := range h.Value {
		for _, v := range values {
			count[v]++
		}
	}
	return count, err
}
