package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/judge"
	"github.com/weir-log/weir/use/queue"
)

const lease = 2 * time.Second

// workQueue is a queue, and what its settings are in the words of the product.
type workQueue struct {
	judge.WorkQueue
	set queue.Settings
}

var always = []time.Duration{100 * time.Millisecond}

var workQueues = []workQueue{
	{judge.WorkQueue{Name: "jobs", Attempts: 6}, queue.Settings{Attempts: 6, Delays: []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second}}},
	{judge.WorkQueue{Name: "ordered", Ordered: true}, queue.Settings{Attempts: -1, Delays: always, KeyOrder: true}},
	{judge.WorkQueue{Name: "unique", Unique: true, Attempts: 6}, queue.Settings{Attempts: 6, Delays: always, Unique: true}},
	{judge.WorkQueue{Name: "levels", Levels: 3}, queue.Settings{Attempts: -1, Delays: always, Priorities: 3}},
	{judge.WorkQueue{Name: "limited", Limit: 3}, queue.Settings{Attempts: -1, Delays: always, Concurrency: 3}},
	{judge.WorkQueue{Name: "short-lived", TTL: 2 * time.Second}, queue.Settings{Attempts: -1, Delays: always, TTL: 2 * time.Second}},
	{judge.WorkQueue{Name: "failing", Fails: true, Attempts: 2}, queue.Settings{Attempts: 2, Delays: always}},
}

func (w *world) makeQueues() {
	w.until(func(ctx context.Context, p *life) error {
		return p.log.EnsureQueue(ctx, weir.Queue{Name: scheduled, Partitions: 1})
	})
	for _, q := range workQueues {
		w.model.Remakes(q.Name)
		w.until(func(ctx context.Context, p *life) error {
			spec := queue.Spec{Name: q.Name, Partitions: 2, Settings: q.set}
			spec.Settings.Lease = lease
			if _, err := p.parts.Queues.Open(ctx, q.Name); err == nil {
				return nil
			}
			_, err := p.parts.Queues.Create(ctx, spec)
			return err
		})
	}
}

func (w *world) queues() {
	for n := range 2 {
		w.act(fmt.Sprintf("queue-sender%d", n), w.enqueue)
	}
	for n := range 3 {
		name := fmt.Sprintf("queue-worker%d", n)
		w.act(name, func(ctx context.Context, random *rand.Rand) { w.workAsClient(ctx, random, name) })
	}
	w.act("queue-letters", w.takeLetters)
	w.act("queue-schedule", w.keepSchedule)
}

// enqueue sends messages to any queue at any process.
func (w *world) enqueue(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		sleep(ctx, upTo(random, paceOf))
		p, q := w.any(random), workQueues[random.IntN(len(workQueues))]
		if p == nil {
			continue
		}
		m := weir.NewMessage{}
		if q.Ordered {
			m.Key = fmt.Appendf(nil, "key%d", random.IntN(4))
		}
		if q.Unique {
			m.Unique = fmt.Sprintf("unique%d", random.IntN(6))
		}
		if !q.Ordered && random.IntN(6) == 0 {
			m.Delay = upTo(random, 8*time.Second)
		}
		if q.Levels > 0 {
			m.Priority = random.IntN(q.Levels)
		}
		msg := w.model.Enqueues(q.Name, "s", string(m.Key), m.Unique, m.Delay)
		msg.Priority = m.Priority
		m.Value = []byte(msg.Value)
		try, cancel := asks()
		at, err := p.log.Enqueue(try, q.Name, m)
		cancel()
		said := p.said(judge.OutcomeOf(err))
		if said.Outcome == judge.Done {
			said.State, said.Once = at[0].ID.String(), at[0].Repeated
		}
		w.model.Enqueued(msg, said.Outcome, said.State, said.Once)
	}
}

