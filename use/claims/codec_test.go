package claims

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

func anyRun(rng *rand.Rand) Run {
	texts := []string{"", "w1", `a "quoted" one`, "<&>", "héhé", strings.Repeat("w", 256)}
	text := func() string { return texts[rng.IntN(len(texts))] }
	until := func() Time {
		return []Time{0, GivenBack, 1790000000000 + Time(rng.IntN(100_000)), 1 << 62}[rng.IntN(4)]
	}
	r := Run{N: 1}
	if rng.IntN(3) == 0 {
		r.N = 1 + rng.Int64N(1<<40)
	}
	switch rng.IntN(4) {
	case 0:
		r.Fate = Done
	case 1:
		r.Fate = Waiting
	case 2:
		r.Fate, r.Attempt, r.Until, r.Reason = Waiting, rng.Int32N(3), until(), text()
	default:
		r.Fate, r.Attempt, r.Until, r.Reason = Claimed, 1+rng.Int32N(3), until(), text()
		r.Worker, r.Nonce = text(), []uint32{0, 7, rng.Uint32()}[rng.IntN(3)]
	}
	return r
}

func anyState(rng *rand.Rand) *State {
	s := &State{Writer: "9f3c-17"}
	if rng.IntN(2) == 0 {
		s.After, s.tokens, s.tokensAt = "abc", 1.5, 1790000000000
	}
	for range rng.IntN(4) {
		p := s.Part(eventlog.Partition(rng.IntN(10)))
		*p = Part{Partition: p.Partition, Floor: eventlog.Offset(rng.Int64N(1 << 40))}
		p.Next = p.Floor
		for range rng.IntN(30) {
			r := anyRun(rng)
			r.From = p.Next
			p.Runs, p.Next = append(p.Runs, r), r.End()
		}
	}
	return s
}

func TestAStateIsReadAsItWasWritten(t *testing.T) {
	rng := seed.Random(t)
	for range 2000 {
		s := anyState(rng)
		value := s.Encode()
		got, err := Decode(value)
		if err != nil {
			t.Fatalf("%s\n%v", value, err)
		}
		if !reflect.DeepEqual(got, s) {
			t.Fatalf("%s\nis read as\n%+v, want\n%+v", value, got, s)
		}
		for _, p := range s.Parts {
			for _, r := range p.Runs {
				if r.Fate == Claimed && !strings.Contains(string(value), string(Mentions(r.Nonce)[0])) {
					t.Fatalf("%s\ndoes not mention nonce %d", value, r.Nonce)
				}
			}
		}
	}
}

