package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/judge"
)

const leaseOfQueues = 2 * time.Second

var queues = []judge.WorkQueue{
	{Name: "jobs", Attempts: 6, Goes: true, Settings: map[string]any{"lease_ms": 2000, "attempts": 6, "delays_ms": []int{100, 300, 1000}}},
	{Name: "ordered", Ordered: true, Settings: map[string]any{"lease_ms": 2000, "attempts": -1, "delays_ms": []int{100, 300}, "key_order": true}},
	{Name: "unique", Unique: true, Attempts: 6, Goes: true, Settings: map[string]any{"lease_ms": 2000, "attempts": 6, "delays_ms": []int{200}, "unique": true}},
	{Name: "levels", Levels: 3, Settings: map[string]any{"lease_ms": 2000, "attempts": -1, "delays_ms": []int{100}, "priorities": 3}},
	{Name: "limited", Limit: 3, Settings: map[string]any{"lease_ms": 2000, "attempts": -1, "delays_ms": []int{100}, "concurrency": 3}},
	{Name: "short-lived", TTL: 2 * time.Second, Settings: map[string]any{"lease_ms": 2000, "attempts": -1, "delays_ms": []int{100}, "ttl_ms": 2000}},
	{Name: "failing", Fails: true, Attempts: 2, Goes: true, Settings: map[string]any{"lease_ms": 2000, "attempts": 2, "delays_ms": []int{100}}},
	{Name: "passing-queue", Passes: true, Attempts: 6, Settings: map[string]any{"lease_ms": 2000, "attempts": 6, "delays_ms": []int{100}}},
}

// makeQueues makes the queues that stay.
func (w *world) makeQueues(ctx context.Context) error {
	for _, q := range queues {
		if q.Passes {
			w.model.QueuePasses[q.Name] = true
			continue
		}
		if err := w.createQueue(ctx, w.brokers[0], q); err != nil {
			return fmt.Errorf("make queue %s: %w", q.Name, err)
		}
	}
	return w.createQueue(ctx, w.brokers[0], judge.WorkQueue{Name: scheduled, Settings: map[string]any{}})
}

// createQueue makes a queue.
func (w *world) createQueue(ctx context.Context, b *broker, q judge.WorkQueue) error {
	w.model.Remakes(q.Name)
	_, _, err := b.call(ctx, "POST", "/v1/queues", map[string]any{"name": q.Name, "partitions": 2, "settings": q.Settings}, nil)
	var answer *httpError
	if errors.As(err, &answer) && answer.status == http.StatusConflict {
		err = nil // an earlier try made it
	}
	if err == nil {
		w.history.Add(fmt.Sprintf("queue %s is there", q.Name), q.Name)
	}
	return err
}

// runQueues lets everybody act who has to do with queues.
func (w *world) runQueues(ctx context.Context, does func(string, func(context.Context))) {
	for nth := range 2 {
		does("queues", func(ctx context.Context) { w.enqueueAll(ctx, nth) })
		does("queues", func(ctx context.Context) { w.workQueues(ctx, nth) })
		does("queues", func(ctx context.Context) { w.workQueues(ctx, nth+2) })
		if w.postgres() {
			does("queues", func(ctx context.Context) { w.workSQL(ctx, nth) })
		}
	}
	does("queues", w.workInGo)
	does("queues", w.takeLetters)
	does("queues", w.browseQueues)
	does("queues", w.changeQueues)
	does("queues", w.passQueue)
	does("queues", w.keepSchedule)
}

// enqueueAll enqueues messages through doors chosen at random.
func (w *world) enqueueAll(ctx context.Context, nth int) {
	by := fmt.Sprintf("enqueuer%d", nth)
	random := w.random(by)
	producer, err := w.kafkaClient(w.brokers, kgo.ClientID(by), kgo.UnknownTopicRetries(3))
	if err != nil {
		w.model.Broken("B1", nil, "%s: %v", by, err)
		return
	}
	for ctx.Err() == nil {
		pause(ctx, time.Duration(random.IntN(60))*time.Millisecond)
		q := queues[random.IntN(len(queues))]
		key, unique, delay := "", "", time.Duration(0)
		if q.Ordered {
			key = fmt.Sprintf("key%d", random.IntN(6))
		}
		if q.Unique {
			unique = fmt.Sprintf("unique%d", random.IntN(12))
		}
		if !q.Ordered && random.IntN(8) == 0 {
			delay = time.Duration(random.IntN(4000)) * time.Millisecond
		}
		priority := 0
		if q.Levels > 0 {
			priority = random.IntN(q.Levels)
		}
		door := random.IntN(3)
		switch {
		case w.postgres() && unique == "" && random.IntN(4) == 0: // SQL does not tell of what a unique key refused
			door = 3
			if key != "" {
				key = by + " with SQL " + key // what SQL enqueues is carried later, in its own order
			}
		case door == 2 && (unique != "" || delay > 0):
			door = random.IntN(2) // Kafka knows neither
		}
		msg := w.model.Enqueues(q.Name, by, key, unique, delay)
		msg.Priority = priority
		switch call := context.WithoutCancel(ctx); door {
		case 0:
			w.enqueueHTTP(call, w.brokers[random.IntN(2)], msg)
		case 1:
			said := w.embedded[random.IntN(2)].ask(call, order{Do: "enqueue", Topic: q.Name, Key: key, Name: unique, Session: delay, N: priority, Values: []string{msg.Value}})
			w.model.Enqueued(msg, said.Outcome, said.State, said.Once)
		case 2:
			w.enqueueKafka(call, producer, msg)
		case 3:
			w.enqueueSQL(call, random, msg)
		}
		w.counts.add("messages enqueued, " + msg.Outcome.String() + ", in " + q.Name)
	}
}

