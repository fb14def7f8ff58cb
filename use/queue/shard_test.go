package queue

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/claims"
	"github.com/weir-log/weir/use/publish"
)

// What one change of a state passes over has a bound: all writers of the process wait for it.
func TestAChangeOfALargeStateTakesFewOperations(t *testing.T) {
	p := claims.Part{}
	p.Reach(20_000)
	e := claims.Edit{Part: &p}
	for o := eventlog.Offset(1); o < p.Next; o += 2 {
		e.Put(o, claims.Run{Fate: claims.Claimed, Attempt: 1})
	}
	e.Apply()
	for name, c := range map[string]struct {
		state *claims.State
		op    op
		most  int
	}{
		"many runs":     {&claims.State{Parts: []claims.Part{p}}, op{}, workMax / 20_000},
		"many receipts": {&claims.State{}, op{messages: opsMax}, workMax / opsMax},
		"nothing":       {&claims.State{}, op{}, opsMax},
		"one too large": {&claims.State{}, op{messages: 2 * workMax}, 1},
	} {
		ops := slices.Repeat([]*op{&c.op}, 2*opsMax)
		if n := new(shard).take(c.state, slices.Values(ops)); n == 0 || n > c.most {
			t.Errorf("%s: a change takes %d operations; 1 to %d are its share", name, n, c.most)
		}
	}
}

// The state is changed for a receipt once, however often a call names it.
func TestAReceiptThatIsNamedOftenIsWorkOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, err := eventlog.Open(t.Context(), memory.New(), eventlog.Config{Poll: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		qs := New(log, publish.New(log, publish.Config{}), Config{})
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		running.Go(func() { _ = log.Run(ctx) })
		running.Go(func() { _ = qs.Run(ctx) })
		synctest.Wait()
		if _, err := qs.Create(ctx, Spec{Name: "mail"}); err != nil {
			t.Fatal(err)
		}
		q, err := qs.Open(ctx, "mail")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.Enqueue(ctx, NewMessage{Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
		got, err := q.Claim(ctx, Claim{})
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		calls, prepared := 0, 0
		errs, err := q.answer(ctx, slices.Repeat([]string{got[0].Receipt, "forged"}, 5000), func(e *claims.Edit, g claims.Grant, _ preparation, _ *change) error {
			calls++
			_, err := e.Held(g)
			e.Put(g.Offset, claims.Run{Fate: claims.Done})
			return err
		}, func(context.Context, claims.Grant) (preparation, error) { prepared++; return preparation{}, nil })
		if err != nil || calls != 1 || prepared != 1 {
			t.Errorf("%v; one receipt was applied %d times, and prepared %d times", err, calls, prepared)
		}
		for i, err := range errs {
			if i%2 == 0 && err != nil || i%2 == 1 && err == nil {
				t.Fatalf("receipt %d: %v", i, err)
			}
		}
	})
}
