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
)

// workQueue is a queue, by what is done to it.
type workQueue struct {
	name     string
	settings map[string]any
	attempts int // 0: for ever
	levels   int // of priority; 0: one
	limit    int // claims at a time; 0: any number
	ttl      time.Duration
	ordered  bool // messages have keys, and come in their order
	unique   bool // messages have unique keys
	goes     bool // Go workers work it, too
	fails    bool // most of its messages are rejected
	passes   bool // it is purged, deleted and made anew
}

const leaseOfQueues = 2 * time.Second

var queues = []workQueue{
	{name: "jobs", attempts: 6, goes: true, settings: map[string]any{"lease_ms": 2000, "attempts": 6, "delays_ms": []int{100, 300, 1000}}},
	{name: "ordered", ordered: true, settings: map[string]any{"lease_ms": 2000, "attempts": -1, "delays_ms": []int{100, 300}, "key_order": true}},
	{name: "unique", unique: true, attempts: 6, goes: true, settings: map[string]any{"lease_ms": 2000, "attempts": 6, "delays_ms": []int{200}, "unique": true}},
	{name: "levels", levels: 3, settings: map[string]any{"lease_ms": 2000, "attempts": -1, "delays_ms": []int{100}, "priorities": 3}},
	{name: "limited", limit: 3, settings: map[string]any{"lease_ms": 2000, "attempts": -1, "delays_ms": []int{100}, "concurrency": 3}},
	{name: "short-lived", ttl: 2 * time.Second, settings: map[string]any{"lease_ms": 2000, "attempts": -1, "delays_ms": []int{100}, "ttl_ms": 2000}},
	{name: "failing", fails: true, attempts: 2, goes: true, settings: map[string]any{"lease_ms": 2000, "attempts": 2, "delays_ms": []int{100}}},
	{name: "passing-queue", passes: true, attempts: 6, settings: map[string]any{"lease_ms": 2000, "attempts": 6, "delays_ms": []int{100}}},
}

// makeQueues makes the queues that stay.
func (w *world) makeQueues(ctx context.Context) error {
	for _, q := range queues {
		if q.passes {
			w.model.queuePasses[q.name] = true
			continue
		}
		if err := w.createQueue(ctx, w.brokers[0], q); err != nil {
			return fmt.Errorf("make queue %s: %w", q.name, err)
		}
	}
	return w.createQueue(ctx, w.brokers[0], workQueue{name: scheduled, settings: map[string]any{}})
}