func (w *world) enqueueHTTP(ctx context.Context, b *broker, msg *judge.Message) {
	query := "?"
	for name, value := range map[string]string{"key": msg.Key, "unique": msg.Unique} {
		if value != "" {
			query += name + "=" + value + "&"
		}
	}
	if msg.Priority > 0 {
		query += fmt.Sprintf("priority=%d&", msg.Priority)
	}
	if msg.Delay > 0 {
		query += fmt.Sprintf("delay_ms=%d", msg.Delay.Milliseconds())
	}
	body, o, err := b.call(ctx, "POST", "/v1/queues/"+msg.Queue+"/messages"+strings.TrimRight(query, "?&"), []byte(msg.Value), nil)
	var at struct {
		ID       string
		Repeated bool
	}
	if o == judge.Done && json.Unmarshal(body, &at) != nil {
		o = judge.Unknown
	}
	if err != nil {
		w.history.Add(fmt.Sprintf("%s was not enqueued: %v", msg.Value, err), msg.Queue)
	}
	w.model.Enqueued(msg, o, at.ID, at.Repeated)
}

func (w *world) enqueueKafka(ctx context.Context, client *kgo.Client, msg *judge.Message) {
	rec := &kgo.Record{Topic: msg.Queue, Value: []byte(msg.Value)}
	if msg.Key != "" {
		rec.Key = []byte(msg.Key)
	}
	o := judge.Done
	if err := client.ProduceSync(ctx, rec).FirstErr(); err != nil {
		o = judge.Unknown
	}
	w.model.Enqueued(msg, o, "", false)
}

// claimed is a message as a claim over HTTP answers it.
type claimed struct {
	ID, Receipt, Value string
	Attempt            int
	Until              int64
}

// claim asks for messages.
func (w *world) claim(ctx context.Context, b *broker, q judge.WorkQueue, worker string, most int, wait time.Duration) ([]*judge.Grant, error) {
	asked := w.now()
	body, _, err := b.call(ctx, "POST", "/v1/queues/"+q.Name+"/claim",
		map[string]any{"max": most, "wait_ms": wait.Milliseconds(), "lease_ms": leaseOfQueues.Milliseconds(), "worker": worker}, nil)
	var answer struct{ Messages []claimed }
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	var got []*judge.Grant
	for _, c := range answer.Messages {
		g := &judge.Grant{Receipt: c.Receipt, Attempt: c.Attempt, Asked: asked, Until: c.Until, Lease: leaseOfQueues}
		if g = w.model.Grants(q, worker, g, c.Value, c.ID); g != nil {
			got = append(got, g)
		}
	}
	w.counts.addN("messages claimed over HTTP from "+q.Name, len(got))
	return got, err
}

// answer answers for a message: ack, nack, reject or extend.
func (w *world) answer(ctx context.Context, b *broker, q judge.WorkQueue, g *judge.Grant, verb string, delay time.Duration) (o judge.Outcome) {
	body := map[string]any{"receipts": []string{g.Receipt}}
	path, lease := verb, time.Duration(0)
	switch verb {
	case "nack":
		body["error"], body["delay_ms"] = "it fails now and then", delay.Milliseconds()
	case "reject":
		path, body["reject"] = "nack", true
	case "extend":
		lease = leaseOfQueues
		body["lease_ms"] = lease.Milliseconds()
	}
	a := w.model.Answers(g, verb, delay, lease)
	text, o, err := b.call(ctx, "POST", "/v1/queues/"+q.Name+"/"+path, body, nil)
	var answer struct {
		Results []struct{ Status int }
		Done    bool // of a problem: the receipt is refused, and its message is done
	}
	wrong := json.Unmarshal(text, &answer)
	switch {
	case o == judge.Done && (wrong != nil || len(answer.Results) != 1 || answer.Results[0].Status != http.StatusNoContent):
		o = judge.Unknown
	case o == judge.Unknown:
		answer.Done = false
	}
	if err != nil {
		w.history.Add(fmt.Sprintf("%s could not %s %s: %v", g.Worker, verb, g.Message.Value, err), q.Name)
	}
	w.model.Answered(g, a, o, answer.Done)
	w.counts.add(fmt.Sprintf("%ss %v", verb, o))
	return o
}

