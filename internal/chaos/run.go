package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weir-log/weir/internal/judge"
)

// run is one seed. It returns what was broken.
func run(ctx context.Context, opt options, seed uint64, weir string) (_ *world, _ []judge.Violation, err error) {
	w, err := newWorld(ctx, opt, seed, weir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range w.embedded {
		e.listen = w.hear
	}
	if w.born, err = w.brokers[0].size(ctx); err != nil {
		w.close()
		return w, nil, err
	}
	if err := w.makeTopics(ctx); err != nil {
		w.close()
		return w, nil, err
	}
	if err := w.makeQueues(ctx); err != nil {
		w.close()
		return w, nil, err
	}
	if err := w.makeStreams(ctx); err != nil {
		w.close()
		return w, nil, err
	}
	length := opt.length - opt.putBackLength()
	w.perform(ctx, length, makePlan(w.random("plan"), length, opt.faults))
	if w.postgres() && len(w.model.Found()) > 0 {
		w.dumpPositions(ctx)
	}
	err = w.finalCheck(ctx)
	if err == nil && len(w.model.Found()) == 0 {
		w.judgeContent(ctx) // before checkLeaks deletes everything
	}
	if err == nil && len(w.model.Found()) == 0 { // after a violation there is enough to report
		err = w.checkLeaks(ctx)
	}
	if err == nil && len(w.model.Found()) == 0 && opt.putBackLength() > 0 {
		err = w.runPutBacks(ctx, opt.putBackLength())
	}
	if err == nil && len(w.model.Found()) == 0 {
		w.judgeContent(ctx)
	}
	if err == nil && len(w.model.Found()) == 0 {
		err = w.judgeHarm(ctx)
	}
	found := w.model.Found()
	w.close()
	return w, found, err
}

// perform lets all actors act for some time, and then the faults end, too.
func (w *world) perform(ctx context.Context, length time.Duration, plan []step) {
	acting, stop := context.WithTimeout(ctx, length)
	defer stop()
	enough, halt := context.WithCancel(acting)
	defer halt()
	var actors sync.WaitGroup
	does := func(what string, act func(context.Context)) {
		if w.opt.does(what) {
			actors.Go(func() { act(enough) })
		}
	}
	go w.calm.watchMachine(acting)
	actors.Go(func() { w.runFaults(enough, plan) })
	for _, p := range publishers {
		if w.opt.hasStore(p.stores) {
			for nth := range 2 {
				does(p.name, func(ctx context.Context) { w.publish(ctx, p, nth) })
			}
		}
	}
	for _, g := range groups {
		if w.opt.hasStore(g.stores) {
			does(g.name, func(ctx context.Context) { g.run(ctx, w, g) })
		}
	}
	for _, name := range passing {
		does("topics", func(ctx context.Context) { w.passTopic(ctx, name) })
		for i, b := range w.brokers {
			does("sse", func(ctx context.Context) { w.runSSE(ctx, b, name) })
			does("poll", func(ctx context.Context) { w.runPoller(ctx, b, name, int32(i)) })
		}
	}
	for _, b := range w.brokers {
		does("sse", func(ctx context.Context) { w.runSSE(ctx, b, steady) })
		does("poll", func(ctx context.Context) { w.runPoller(ctx, b, trimmed, 0) })
		does("poll", func(ctx context.Context) { w.runPoller(ctx, b, steady, 1) })
	}
	does("topics", w.changeSteady)
	does("topics", w.renewOld)
	for i, b := range w.brokers {
		does("poll", func(ctx context.Context) { w.runPoller(ctx, b, old, int32(i)) })
	}
	for i := range 2 {
		does("idle", func(ctx context.Context) { w.watchIdle(ctx, i) })
		does("look", func(ctx context.Context) { w.look(ctx, i) })
	}
	if w.postgres() {
		does("look", w.holdTransactions)
	}
	for i := range pingers {
		does("ping", func(ctx context.Context) { w.runPing(ctx, i) })
	}
	w.runQueues(enough, does)
	w.runStreams(does)
	go w.stopAtOnce(enough, halt)
	actors.Wait()
	w.history.Add("everybody has stopped, and everything is healed")
}

// stopAtOnce ends a run when an invariant is broken for which it is to end: the history after that
// has little to tell.
func (w *world) stopAtOnce(ctx context.Context, halt func()) {
	for ctx.Err() == nil {
		pause(ctx, 200*time.Millisecond)
		if slices.ContainsFunc(w.model.Found(), func(v judge.Violation) bool {
			return w.opt.until[0] == "any" || slices.Contains(w.opt.until, v.Invariant)
		}) {
			halt()
		}
	}
}
