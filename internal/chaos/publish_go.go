package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// openGo publishes with Publish, or with PublishOnce, which is tried again, by the other program too, until the outcome is known.
func openGo(do string) func(*world, string, *rand.Rand) (send, error) {
	return func(w *world, session string, random *rand.Rand) (send, error) {
		n := 0
		return func(ctx context.Context, records []*record) (outcome, []place) {
			n++
			o := order{Do: do, Topic: records[0].topic, Values: valuesOf(records), Old: records[0].topic == old, Key: fmt.Sprintf("%s-%d", session, n)}
			said := w.embedded[random.IntN(2)].ask(context.WithoutCancel(ctx), o)
			tries := 1
			for ; do == "publish once" && said.Outcome == unknown && tries < triesMax; tries++ {
				pause(ctx, 100*time.Millisecond)
				said = w.embedded[random.IntN(2)].ask(context.WithoutCancel(ctx), o)
			}
			if said.Outcome == refused && tries > 1 {
				return unknown, nil // an earlier try may have been the one
			}
			return said.Outcome, said.Places
		}, nil
	}
}

// openGoTx publishes with PublishTx. Every fourth transaction is rolled back.
func openGoTx(w *world, _ string, random *rand.Rand) (send, error) {
	return func(ctx context.Context, records []*record) (outcome, []place) {
		said := w.embedded[random.IntN(2)].ask(context.WithoutCancel(ctx),
			order{Do: "publish tx", Topic: records[0].topic, Values: valuesOf(records), Undone: random.IntN(4) == 0})
		return said.Outcome, nil
	}, nil
}