// workQueues works all queues over HTTP: as it should, mostly; and now and then as a worker that is
// slow, goes away, or answers twice.
func (w *world) workQueues(ctx context.Context, nth int) {
	worker := fmt.Sprintf("worker%d", nth)
	random := w.random(worker)
	for ctx.Err() == nil {
		q := queues[random.IntN(len(queues))]
		got, err := w.claim(ctx, w.brokers[random.IntN(2)], q, worker, 1+random.IntN(8), time.Duration(random.IntN(3))*200*time.Millisecond)
		if err != nil {
			pause(ctx, 100*time.Millisecond)
		}
		for _, g := range got {
			w.handleMessage(context.WithoutCancel(ctx), random, q, g)
		}
	}
}

func (w *world) handleMessage(ctx context.Context, random *rand.Rand, q judge.WorkQueue, g *judge.Grant) {
	b := w.brokers[random.IntN(2)]
	switch n := random.IntN(40); {
	case n < 2: // it dies with the message
	case n == 2: // it stands still past its lease, and answers all the same
		pause(ctx, leaseOfQueues+time.Duration(random.IntN(800))*time.Millisecond)
		w.answer(ctx, b, q, g, []string{"ack", "nack", "extend"}[random.IntN(3)], 0)
	case n < 5:
		w.answer(ctx, b, q, g, "extend", 0)
		pause(ctx, time.Duration(random.IntN(1500))*time.Millisecond)
		w.answer(ctx, b, q, g, "ack", 0)
	case n < 9:
		w.answer(ctx, b, q, g, "nack", time.Duration(random.IntN(600))*time.Millisecond)
	case n == 9 && q.Attempts > 0 || n < 24 && q.Fails:
		w.answer(ctx, b, q, g, "reject", 0)
	case n == 10 && w.postgres(): // a receipt is good at every door
		w.answerSQL(ctx, random, g)
	default:
		if w.answer(ctx, b, q, g, "ack", 0) != judge.Refused && random.IntN(10) == 0 { // and again, as after an answer that was lost
			w.answer(ctx, w.brokers[random.IntN(2)], q, g, "ack", 0)
		}
	}
}

// workInGo keeps a Go worker in each program with an embedded log.
func (w *world) workInGo(ctx context.Context) {
	working := map[string]bool{}
	for ctx.Err() == nil {
		for _, e := range w.embedded {
			for _, q := range queues {
				if id := e.id() + q.Name; q.Goes && !working[id] {
					working[id] = e.ask(ctx, order{Do: "work", Topic: q.Name, Name: e.name, Session: leaseOfQueues}).Outcome == judge.Done
				}
			}
		}
		pause(ctx, 300*time.Millisecond)
	}
}

// hearWorker takes what the handlers of Go workers say: that they have a message, and what they
// answer for it. When they do so is not known.
func (w *world) hearWorker(said judge.Word) {
	j := said.Job
	i := slices.IndexFunc(queues, func(q judge.WorkQueue) bool { return q.Name == j.Queue })
	if j.Answer == "" {
		g := &judge.Grant{Receipt: j.Receipt, InGo: true, Attempt: j.Attempt, Lease: leaseOfQueues}
		w.model.Grants(queues[i], said.Consumer, g, j.Value, j.ID)
		w.counts.add("messages given to Go workers of " + j.Queue)
		return
	}
	w.model.AnsweredInGo(j, said.Outcome)
	if j.InTx && said.Outcome != judge.Pending {
		w.counts.add("acks in a transaction of a Go worker's " + said.Outcome.String())
	}
}

// changeQueues pauses queues and lets them go on, and looks at them.
func (w *world) changeQueues(ctx context.Context) {
	random := w.random("queue changes")
	for ctx.Err() == nil {
		pause(ctx, time.Duration(500+random.IntN(3000))*time.Millisecond)
		b, q := w.brokers[random.IntN(2)], queues[random.IntN(len(queues)-1)] // those that stay
		switch random.IntN(4) {
		case 0:
			if _, o, _ := b.call(ctx, "POST", "/v1/queues/"+q.Name+"/pause", nil, nil); o == judge.Done {
				w.model.Pauses(q.Name)
				w.counts.add("queues paused")
			}
			pause(ctx, time.Duration(random.IntN(1500))*time.Millisecond)
			w.resumeQueue(context.WithoutCancel(ctx), q)
		case 1:
			_, _, _ = b.call(ctx, "GET", "/v1/queues/"+q.Name, nil, nil)
		case 2:
			_, _, _ = b.call(ctx, "GET", "/v1/queues/"+q.Name+"/messages?max=20", nil, nil)
		case 3:
			_, _, _ = b.call(ctx, "GET", "/v1/queues", nil, nil)
		}
	}
}