// However many different texts there are, a state has so many bytes of them; all runs are there.
func TestAStateHasABoundOfTexts(t *testing.T) {
	rng := seed.Random(t)
	for range 20 {
		s := &State{}
		p := s.Part(4)
		for n := range 3000 {
			p.Runs = append(p.Runs, Run{From: p.Next, N: 1, Fate: Waiting, Attempt: 1, Until: Time(rng.IntN(1000)), Reason: fmt.Sprint("error ", n, strings.Repeat(" x", rng.IntN(100)))})
			p.Next++
		}
		value := s.Encode()
		got, err := Decode(value)
		if err != nil {
			t.Fatal(err)
		}
		texts, omitted := make(map[string]bool), 0
		for i, r := range got.Parts[0].Runs {
			was := p.Runs[i]
			if texts[r.Reason] = true; r.Reason == textOmitted {
				omitted++
				was.Reason = textOmitted
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
			t.Errorf("%d bytes of texts, %d of %d omitted", bytes, omitted, len(p.Runs))
		}
	}
}

// However many texts there are: a lease that ended without an answer has no reason, and a worker
// without a name has none.
func TestNoTextIsNotTakenForOneThatIsNotKept(t *testing.T) {
	p := Part{Partition: 1}
	add := func(r Run) {
		r.From, r.N = p.Next, 1
		p.Set(r)
	}
	for i := range 100 {
		add(Run{Fate: Waiting, Attempt: 1, Reason: fmt.Sprintf("%0512d", i)})
	}
	add(Run{Fate: Waiting, Attempt: 2})
	add(Run{Fate: Claimed, Attempt: 1, Nonce: 1, Worker: "w"})
	add(Run{Fate: Claimed, Attempt: 1, Nonce: 2})
	got, err := Decode((&State{Writer: "w-1", Parts: []Part{p}}).Encode())
	if err != nil {
		t.Fatal(err)
	}
	for o, r := range got.Parts[0].Runs[100:] {
		if r.Reason != "" || r.Worker == textOmitted && o == 2 {
			t.Errorf("run %d has worker %q and reason %q", 100+o, r.Worker, r.Reason)
		}
	}
}

// A claim that is repeated finds its messages, although the state has omitted its worker's name.
func TestARepeatedClaimNeedsNoNameInTheState(t *testing.T) {
	const now = 1790000000000
	s := &State{}
	p := s.Part(4)
	for n := range 1000 {
		p.Runs = append(p.Runs, Run{From: p.Next, N: 1, Fate: Claimed, Attempt: 1, Until: now, Nonce: uint32(n), Worker: fmt.Sprint("worker ", n, strings.Repeat(" of many", 10))})
		p.Next++
	}
	got, err := Decode(s.Encode())
	if err != nil {
		t.Fatal(err)
	}
	for n, r := range p.Runs {
		if found := got.Parts[0].Earlier(Wish{Now: now - 1, Nonce: r.Nonce, Worker: r.Worker}); len(found) != 1 || found[0].Offset != r.From {
			t.Fatalf("claim %d finds %+v", n, found)
		}
	}
}

// older writes a state as versions did that wrote an object for each run.
func older(s *State) []byte {
	names := map[Fate]string{Done: "done", Claimed: "claimed", Waiting: "waiting"}
	type list []map[string]any
	parts := list{}
	for _, p := range s.Parts {
		runs := list{}
		for _, r := range p.Runs {
			stored := map[string]any{"n": r.N, "fate": names[r.Fate]}
			for name, value := range map[string]any{"attempt": r.Attempt, "until": r.Until, "nonce": r.Nonce, "worker": r.Worker, "reason": r.Reason} {
				if !reflect.ValueOf(value).IsZero() {
					stored[name] = value
				}
			}
			runs = append(runs, stored)
		}
		stored := map[string]any{"partition": p.Partition, "floor": p.Floor, "next": p.Next}
		if len(runs) > 0 {
			stored["runs"] = runs
		}
		parts = append(parts, stored)
	}
	value, err := json.Marshal(map[string]any{"writer": s.Writer, "after": s.After, "tokens": s.tokens, "tokens_at": s.tokensAt, "parts": parts})
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
		got, err := Decode(value)
		if err != nil || !reflect.DeepEqual(got, s) {
			t.Fatalf("%s\nis read as\n%+v, %v, want\n%+v", value, got, err, s)
		}
		for _, p := range s.Parts {
			for _, r := range p.Runs {
				if r.Nonce != 0 && !strings.Contains(string(value), string(Mentions(r.Nonce)[1])) {
					t.Fatalf("%s\ndoes not mention nonce %d", value, r.Nonce)
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
		if got, err := Decode([]byte(value)); err == nil {
			t.Errorf("%s is read as %+v", value, got)
		}
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(`{"writer":"9f3c-17","texts":["w1","refused"],"parts":[{"partition":4,"floor":10,"next":15,"runs":"CEjRWeA2#1+1790000000000@0dsw#1+1790000005000!1"}]}`))
	f.Add([]byte(`{"writer":"9f3c-17","parts":[{"partition":4,"floor":10,"next":14,"runs":[{"n":2,"fate":"claimed","attempt":1,"until":1790000000000,"nonce":305419896,"worker":"w1"},{"n":2,"fate":"done"}]}]}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		s, err := Decode(value)
		if err != nil {
			return
		}
		for _, p := range s.Parts {
			for _, r := range p.Runs {
				if r.Attempt < 0 || r.Until < 0 { // older versions' form has room for those
					return
				}
			}
		}
		again, err := Decode(s.Encode())
		if err != nil || len(again.Parts) != len(s.Parts) || again.Count() != s.Count() {
			t.Errorf("%s: %+v becomes %+v, %v", value, s, again, err)
		}
	})
}
