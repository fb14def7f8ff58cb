package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/judge"
)

// topics are those that are there from the beginning, and how many partitions each has.
var topics = map[string]int{"events": 3, "orders": 1}

// names lists them in an order.
var names = []string{"events", "orders"}

// groups are consumer groups, and what their members read.
var groups = map[string][]string{"billing": {"events", "orders"}, "audit": {"events"}, online: {"events"}}

// makeAll makes topics, queues and the category before anything is done to anybody.
func (w *world) makeAll() {
	for _, p := range w.processes {
		p.starting.Wait()
	}
	for _, name := range names {
		l := w.model.Begins(name, 0)
		w.until(func(ctx context.Context, p *life) error {
			return p.log.EnsureTopic(ctx, weir.Topic{Name: name, Partitions: topics[name]})
		})
		w.until(func(ctx context.Context, p *life) error {
			t, err := p.parts.Log.TopicNow(ctx, name)
			if err == nil {
				w.model.Born(l, t.ID)
			}
			return err
		})
	}
	l := w.model.Begins(brief, briefKeeps)
	for _, name := range []string{brief, compacted} {
		w.until(func(ctx context.Context, p *life) error {
			if err := p.log.EnsureTopic(ctx, weir.Topic{Name: name, Partitions: 1, Config: settings[name]}); err != nil {
				return err
			}
			t, err := p.parts.Log.TopicNow(ctx, name)
			if err == nil && name == brief {
				w.model.Born(l, t.ID)
			}
			return err
		})
	}
	w.makeQueues()
	w.makeCategory()
	w.ledger.make()
}

