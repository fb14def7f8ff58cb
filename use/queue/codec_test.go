package queue

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/seed"
)

func anyRun(rng *rand.Rand) run {
	texts := []string{"", "w1", `a "quoted" one`, "<&>", "héhé", strings.Repeat("w", 256)}
	text := func() string { return texts[rng.IntN(len(texts))] }
	until := func() Time {
		return []Time{0, givenBack, 1790000000000 + Time(rng.IntN(100_000)), 1 << 62}[rng.IntN(4)]
	}
	r := run{n: 1}
	if rng.IntN(3) == 0 {
		r.n = 1 + rng.Int64N(1<<40)
	}
	switch rng.IntN(4) {
	case 0:
		r.fate = done
	case 1:
		r.fate = waiting
	case 2:
		r.fate, r.attempt, r.until, r.reason = waiting, rng.Int32N(3), until(), text()
	default:
		r.fate, r.attempt, r.until, r.reason = claimed, 1+rng.Int32N(3), until(), text()
		r.worker, r.nonce = text(), []uint32{0, 7, rng.Uint32()}[rng.IntN(3)]
	}
	return r
}

func anyState(rng *rand.Rand) *state {
	s := &state{writer: "9f3c-17"}
	if rng.IntN(2) == 0 {
		s.after, s.tokens, s.tokensAt = "abc", 1.5, 1790000000000
	}
	for range rng.IntN(4) {
		p := s.part(eventlog.Partition(rng.IntN(10)))
		*p = part{partition: p.partition, floor: eventlog.Offset(rng.Int64N(1 << 40))}
		p.next = p.floor
		for range rng.IntN(30) {
			r := anyRun(rng)
			r.from = p.next
			p.runs, p.next = append(p.runs, r), r.end()
		}
	}
	return s
}

func TestAStateIsReadAsItWasWritten(t *testing.T) {
	rng := seed.Random(t)
	for range 2000 {
		s := anyState(rng)
		value := s.encode()
		got, err := decode(value)
		if err != nil {
			t.Fatalf("%s\n%v", value, err)
		}
		if !reflect.DeepEqual(got, s) {
			t.Fatalf("%s\nis read as\n%+v, want\n%+v", value, got, s)
		}
		for _, p := range s.parts {
			for _, r := range p.runs {
				if r.fate == claimed && !strings.Contains(string(value), string(mentions(r.nonce)[0])) {
					t.Fatalf("%s\ndoes not mention nonce %d", value, r.nonce)
				}
			}
		}
	}
}

// However many different texts there are, a state has so many bytes of them; all runs are there.
func TestAStateHasABoundOfTexts(t *testing.T) {
	rng := seed.Random(t)
	for range 20 {
		s := &state{}
		p := s.part(4)
		for n := range 3000 {
			p.runs = append(p.runs, run{from: p.next, n: 1, fate: waiting, attempt: 1, until: Time(rng.IntN(1000)), reason: fmt.Sprint("error ", n, strings.Repeat(" x", rng.IntN(100)))})
			p.next++
		}
		value := s.encode()
		got, err := decode(value)
		if err != nil {
			t.Fatal(err)
		}
		texts, omitted := make(map[string]bool), 0
		for i, r := range got.parts[0].runs {
			was := p.runs[i]
			if texts[r.reason] = true; r.reason == textOmitted {
				omitted++
				was.reason = textOmitted
			}
			if r != was {
				t.Fatalf("run %d is read as %+v, want %+v", i, r, was)
			}
		}
		bytes := 0
		for text := range texts {
			bytes += len(text)
		}
		if bytes > textsMax+len(textOmitted) || bytes < textsMax/2 || omitted == 0 {
			t.Errorf("%d bytes of texts, %d of %d omitted", bytes, omitted, len(p.runs))
		}
	}
}