// claim asks a process for messages.
func (w *world) claim(p *life, q workQueue, worker string, most int, wait time.Duration) (got []*judge.Grant) {
	ctx, cancel := asks()
	defer cancel()
	asked := w.now()
	var list []queue.Message
	err := p.parts.Queues.With(ctx, q.Name, func(of *queue.Queue) (err error) {
		list, err = of.Claim(ctx, queue.Claim{Max: most, Lease: lease, Wait: wait, Worker: worker})
		return err
	})
	if p.host.isDead() {
		return nil
	}
	if err != nil {
		w.history.Add(fmt.Sprintf("%s claims from %s at %s: %v", worker, q.Name, p.name, err), q.Name)
	}
	for _, m := range list {
		g := &judge.Grant{Receipt: m.Receipt, Attempt: m.Attempt, Asked: asked, Until: m.Until.UnixMilli(), Lease: lease}
		if g = w.model.Grants(q.WorkQueue, worker, g, string(m.Value), m.ID.String()); g != nil {
			got = append(got, g)
		}
	}
	return got
}

// answer answers for a message at a process: ack, nack, reject or extend.
func (w *world) answer(p *life, q workQueue, g *judge.Grant, verb string, delay time.Duration) judge.Outcome {
	ctx, cancel := asks()
	defer cancel()
	longer := time.Duration(0)
	if verb == "extend" {
		longer = lease
	}
	a := w.model.Answers(g, verb, delay, longer)
	var results []error
	err := p.parts.Queues.With(ctx, q.Name, func(of *queue.Queue) (err error) {
		switch verb {
		case "ack":
			results, err = of.Ack(ctx, g.Receipt)
		case "extend":
			results, err = of.Extend(ctx, lease, g.Receipt)
		default:
			results, err = of.Nack(ctx, queue.Nack{Error: "it fails now and then", SetDelay: verb == "nack", Delay: delay, Reject: verb == "reject"}, g.Receipt)
		}
		return err
	})
	if err == nil && len(results) == 1 {
		err = results[0]
	}
	o := p.said(judge.OutcomeOf(err)).Outcome
	var stale *queue.StaleReceiptError
	over := errors.As(err, &stale) && stale.Done
	w.model.Answered(g, a, o, over && o == judge.Refused)
	return o
}

// workAsClient works all queues: as it should, mostly; and now and then as a worker that is slow,
// goes away, or answers twice.
func (w *world) workAsClient(ctx context.Context, random *rand.Rand, worker string) {
	for ctx.Err() == nil {
		sleep(ctx, upTo(random, paceOf))
		p, q := w.any(random), workQueues[random.IntN(len(workQueues))]
		if p == nil {
			continue
		}
		for _, g := range w.claim(p, q, worker, 1+random.IntN(4), time.Duration(random.IntN(3))*500*time.Millisecond) {
			w.handle(ctx, random, q, g)
		}
	}
}

func (w *world) handle(ctx context.Context, random *rand.Rand, q workQueue, g *judge.Grant) {
	answer := func(verb string, delay time.Duration) judge.Outcome {
		if p := w.any(random); p != nil {
			return w.answer(p, q, g, verb, delay)
		}
		return judge.Refused
	}
	switch n := random.IntN(40); {
	case n < 2: // it dies with the message
	case n == 2: // it stands still past its lease, and answers all the same
		sleep(ctx, lease+upTo(random, 800*time.Millisecond))
		answer([]string{"ack", "nack", "extend"}[random.IntN(3)], 0)
	case n < 5:
		answer("extend", 0)
		sleep(ctx, upTo(random, 1500*time.Millisecond))
		answer("ack", 0)
	case n < 9:
		answer("nack", upTo(random, 600*time.Millisecond))
	case n == 9 && q.Attempts > 0 || n < 24 && q.Fails:
		answer("reject", 0)
	default:
		if answer("ack", 0) != judge.Refused && random.IntN(10) == 0 { // and again, as after an answer that was lost
			answer("ack", 0)
		}
	}
}

// letters lists the dead letters of a queue.
func (w *world) letters(p *life, q workQueue) (list []queue.DeadLetter, err error) {
	ctx, cancel := asks()
	defer cancel()
	err = p.parts.Queues.With(ctx, q.Name, func(of *queue.Queue) error {
		list = nil
		for after := (queue.MessageID{}); ; {
			page, err := of.DeadLetters(ctx, after, 100)
			if err != nil || len(page) == 0 {
				return err
			}
			list, after = append(list, page...), page[len(page)-1].Letter
		}
	})
	return list, err
}