// resumeQueue resumes a queue, however often that must be tried.
func (w *world) resumeQueue(ctx context.Context, q judge.WorkQueue) {
	w.model.ResumesQueue(q.Name)
	for i := range triesMax {
		if _, o, _ := w.brokers[i%2].call(ctx, "POST", "/v1/queues/"+q.Name+"/resume", nil, nil); o == judge.Done {
			return
		}
		pause(ctx, 300*time.Millisecond)
	}
}

// passQueue makes a queue, purges it, deletes it, and makes it anew, with the same topic or another
// of its name.
func (w *world) passQueue(ctx context.Context) {
	random := w.random("lifecycle of a queue")
	for _, q := range queues {
		for q.Passes && ctx.Err() == nil {
			if err := w.createQueue(ctx, w.brokers[random.IntN(2)], q); err != nil {
				pause(ctx, 500*time.Millisecond)
				continue
			}
			w.counts.add("queues made")
			for range 1 + random.IntN(3) {
				pause(ctx, time.Duration(1000+random.IntN(4000))*time.Millisecond)
				if ctx.Err() != nil {
					return
				}
				began := w.now()
				if _, o, _ := w.brokers[random.IntN(2)].call(ctx, "POST", "/v1/queues/"+q.Name+"/purge", nil, nil); o == judge.Done {
					w.model.Purges(q.Name, began)
					w.counts.add("queues purged")
				}
			}
			_, _, err := w.brokers[random.IntN(2)].call(ctx, "DELETE", "/v1/queues/"+q.Name, nil, nil)
			w.history.Add(fmt.Sprintf("queue %s was deleted: %v", q.Name, err), q.Name)
			if random.IntN(2) == 0 {
				_, _, err := w.brokers[random.IntN(2)].call(ctx, "DELETE", "/v1/topics/"+q.Name, nil, nil)
				w.history.Add(fmt.Sprintf("the topic of queue %s was deleted: %v", q.Name, err), q.Name)
			}
		}
	}
}

// finishQueues works all queues that stay until nothing is left in them, and judges what became of
// their messages.
func (w *world) finishQueues(ctx context.Context) error {
	if !w.opt.does("queues") {
		return nil
	}
	log, err := weir.Open(ctx, w.url, weir.Options{Logger: quiet})
	if err != nil {
		return err
	}
	defer log.Close(ctx)
	for _, q := range queues {
		if q.Passes {
			continue
		}
		w.resumeQueue(ctx, q)
		if err := w.finishQueue(ctx, log, q); err != nil {
			return fmt.Errorf("finish queue %s: %w", q.Name, err)
		}
		w.model.JudgeQueue(q)
	}
	return w.judgeTicks(ctx)
}

// finishQueue acknowledges messages until each one is done, dead or discarded. While claims still
// get messages the letters are not counted, for that takes long.
func (w *world) finishQueue(ctx context.Context, log *weir.Log, q judge.WorkQueue) error {
	b := w.brokers[0]
	least, late := 1<<30, time.Now().Add(drainMax)
	for ctx.Err() == nil {
		got, _ := w.claim(ctx, b, q, "the last worker", 100, 200*time.Millisecond)
		for _, g := range got {
			w.answer(ctx, b, q, g, "ack", 0)
		}
		if len(got) > 0 && time.Now().Before(late) {
			continue
		}
		if err := w.countLetters(ctx, b, log, q); err != nil {
			return err
		}
		if w.postgres() {
			if err := w.countWorked(ctx); err != nil {
				return err
			}
		}
		left := w.model.Unsettled(q.Name)
		if len(left) == 0 && len(got) == 0 {
			return nil
		}
		if len(left) < least {
			least, late = len(left), time.Now().Add(drainMax)
		}
		if time.Now().After(late) {
			if len(left) == 0 {
				return fmt.Errorf("it gives out messages for ever, the last is %s", got[0].Message.Value)
			}
			is, _, err := b.call(ctx, "GET", "/v1/queues/"+q.Name+"/messages/"+left[0].ID, nil, nil)
			w.model.Broken("Q1", []string{q.Name}, "%d messages of queue %s were enqueued, and for %v after the last fault nobody was given them; the first is %s, message %q, with %d claims; the queue says of it: %s %v",
				len(left), q.Name, drainMax, left[0].Value, left[0].ID, len(left[0].Grants), is, err)
			return nil
		}
	}
	return nil
}
