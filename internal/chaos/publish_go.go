package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-log/weir/internal/judge"
)

// openGo publishes with Publish, or with PublishOnce, which is tried again, by the other program
// too, until the outcome is known.
func openGo(do string) func(*world, string, *rand.Rand) (send, error) {
	return func(w *world, session string, random *rand.Rand) (send, error) {
		n := 0
		return func(ctx context.Context, records []*judge.Record) (judge.Outcome, []judge.Place) {
			n++
			o := order{Do: do, Topic: records[0].Topic, Values: valuesOf(records), Old: records[0].Topic == old, Key: fmt.Sprintf("%s-%d", session, n)}
			said := w.embedded[random.IntN(2)].ask(context.WithoutCancel(ctx), o)
			tries := 1
			for ; do == "publish once" && said.Outcome == judge.Unknown && tries < triesMax; tries++ {
				pause(ctx, 100*time.Millisecond)
				said = w.embedded[random.IntN(2)].ask(context.WithoutCancel(ctx), o)
			}
			if said.Outcome == judge.Refused && tries > 1 {
				return judge.Unknown, nil // an earlier try may have been the one
			}
			return said.Outcome, said.Places
		}, nil
	}
}

// openGoTx publishes with PublishTx. Every fourth transaction is rolled back.
func openGoTx(w *world, _ string, random *rand.Rand) (send, error) {
	return func(ctx context.Context, records []*judge.Record) (judge.Outcome, []judge.Place) {
		said := w.embedded[random.IntN(2)].ask(context.WithoutCancel(ctx),
			order{Do: "publish tx", Topic: records[0].Topic, Values: valuesOf(records), Undone: random.IntN(4) == 0})
		return said.Outcome, nil
	}, nil
}