// A claim that is repeated finds its messages, although the state has omitted its worker's name.
func TestARepeatedClaimNeedsNoNameInTheState(t *testing.T) {
	const now = 1790000000000
	s := &state{}
	p := s.part(4)
	for n := range 1000 {
		p.runs = append(p.runs, run{from: p.next, n: 1, fate: claimed, attempt: 1, until: now, nonce: uint32(n), worker: fmt.Sprint("worker ", n, strings.Repeat(" of many", 10))})
		p.next++
	}
	got, err := decode(s.encode())
	if err != nil {
		t.Fatal(err)
	}
	for n, r := range p.runs {
		if found := got.parts[0].earlier(wish{now: now - 1, nonce: r.nonce, worker: r.worker}); len(found) != 1 || found[0].offset != r.from {
			t.Fatalf("claim %d finds %+v", n, found)
		}
	}
}

// older writes a state as versions did that wrote an object for each run.
func older(s *state) []byte {
	names := map[fate]string{done: "done", claimed: "claimed", waiting: "waiting"}
	type list []map[string]any
	parts := list{}
	for _, p := range s.parts {
		runs := list{}
		for _, r := range p.runs {
			stored := map[string]any{"n": r.n, "fate": names[r.fate]}
			for name, value := range map[string]any{"attempt": r.attempt, "until": r.until, "nonce": r.nonce, "worker": r.worker, "reason": r.reason} {
				if !reflect.ValueOf(value).IsZero() {
					stored[name] = value
				}
			}
			runs = append(runs, stored)
		}
		stored := map[string]any{"partition": p.partition, "floor": p.floor, "next": p.next}
		if len(runs) > 0 {
			stored["runs"] = runs
		}
		parts = append(parts, stored)
	}
	value, err := json.Marshal(map[string]any{"writer": s.writer, "after": s.after, "tokens": s.tokens, "tokens_at": s.tokensAt, "parts": parts})
	if err != nil {
		panic(err)
	}
	return value
}

func TestStatesOfOlderVersionsAreRead(t *testing.T) {
	rng := seed.Random(t)
	for range 500 {
		s := anyState(rng)
		value := older(s)
		got, err := decode(value)
		if err != nil || !reflect.DeepEqual(got, s) {
			t.Fatalf("%s\nis read as\n%+v, %v, want\n%+v", value, got, err, s)
		}
		for _, p := range s.parts {
			for _, r := range p.runs {
				if r.nonce != 0 && !strings.Contains(string(value), string(mentions(r.nonce)[1])) {
					t.Fatalf("%s\ndoes not mention nonce %d", value, r.nonce)
				}
			}
		}
	}
}

func TestAStateThatContradictsItselfIsRefused(t *testing.T) {
	for _, runs := range []string{
		`"d"`, `"d3"`, `"d0s2"`, `"c2"`, `"CAAAAAA3"`, `"CAAAA"`, `"C*****=2"`, `"x2"`, `"w2@0"`, `"w2#"`, `"w2+"`, `"d2#1"`, `"w2#3000000000"`,
		`"w99999999999999999999"`, `"2w"`, `" w2"`, `"w2 "`, `"w+d"`, `"w!-1"`, `7`, `{}`,
		`[{"n":2,"fate":"lost"}]`, `[{"n":3,"fate":"done"}]`, `[{"n":0,"fate":"done"},{"n":2,"fate":"done"}]`,
	} {
		value := fmt.Sprintf(`{"writer":"w","parts":[{"partition":4,"floor":10,"next":12,"runs":%s}]}`, runs)
		if got, err := decode([]byte(value)); err == nil {
			t.Errorf("%s is read as %+v", value, got)
		}
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"writer":"9f3c-17","texts":["w1","refused"],"parts":[{"partition":4,"floor":10,"next":15,"runs":"CEjRWeA2#1+1790000000000@0dsw#1+1790000005000!1"}]}`))
	f.Add([]byte(`{"writer":"9f3c-17","parts":[{"partition":4,"floor":10,"next":14,"runs":[{"n":2,"fate":"claimed","attempt":1,"until":1790000000000,"nonce":305419896,"worker":"w1"},{"n":2,"fate":"done"}]}]}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		s, err := decode(value)
		if err != nil {
			return
		}
		for _, p := range s.parts {
			for _, r := range p.runs {
				if r.attempt < 0 || r.until < 0 { // older versions' form has room for those
					return
				}
			}
		}
		again, err := decode(s.encode())
		if err != nil || len(again.parts) != len(s.parts) || again.count() != s.count() {
			t.Errorf("%s: %+v becomes %+v, %v", value, s, again, err)
		}
	})
}