// until tries something until it is done.
func (w *world) until(do func(context.Context, *life) error) {
	for i := 0; ; i++ {
		if p := w.processes[i%len(w.processes)].live(); p != nil {
			ctx, cancel := asks()
			err := do(ctx, p)
			cancel()
			if err == nil {
				return
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// joins lets a process that has just started do what each does: consume, project.
func (w *world) joins(p *life) {
	w.consume(p)
	w.project(p)
	w.manage(p)
	w.ledger.consume(p)
}

func (w *world) publishers() {
	for n := range 3 {
		w.act(fmt.Sprintf("publisher%d", n), w.publish)
	}
	w.act("publisher-once", w.publishOnce)
}

// publish publishes single events and several, in order.
func (w *world) publish(ctx context.Context, random *rand.Rand) {
	session := fmt.Sprintf("p%d", random.IntN(1e9))
	for ctx.Err() == nil {
		sleep(ctx, upTo(random, 2*paceOf))
		p, topic, n := w.any(random), names[random.IntN(len(names))], 1+random.IntN(3)
		if p == nil {
			continue
		}
		records := w.model.Invoke(session, topic, n, false)
		said := w.publishTo(p, topic, records, "")
		w.acks(p, topic, records, said)
		w.model.End(records, said.Outcome, said.Places)
	}
}

// paceOf is about how long an actor waits before it acts again.
const paceOf = time.Second

func (w *world) publishTo(p *life, topic string, records []*judge.Record, key string) judge.Word {
	var events []weir.Event
	for _, r := range records {
		events = append(events, weir.Event{Topic: topic, Value: []byte(r.Value)})
	}
	ctx, cancel := asks()
	defer cancel()
	if key == "" {
		return p.said(judge.Published(p.log.Publish(ctx, events...)))
	}
	places, _, err := p.log.PublishOnce(ctx, key, events...)
	return p.said(judge.Published(places, err))
}

// publishOnce tries a publication under one key until it is known to be there, at any process.
func (w *world) publishOnce(ctx context.Context, random *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		sleep(ctx, upTo(random, 2*paceOf))
		topic := names[random.IntN(len(names))]
		records := w.model.Invoke("once", topic, 1+random.IntN(2), false)
		said := judge.Word{Outcome: judge.Refused}
		for try := 0; try == 0 || said.Outcome == judge.Unknown && ctx.Err() == nil; try++ {
			if p := w.any(random); p != nil {
				told := w.publishTo(p, topic, records, fmt.Sprintf("key%d", n))
				if told.Outcome == judge.Refused && said.Outcome == judge.Unknown {
					told.Outcome = judge.Unknown // an earlier try may have been carried out
				}
				said = told
			}
			sleep(ctx, upTo(random, paceOf))
		}
		w.model.End(records, said.Outcome, said.Places)
	}
}

// consume keeps a member of each group in a process.
func (w *world) consume(p *life) {
	random := w.random("members of " + p.name)
	for _, group := range []string{"audit", "billing"} {
		slow := random.IntN(4) == 0
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		sub := weir.Subscription{
			Group: group, Topics: groups[group], Name: p.name, Session: 3 * time.Second, CommitEvery: time.Second,
			Retry: weir.Retry{Attempts: -1, First: 100 * time.Millisecond, Max: 2 * time.Second}, DeadLetter: weir.Halt,
			Concurrency: 1, // so that one call at a time draws from own
			Handler: func(ctx context.Context, e weir.Event) error {
				if slow && own.IntN(20) == 0 {
					sleep(ctx, upTo(own, 6*time.Second))
				}
				if own.IntN(30) == 0 {
					return errors.New("it fails now and then")
				}
				if p.host.isDead() {
					return errLost
				}
				w.model.Deliver(group, p.name, false, judge.SightsOf(e)...)
				return nil
			},
		}
		w.tries(p, "consume", func(ctx context.Context) error { _, err := p.log.Consume(ctx, sub); return err })
	}
}

// tries tries something in a process until it is done or the process has ended.
func (w *world) tries(p *life, what string, do func(context.Context) error) {
	w.late.Go(func() {
		for !p.host.isDead() {
			ctx, cancel := asks()
			err := do(ctx)
			cancel()
			if err == nil || errors.Is(err, weir.ErrClosed) {
				return
			}
			w.history.Add(fmt.Sprintf("%s: %s: %v", p.name, what, err))
			time.Sleep(500 * time.Millisecond)
		}
	})
}

// readers follow topics from their beginning, each in one process after the other.
func (w *world) readers() {
	for _, name := range names {
		w.act("reader of "+name, func(ctx context.Context, random *rand.Rand) {
			r := &judge.Reader{Who: "reader of " + name}
			r.Begin(w.model.Living(name))
			for ctx.Err() == nil {
				sleep(ctx, upTo(random, 3*paceOf))
				if p := w.any(random); p != nil {
					w.follow(p, r, name, int32(random.IntN(topics[name])))
				}
			}
		})
	}
}

// follow reads what a reader has not read of a partition.
func (w *world) follow(p *life, r *judge.Reader, topic string, partition int32) {
	ctx, cancel := asks()
	defer cancel()
	for e, err := range p.log.Read(ctx, weir.TopicPartition{Topic: topic, Partition: partition}, weir.AtOffset(r.Next[partition])) {
		if err != nil || p.host.isDead() {
			return
		}
		w.model.Follow(r, judge.SightsOf(e)[0])
	}
}

// judge waits until everything is done that must be, and compares what the store has with what was
// answered.
func (w *world) judge() {
	begun := time.Now()
	w.history.Add("all must be done within " + settleMax.String())
	for _, p := range w.processes {
		p.starting.Wait()
	}
	if w.first() == nil {
		return // nothing runs, and that was told
	}
	if w.ledger != nil {
		w.ledger.judge()
		return
	}
	var why string
	for time.Since(begun) < settleMax {
		if why = w.lagging(); why == "" {
			break
		}
		time.Sleep(time.Second)
	}
	if why != "" {
		w.model.Broken("G8", nil, "%v after the last fault: %s", settleMax, why)
	}
	w.judgeTopics()
	for _, p := range w.processes {
		if l := p.live(); l != nil {
			w.judgeEpochs(l)
		}
	}
	w.judgeKeys(w.first())
	w.judgeQueues()
	w.judgeTicks(w.first())
	w.judgeStreams()
}

// lagging says what groups have not handled; "": nothing.
func (w *world) lagging() (why string) {
	p := w.first()
	if p == nil {
		return "the process does not run"
	}
	ctx, cancel := asks()
	defer cancel()
	if !w.acts("publisher") {
		return ""
	}
	for _, name := range []string{"audit", "billing"} {
		g, err := p.log.Group(ctx, name)
		if err != nil {
			return err.Error()
		}
		if want := 0; g.Lag > 0 || len(g.Offsets) == 0 {
			return fmt.Sprintf("group %s: %+v %d", name, g, want)
		}
	}
	return ""
}

// acts says whether an actor is in the history, or some of a kind whose names begin so.
func (w *world) acts(name string) bool {
	return len(w.opt.Only) == 0 || slices.ContainsFunc(w.opt.Only, func(only string) bool {
		return strings.HasPrefix(name, only) || strings.HasPrefix(only, name)
	})
}

// judgeTopics is L1 to L5 and G1 at the end.
func (w *world) judgeTopics() {
	p := w.first()
	for _, l := range w.model.Alive() {
		var held judge.Held
		err := patiently(func(ctx context.Context) (err error) {
			held, err = judge.ReadAll(ctx, p.log, l)
			return err
		})
		if err != nil && l.Name == brief { // retention may have dropped what was to be read next
			continue
		}
		if err != nil {
			w.model.Broken("L5", nil, "read all of %s at the end: %v", l, err)
			continue
		}
		ctx, cancel := asks()
		w.model.JudgeHeld(held)
		for name, read := range groups {
			if !slices.Contains(read, l.Name) {
				continue
			}
			g, err := p.log.Group(ctx, name)
			if name == online && errors.Is(err, weir.ErrUnknownGroup) {
				continue
			}
			if err != nil {
				w.model.Broken("G8", nil, "group %s at the end: %v", name, err)
				continue
			}
			said := map[string]int64{}
			for _, o := range g.Offsets {
				said[fmt.Sprintf("%s/%d", o.Topic, o.Partition)] = o.Committed
			}
			w.model.JudgeDelivered(name, held, said, false)
		}
		cancel()
	}
}