// createQueue makes a queue.
func (w *world) createQueue(ctx context.Context, b *broker, q workQueue) error {
	w.model.remakes(q.name)
	_, _, err := b.call(ctx, "POST", "/v1/queues", map[string]any{"name": q.name, "partitions": 2, "settings": q.settings}, nil)
	var answer *httpError
	if errors.As(err, &answer) && answer.status == http.StatusConflict {
		err = nil // an earlier try made it
	}
	if err == nil {
		w.history.add(fmt.Sprintf("queue %s is there", q.name), q.name)
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
		w.model.broken("B1", nil, "%s: %v", by, err)
		return
	}
	for ctx.Err() == nil {
		pause(ctx, time.Duration(random.IntN(60))*time.Millisecond)
		q := queues[random.IntN(len(queues))]
		key, unique, delay := "", "", time.Duration(0)
		if q.ordered {
			key = fmt.Sprintf("key%d", random.IntN(6))
		}
		if q.unique {
			unique = fmt.Sprintf("unique%d", random.IntN(12))
		}
		if !q.ordered && random.IntN(8) == 0 {
			delay = time.Duration(random.IntN(4000)) * time.Millisecond
		}
		priority := 0
		if q.levels > 0 {
			priority = random.IntN(q.levels)
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
		msg := w.model.enqueues(q.name, by, key, unique, delay)
		msg.priority = priority
		switch call := context.WithoutCancel(ctx); door {
		case 0:
			w.enqueueHTTP(call, w.brokers[random.IntN(2)], msg)
		case 1:
			said := w.embedded[random.IntN(2)].ask(call, order{Do: "enqueue", Topic: q.name, Key: key, Name: unique, Session: delay, N: priority, Values: []string{msg.value}})
			w.model.enqueued(msg, said.Outcome, said.State, said.Once)
		case 2:
			w.enqueueKafka(call, producer, msg)
		case 3:
			w.enqueueSQL(call, random, msg)
		}
		w.counts.add("messages enqueued, " + msg.outcome.String() + ", in " + q.name)
	}
}

func (w *world) enqueueHTTP(ctx context.Context, b *broker, msg *message) {
	query := "?"
	for name, value := range map[string]string{"key": msg.key, "unique": msg.unique} {
		if value != "" {
			query += name + "=" + value + "&"
		}
	}
	if msg.priority > 0 {
		query += fmt.Sprintf("priority=%d&", msg.priority)
	}
	if msg.delay > 0 {
		query += fmt.Sprintf("delay_ms=%d", msg.delay.Milliseconds())
	}
	body, o, err := b.call(ctx, "POST", "/v1/queues/"+msg.queue+"/messages"+strings.TrimRight(query, "?&"), []byte(msg.value), nil)
	var at struct {
		ID       string
		Repeated bool
	}
	if o == done && json.Unmarshal(body, &at) != nil {
		o = unknown
	}
	if err != nil {
		w.history.add(fmt.Sprintf("%s was not enqueued: %v", msg.value, err), msg.queue)
	}
	w.model.enqueued(msg, o, at.ID, at.Repeated)
}

func (w *world) enqueueKafka(ctx context.Context, client *kgo.Client, msg *message) {
	rec := &kgo.Record{Topic: msg.queue, Value: []byte(msg.value)}
	if msg.key != "" {
		rec.Key = []byte(msg.key)
	}
	o := done
	if err := client.ProduceSync(ctx, rec).FirstErr(); err != nil {
		o = unknown
	}
	w.model.enqueued(msg, o, "", false)
}

// claimed is a message as a claim over HTTP answers it.
type claimed struct {
	ID, Receipt, Value string
	Attempt            int
	Until              int64
}

// claim asks for messages.
func (w *world) claim(ctx context.Context, b *broker, q workQueue, worker string, most int, wait time.Duration) ([]*grant, error) {
	asked := w.now()
	body, _, err := b.call(ctx, "POST", "/v1/queues/"+q.name+"/claim",
		map[string]any{"max": most, "wait_ms": wait.Milliseconds(), "lease_ms": leaseOfQueues.Milliseconds(), "worker": worker}, nil)
	var answer struct{ Messages []claimed }
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	var got []*grant
	for _, c := range answer.Messages {
		g := &grant{receipt: c.Receipt, attempt: c.Attempt, asked: asked, until: c.Until, lease: leaseOfQueues}
		if g = w.model.grants(q, worker, g, c.Value, c.ID); g != nil {
			got = append(got, g)
		}
	}
	w.counts.addN("messages claimed over HTTP from "+q.name, len(got))
	return got, err
}

// answer answers for a message: ack, nack, reject or extend.
func (w *world) answer(ctx context.Context, b *broker, q workQueue, g *grant, verb string, delay time.Duration) (o outcome) {
	body := map[string]any{"receipts": []string{g.receipt}}
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
	a := w.model.answers(g, verb, delay, lease)
	text, o, err := b.call(ctx, "POST", "/v1/queues/"+q.name+"/"+path, body, nil)
	var answer struct {
		Results []struct {
			Status  int
			Problem struct{ Done bool }
		}
	}
	over := false
	if o == done {
		switch err := json.Unmarshal(text, &answer); {
		case err != nil || len(answer.Results) != 1:
			o = unknown
		case answer.Results[0].Status == http.StatusNoContent:
		case answer.Results[0].Status < 500 || answer.Results[0].Status == http.StatusServiceUnavailable:
			o, over = refused, answer.Results[0].Problem.Done
		default:
			o = unknown
		}
	}
	if err != nil {
		w.history.add(fmt.Sprintf("%s could not %s %s: %v", g.worker, verb, g.message.value, err), q.name)
	}
	w.model.answered(g, a, o, over)
	w.counts.add(fmt.Sprintf("%ss %v", verb, o))
	return o
}

// workQueues works all queues over HTTP: as it should, mostly; and now and then as a worker that is slow, goes away, or answers twice.
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

func (w *world) handleMessage(ctx context.Context, random *rand.Rand, q workQueue, g *grant) {
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
	case n == 9 && q.attempts > 0 || n < 24 && q.fails:
		w.answer(ctx, b, q, g, "reject", 0)
	case n == 10 && w.postgres(): // a receipt is good at every door
		w.answerSQL(ctx, random, g)
	default:
		if w.answer(ctx, b, q, g, "ack", 0) != refused && random.IntN(10) == 0 { // and again, as after an answer that was lost
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
				if id := e.id() + q.name; q.goes && !working[id] {
					working[id] = e.ask(ctx, order{Do: "work", Topic: q.name, Name: e.name, Session: leaseOfQueues}).Outcome == done
				}
			}
		}
		pause(ctx, 300*time.Millisecond)
	}
}

// hearWorker takes what the handlers of Go workers say: that they have a message, and what they answer for it. When they do so is not known.
func (w *world) hearWorker(said word) {
	j := said.Job
	i := slices.IndexFunc(queues, func(q workQueue) bool { return q.name == j.Queue })
	if j.Answer == "" {
		g := &grant{receipt: j.Receipt, inGo: true, attempt: j.Attempt, lease: leaseOfQueues}
		w.model.grants(queues[i], said.Consumer, g, j.Value, j.ID)
		w.counts.add("messages given to Go workers of " + j.Queue)
		return
	}
	w.model.answeredInGo(j, said.Outcome)
	if j.InTx && said.Outcome != pending {
		w.counts.add("acks in a transaction of a Go worker's " + said.Outcome.String())
	}
}

