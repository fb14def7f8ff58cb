package claims

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/seed"
)

// check says what is wrong with the runs of a part, beside messages that are remembered one by one;
// below floor all are done.
func (p *Part) check(messages []Run) error {
	at := p.Floor
	for i, r := range p.Runs {
		if r.From != at || r.N <= 0 || i == 0 && r.Fate == Done || i > 0 && p.Runs[i-1].like(r) {
			return fmt.Errorf("run %d of %+v, after %d", i, p.Runs, at)
		}
		at = r.End()
	}
	if at != p.Next || int(p.Next) != len(messages) {
		return fmt.Errorf("the runs end at %d, next is %d, and there are %d messages", at, p.Next, len(messages))
	}
	for o, want := range messages {
		got, there := p.At(eventlog.Offset(o))
		if !there {
			got = Run{Fate: Done}
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
		p := Part{Partition: 7}
		var messages []Run
		letters := make([]byte, 200) // the keys; '.': none
		for o := range letters {
			letters[o] = ".abcde"[rng.IntN(6)]
		}
		ordered := rng.IntN(2) == 0
		window := 1 + rng.IntN(20)
		for now := Time(1); now < 200; now++ {
			switch rng.IntN(4) {
			case 0, 1:
				c := claim{window: int64(window), end: eventlog.Offset(len(letters))}
				c.Wish = Wish{Most: 1 + rng.IntN(5), Now: now, Until: now + Time(rng.IntN(20)), Nonce: rng.Uint32()}
				if ordered {
					c.order, c.end = byKeys(string(letters))(&p, c.end)
				}
				var got []Grant
				p, got, _ = p.claim(c)
				var want []eventlog.Offset
				open, started := make(map[byte]bool), 0
				for o, m := range messages {
					if m.Fate == Claimed || m.Fate == Waiting && m.Attempt > 0 {
						started++
					}
					if ordered && open[letters[o]] {
						continue
					}
					open[letters[o]] = m.Fate != Done && letters[o] != '.'
					isStarted := m.Fate == Claimed || m.Attempt > 0
					if m.Fate != Done && m.Until <= now && len(want) < c.Most && (isStarted || started < window) {
						want = append(want, eventlog.Offset(o))
						messages[o] = Run{Fate: Claimed, Attempt: m.Attempt + 1, Until: c.Until, Nonce: c.Nonce}
						if !isStarted {
							started++
						}
					}
				}
				for o := len(messages); o < len(letters) && len(want) < c.Most && started < window; o++ {
					if ordered && open[letters[o]] {
						messages = append(messages, Run{Fate: Waiting})
						continue
					}
					open[letters[o]] = letters[o] != '.'
					started++
					want = append(want, eventlog.Offset(o))
					messages = append(messages, Run{Fate: Claimed, Attempt: 1, Until: c.Until, Nonce: c.Nonce})
				}
				var offsets []eventlog.Offset
				for _, g := range got {
					offsets = append(offsets, g.Offset)
				}
				if !slices.Equal(offsets, want) {
					t.Fatalf("claimed %v, want %v", offsets, want)
				}
			case 2:
				e := Edit{Part: &p}
				for range rng.IntN(8) {
					o := eventlog.Offset(rng.IntN(len(messages) + 1))
					if r, there := e.At(o); there && r.Fate == Claimed {
						to := Run{Fate: Done}
						switch rng.IntN(3) {
						case 0:
							to = Run{Fate: Waiting, Attempt: r.Attempt, Until: now + 3}
						case 1: // given back
							to = Run{Fate: Waiting, Attempt: r.Attempt - 1}
						}
						e.Put(o, to)
						messages[o] = to
					}
				}
				e.Apply()
			case 3:
				if rng.IntN(10) == 0 {
					first := p.Floor + eventlog.Offset(rng.IntN(5))
					p.Trimmed(first)
					for int(first) > len(messages) {
						messages = append(messages, Run{})
					}
					for o := range first {
						messages[o] = Run{Fate: Done}
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
	p := Part{}
	p.Reach(messages)
	e := Edit{Part: &p}
	for o := eventlog.Offset(1); o < messages; o += 2 {
		e.Put(o, Run{Fate: Claimed, Attempt: 1})
	}
	if n := testing.AllocsPerRun(1, func() { e.Apply() }); n > 100 {
		t.Errorf("%d changes made %v allocations", len(e.changes), n)
	}
	if len(p.Runs) != messages {
		t.Errorf("there are %d runs, want %d", len(p.Runs), messages)
	}
}
