package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-log/weir/internal/judge"
)

// keepSnapshots saves snapshots of streams at versions that they have reached, and loads them.
func (w *world) keepSnapshots(ctx context.Context) {
	random := w.random("snapshots")
	for ctx.Err() == nil {
		pause(ctx, time.Duration(random.IntN(150))*time.Millisecond)
		stream, n := streamName(random), random.IntN(4)
		e, b := w.embedded[n%2], w.brokers[n%2]
		by := e.name
		if n >= 2 {
			by = "HTTP at " + b.name
		}
		if random.IntN(2) == 0 {
			s := w.model.SnapshotSaves(stream, int64(random.IntN(3)))
			var said judge.Word
			if n >= 2 {
				said = b.saveSnapshot(context.WithoutCancel(ctx), s)
			} else {
				said = e.ask(context.WithoutCancel(ctx), order{Do: "save snapshot", Topic: judge.Accounts, Name: stream, N: int(s.Version), Values: []string{s.Data}})
			}
			w.model.SnapshotSaved(by, s, said)
			w.counts.add("snapshots saved, " + said.Outcome.String())
			continue
		}
		r := w.model.SnapshotReads(stream, int64(random.IntN(5)))
		var said judge.Word
		if n >= 2 {
			said = b.loadSnapshot(ctx, stream, r.Most)
		} else {
			said = e.ask(ctx, order{Do: "load snapshot", Topic: judge.Accounts, Name: stream, N: int(r.Most)})
		}
		if said.Outcome != judge.Done {
			continue
		}
		w.model.SnapshotRead(by, r, said)
		w.counts.add(fmt.Sprintf("snapshots loaded, there was one: %v", said.Exists))
	}
}