// answeredInGo notes that a handler is about to answer for a message; whether that is taken is not known, nor when. Of a transaction it tells twice: before it,
// and what became of it.
func (m *model) answeredInGo(j *job, o outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	msg := m.messages[j.Value]
	if msg == nil {
		return
	}
	m.history.add(fmt.Sprintf("a Go worker is about to %s %s, attempt %d, in a transaction: %v %v", j.Answer, j.Value, j.Attempt, j.InTx, o), j.Queue)
	for _, g := range msg.grants[recordOf(j.Receipt)] {
		switch {
		case g.receipt != j.Receipt:
		case j.InTx && o != pending:
			last := g.answers[len(g.answers)-1]
			last.outcome, last.ended = o, m.now()
		default:
			g.answers = append(g.answers, &answered{verb: j.Answer, outcome: unknown, inSQL: j.InTx})
		}
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
			if _, o, _ := b.call(ctx, "POST", "/v1/queues/"+q.name+"/pause", nil, nil); o == done {
				w.model.pauses(q.name)
				w.counts.add("queues paused")
			}
			pause(ctx, time.Duration(random.IntN(1500))*time.Millisecond)
			w.resumeQueue(context.WithoutCancel(ctx), q)
		case 1:
			_, _, _ = b.call(ctx, "GET", "/v1/queues/"+q.name, nil, nil)
		case 2:
			_, _, _ = b.call(ctx, "GET", "/v1/queues/"+q.name+"/messages?max=20", nil, nil)
		case 3:
			_, _, _ = b.call(ctx, "GET", "/v1/queues", nil, nil)
		}
	}
}

// resumeQueue resumes a queue, however often that must be tried.
func (w *world) resumeQueue(ctx context.Context, q workQueue) {
	w.model.resumesQueue(q.name)
	for i := range triesMax {
		if _, o, _ := w.brokers[i%2].call(ctx, "POST", "/v1/queues/"+q.name+"/resume", nil, nil); o == done {
			return
		}
		pause(ctx, 300*time.Millisecond)
	}
}

// passQueue makes a queue, purges it, deletes it, and makes it anew, with the same topic or another of its name.
func (w *world) passQueue(ctx context.Context) {
	random := w.random("lifecycle of a queue")
	for _, q := range queues {
		for q.passes && ctx.Err() == nil {
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
				if _, o, _ := w.brokers[random.IntN(2)].call(ctx, "POST", "/v1/queues/"+q.name+"/purge", nil, nil); o == done {
					w.model.purges(q.name, began)
					w.counts.add("queues purged")
				}
			}
			_, _, err := w.brokers[random.IntN(2)].call(ctx, "DELETE", "/v1/queues/"+q.name, nil, nil)
			w.history.add(fmt.Sprintf("queue %s was deleted: %v", q.name, err), q.name)
			if random.IntN(2) == 0 {
				_, _, err := w.brokers[random.IntN(2)].call(ctx, "DELETE", "/v1/topics/"+q.name, nil, nil)
				w.history.add(fmt.Sprintf("the topic of queue %s was deleted: %v", q.name, err), q.name)
			}
		}
	}
}

// finishQueues works all queues that stay until nothing is left in them, and judges what became of their messages.
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
		if q.passes {
			continue
		}
		w.resumeQueue(ctx, q)
		if err := w.finishQueue(ctx, log, q); err != nil {
			return fmt.Errorf("finish queue %s: %w", q.name, err)
		}
		w.model.judgeQueue(q)
	}
	return w.judgeTicks(ctx)
}

// finishQueue acknowledges messages until each one is done, dead or discarded. What was given out is not counted, for that takes long.
func (w *world) finishQueue(ctx context.Context, log *weir.Log, q workQueue) error {
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
		left := w.model.unsettled(q.name)
		if len(left) == 0 && len(got) == 0 {
			return nil
		}
		if len(left) < least {
			least, late = len(left), time.Now().Add(drainMax)
		}
		if time.Now().After(late) {
			if len(left) == 0 {
				return fmt.Errorf("it gives out messages for ever, the last is %s", got[0].message.value)
			}
			is, _, err := b.call(ctx, "GET", "/v1/queues/"+q.name+"/messages/"+left[0].id, nil, nil)
			w.model.broken("Q1", []string{q.name}, "%d messages of queue %s were enqueued, and for %v after the last fault nobody was given them; the first is %s, message %q, with %d claims; the queue says of it: %s %v",
				len(left), q.name, drainMax, left[0].value, left[0].id, len(left[0].grants), is, err)
			return nil
		}
	}
	return nil
}