func seen(list []queue.DeadLetter) (letters []judge.SeenLetter) {
	for _, l := range list {
		letters = append(letters, judge.SeenLetter{Letter: l.Letter.String(), ID: l.ID.String(), Value: string(l.Value)})
	}
	return letters
}

// takeLetters redrives and discards dead letters.
func (w *world) takeLetters(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		sleep(ctx, upTo(random, 6*paceOf))
		p, q := w.any(random), workQueues[random.IntN(len(workQueues))]
		if p == nil || q.Attempts == 0 {
			continue
		}
		asked := w.now()
		list, err := w.letters(p, q)
		if err != nil || p.host.isDead() || len(list) == 0 {
			continue
		}
		w.model.Lists(q.WorkQueue, asked, seen(list))
		letter := list[random.IntN(len(list))]
		verb := []string{"redrive", "discard"}[random.IntN(2)]
		t := w.model.Takes(q.WorkQueue, verb, []string{letter.Letter.String()})
		try, cancel := asks()
		n := 0
		err = p.parts.Queues.With(try, q.Name, func(of *queue.Queue) (err error) {
			if verb == "redrive" {
				n, err = of.Redrive(try, letter)
			} else {
				n, err = of.Discard(try, letter)
			}
			return err
		})
		cancel()
		said := p.said(judge.OutcomeOf(err))
		if said.Outcome != judge.Done {
			n = 0
		}
		w.model.Taken(q.WorkQueue, t, said.Outcome, n, true, err)
	}
}

// judgeQueues acknowledges messages until each one is done, dead or discarded, and judges the
// queues.
func (w *world) judgeQueues() {
	if !w.acts("queue") {
		return
	}
	p := w.first()
	for _, q := range workQueues {
		least, late := 1<<30, time.Now().Add(settleMax)
		for {
			got := w.claim(p, q, "the last worker", 100, 500*time.Millisecond)
			for _, g := range got {
				w.answer(p, q, g, "ack", 0)
			}
			if len(got) > 0 && time.Now().Before(late) {
				continue
			}
			if err := w.countLetters(p, q); err != nil {
				w.history.Add(fmt.Sprintf("count the letters of %s: %v", q.Name, err))
			}
			left := w.model.Unsettled(q.Name)
			if len(left) == 0 {
				break
			}
			if len(left) < least {
				least, late = len(left), time.Now().Add(settleMax)
			}
			if time.Now().After(late) {
				w.model.Broken("Q1", []string{q.Name}, "%d messages of %s were enqueued, and for %v after the last fault nobody was given them; the first is %s (%s)",
					len(left), q.Name, settleMax, left[0].Value, left[0].ID)
				break
			}
			time.Sleep(time.Second)
		}
		w.model.JudgeQueue(q.WorkQueue)
	}
}

// countLetters counts of each message how often it is in its topic, its letters, and all that ever
// were.
func (w *world) countLetters(p *life, q workQueue) error {
	copies := map[string]int{}
	for _, topic := range append([]string{q.Name}, queue.TopicsOfSettings(q.Name, q.set)...) {
		if err := w.countValues(p, topic, copies); err != nil {
			return err
		}
	}
	list, err := w.letters(p, q)
	if err != nil {
		return err
	}
	ever := map[string]int{}
	if err := w.countValues(p, q.Name+".dlt", ever); err != nil {
		return err
	}
	w.model.Counts(q.WorkQueue, seen(list), ever, copies)
	return nil
}

// countValues counts how often each value is in a topic.
func (w *world) countValues(p *life, topic string, count map[string]int) error {
	ctx, cancel := asks()
	defer cancel()
	t, err := p.parts.Log.TopicNow(ctx, topic)
	if errors.Is(err, eventlog.ErrUnknownTopic) {
		return nil
	}
	if err != nil {
		return err
	}
	for n := range t.Partitions {
		for e, err := range p.log.Read(ctx, weir.TopicPartition{Topic: topic, Partition: int32(n)}, weir.Earliest) {
			if err != nil {
				return err
			}
			count[string(e.Value)]++
		}
	}
	return nil
}
