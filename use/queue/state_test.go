package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/publish"
)

// check says what is wrong with the runs of a part, beside messages that are remembered one by one;
// below floor all are done.
func (p *part) check(messages []run) error {
	at := p.floor
	for i, r := range p.runs {
		if r.from != at || r.n <= 0 || i == 0 && r.fate == done || i > 0 && p.runs[i-1].like(r) {
			return fmt.Errorf("run %d of %+v, after %d", i, p.runs, at)
		}
		at = r.end()
	}
	if at != p.next || int(p.next) != len(messages) {
		return fmt.Errorf("the runs end at %d, next is %d, and there are %d messages", at, p.next, len(messages))
	}
	for o, want := range messages {
		got, there := p.at(eventlog.Offset(o))
		if !there {
			got = run{fate: done}
		}
		if !got.like(want) {
			return fmt.Errorf("message %d: %+v, want %+v", o, got, want)
		}
	}
	return nil
}

// What runs say of each message is what is known of it one by one, whatever is claimed, answered
// and trimmed.
func TestRunsAreTheirMessages(t *testing.T) {
	rng := seed.Random(t)
	for range 200 {
		p := part{partition: 7}
		var messages []run
		keyOf := make([]int, 200) // 0: none
		k := &keys{before: make([]eventlog.Offset, len(keyOf))}
		last := make(map[int]eventlog.Offset)
		for o := range keyOf {
			keyOf[o], k.before[o] = rng.IntN(6), -1
			if before, there := last[keyOf[o]]; there && keyOf[o] > 0 {
				k.before[o] = before
			}
			last[keyOf[o]] = eventlog.Offset(o)
		}
		ordered := rng.IntN(2) == 0
		window := 1 + rng.IntN(20)
		for now := Time(1); now < 200; now++ {
			switch rng.IntN(4) {
			case 0, 1:
				c := claim{window: int64(window), end: eventlog.Offset(len(keyOf))}
				c.wish = wish{most: 1 + rng.IntN(5), now: now, until: now + Time(rng.IntN(20)), nonce: rng.Uint32()}
				if ordered {
					c.order, c.end = k.order(&p, c.end)
				}
				var got []grant
				p, got, _ = p.claim(c)
				var want []eventlog.Offset
				open, started := make(map[int]bool), 0
				for o, m := range messages {
					if m.fate == claimed || m.fate == waiting && m.attempt > 0 {
						started++
					}
					if ordered && open[keyOf[o]] {
						continue
					}
					open[keyOf[o]] = m.fate != done && keyOf[o] > 0
					isStarted := m.fate == claimed || m.attempt > 0
					if m.fate != done && m.until <= now && len(want) < c.most && (isStarted || started < window) {
						want = append(want, eventlog.Offset(o))
						messages[o] = run{fate: claimed, attempt: m.attempt + 1, until: c.until, nonce: c.nonce}
						if !isStarted {
							started++
						}
					}
				}
				for o := len(messages); o < len(keyOf) && len(want) < c.most && started < window; o++ {
					if ordered && open[keyOf[o]] {
						messages = append(messages, run{fate: waiting})
						continue
					}
					open[keyOf[o]] = keyOf[o] > 0
					started++
					want = append(want, eventlog.Offset(o))
					messages = append(messages, run{fate: claimed, attempt: 1, until: c.until, nonce: c.nonce})
				}
				var offsets []eventlog.Offset
				for _, g := range got {
					offsets = append(offsets, g.offset)
				}
				if !slices.Equal(offsets, want) {
					t.Fatalf("claimed %v, want %v", offsets, want)
				}
			case 2:
				e := edit{p: &p}
				for range rng.IntN(8) {
					o := eventlog.Offset(rng.IntN(len(messages) + 1))
					if r, there := e.at(o); there && r.fate == claimed {
						to := run{fate: done}
						switch rng.IntN(3) {
						case 0:
							to = run{fate: waiting, attempt: r.attempt, until: now + 3}
						case 1: // given back
							to = run{fate: waiting, attempt: r.attempt - 1}
						}
						e.put(o, to)
						messages[o] = to
					}
				}
				e.apply()
			case 3:
				if rng.IntN(10) == 0 {
					first := p.floor + eventlog.Offset(rng.IntN(5))
					p.trimmed(first)
					for int(first) > len(messages) {
						messages = append(messages, run{})
					}
					for o := range first {
						messages[o] = run{fate: done}
					}
				}
			}
			if err := p.check(messages); err != nil {
				t.Fatalf("%v", err)
			}
		}
	}
}

// Many changes of one operation cost one pass over the runs, not one each.
func TestManyAnswersAreOnePassOverTheRuns(t *testing.T) {
	const messages = 10_000
	p := part{}
	p.reach(messages)
	e := edit{p: &p}
	for o := eventlog.Offset(1); o < messages; o += 2 {
		e.put(o, run{fate: claimed, attempt: 1})
	}
	if n := testing.AllocsPerRun(1, func() { e.apply() }); n > 100 {
		t.Errorf("%d changes made %v allocations", len(e.changes), n)
	}
	if len(p.runs) != messages {
		t.Errorf("there are %d runs, want %d", len(p.runs), messages)
	}
}

// What one change of a state passes over has a bound: all writers of the process wait for it.
func TestAChangeOfALargeStateTakesFewOperations(t *testing.T) {
	p := part{}
	p.reach(20_000)
	e := edit{p: &p}
	for o := eventlog.Offset(1); o < p.next; o += 2 {
		e.put(o, run{fate: claimed, attempt: 1})
	}
	e.apply()
	for name, c := range map[string]struct {
		state *state
		op    op
		most  int
	}{
		"many runs":     {&state{parts: []part{p}}, op{}, workMax / 20_000},
		"many receipts": {&state{}, op{messages: opsMax}, workMax / opsMax},
		"nothing":       {&state{}, op{}, opsMax},
		"one too large": {&state{}, op{messages: 2 * workMax}, 1},
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
		errs, err := q.answer(ctx, slices.Repeat([]string{got[0].Receipt, "forged"}, 5000), func(e *edit, g grant, _ preparation) error {
			calls++
			_, err := e.held(g)
			e.put(g.offset, run{fate: done})
			return err
		}, func(context.Context, grant) (preparation, error) { prepared++; return preparation{}, nil })
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
