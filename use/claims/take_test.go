package claims

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/seed"
)

// aState returns a state of partitions 0, 1 and so on, with their runs as text, see storedState.
// Workers and reasons are "w", "v", "refused" by their index. "5:" before the runs is the floor.
func aState(t *testing.T, parts ...string) *State {
	t.Helper()
	s := &State{Writer: "before"}
	for i, text := range parts {
		floor := eventlog.Offset(0)
		if at, rest, has := strings.Cut(text, ":"); has {
			_, _ = fmt.Sscan(at, &floor)
			text = rest
		}
		runs, err := parseRuns(text, []string{"w", "v", "refused"})
		if err != nil {
			t.Fatalf("runs %q: %v", text, err)
		}
		p := s.Part(eventlog.Partition(i))
		p.Floor, p.Next = floor, floor
		for _, r := range runs {
			r.From = p.Next
			p.Runs, p.Next = append(p.Runs, r), r.End()
		}
	}
	return s
}

// describe is a part as a text: what aState reads, but with spaces and names.
func (p *Part) describe() string {
	var text []string
	for _, r := range p.Runs {
		what := fmt.Sprintf("%d-%d %s", r.From, r.End()-1, fateNames[r.Fate])
		if r.Attempt > 0 {
			what += fmt.Sprintf(" #%d", r.Attempt)
		}
		if r.Until > 0 {
			what += fmt.Sprintf(" until %d", r.Until)
		}
		if r.Worker != "" {
			what += " by " + r.Worker
		}
		if r.Reason != "" {
			what += " after " + r.Reason
		}
		text = append(text, what)
	}
	return strings.Join(text, ", ")
}

// offsets is a list of grants as a text: offsets with their attempts.
func offsets(granted []Grant) string {
	text := make([]string, len(granted))
	for i, g := range granted {
		text[i] = fmt.Sprintf("%d#%d", g.Offset, g.Attempt)
	}
	return strings.Join(text, " ")
}

// One partition with a claim, of which a table says what comes of it. The wish is for 2 messages at
// 1000, until 1500, by worker w with the nonce AAAAAQ.
func TestATakeGrantsTheOldestFreeMessages(t *testing.T) {
	var nonce uint32 = 1
	mine := "C" + nonceText(nonce) // a claim with the nonce of the wish
	other := "C" + nonceText(7)
	for name, c := range map[string]struct {
		parts   []string
		from    Candidates
		wish    Wish
		granted string
		spent   string
		allowed int // default 2
		found   bool
		stays   bool // nothing is to be put
		next    string
	}{
		"new ones": {
			granted: "0#1 1#1", next: "0-1 claimed #1 until 1500 by w",
		},
		"as many as there are": {
			from: Candidates{End: 1}, granted: "0#1", next: "0-0 claimed #1 until 1500 by w",
		},
		"none": {
			from: Candidates{First: 3, End: 3}, stays: true,
		},
		"those that came back first, then new ones": {
			parts:   []string{other + "#1+2000@1dw#1+900!2"},
			granted: "2#2 3#1",
			next: "0-0 claimed #1 until 2000 by v, 1-1 done, 2-2 claimed #2 until 1500 by w after refused, " +
				"3-3 claimed #1 until 1500 by w",
		},
		"leases that ended, without the reason of an attempt before": {
			parts:   []string{other + "2#3+1000@1!2"},
			granted: "0#4 1#4", next: "0-1 claimed #4 until 1500 by w",
		},
		"not before the end of a lease or a pause": {
			parts: []string{other + "#1+1001@1w#1+1001"}, from: Candidates{End: 2}, stays: true,
			next: "0-0 claimed #1 until 1001 by v, 1-1 waiting #1 until 1001",
		},
		"those that were given back, as their first attempt": {
			parts: []string{"w+1s"}, granted: "0#1 1#1", next: "0-1 claimed #1 until 1500 by w",
		},
		"the last attempt is spent": {
			parts: []string{other + "2#3+900@1"}, from: Candidates{Limits: Limits{Attempts: 3}},
			granted: "2#1 3#1", spent: "0#3 1#3",
			next: "0-1 claimed #3 until 900 by v, 2-3 claimed #1 until 1500 by w",
		},
		"a message that its worker gave back is not spent": {
			parts: []string{"w#3+900"}, from: Candidates{End: 1, Limits: Limits{Attempts: 3}},
			granted: "0#4", next: "0-0 claimed #4 until 1500 by w",
		},
		"the window is full": {
			parts: []string{other + "2#1+2000@1"}, from: Candidates{Limits: Limits{Window: 2}}, stays: true,
			next: "0-1 claimed #1 until 2000 by v",
		},
		"the window has one place": {
			parts: []string{other + "#1+2000@1"}, from: Candidates{Limits: Limits{Window: 2}},
			granted: "1#1", next: "0-0 claimed #1 until 2000 by v, 1-1 claimed #1 until 1500 by w",
		},
		"a full window does not keep what was started": {
			parts: []string{"sw#1+900" + other + "#1+2000@1"}, from: Candidates{Limits: Limits{Window: 2}},
			granted: "1#2", next: "0-0 waiting, 1-1 claimed #2 until 1500 by w, 2-2 claimed #1 until 2000 by v",
		},
		"a queue that is paused": {
			parts: []string{"w#1+900"}, from: Candidates{Limits: Limits{Paused: true}}, stays: true,
			next: "0-0 waiting #1 until 900",
		},
		"concurrency counts all partitions, and leases that have not ended": {
			parts:   []string{"", other + "2#1+2000@1" + other + "#2-1100"},
			from:    Candidates{Limits: Limits{Concurrency: 3}},
			granted: "0#1", allowed: 1, next: "0-0 claimed #1 until 1500 by w",
		},
		"concurrency leaves none": {
			parts: []string{"", other + "2#1+2000@1"}, from: Candidates{Limits: Limits{Concurrency: 1}},
			allowed: none, stays: true,
		},
		"a rate begins with the claims of a second": {
			from: Candidates{Limits: Limits{Rate: 1}}, granted: "0#1", allowed: 1,
			next: "0-0 claimed #1 until 1500 by w",
		},
		"a sweep claims more than is handed out": {
			wish: Wish{Sweep: 4}, granted: "0#1 1#1 2#1 3#1", next: "0-3 claimed #1 until 1500 by w",
		},
		"a sweep claims more than the limits allow": {
			wish: Wish{Sweep: 4}, from: Candidates{Limits: Limits{Rate: 1}},
			granted: "0#1 1#1 2#1 3#1", allowed: 1, next: "0-3 claimed #1 until 1500 by w",
		},
		"a sweep claims none if the limits allow none": {
			wish: Wish{Sweep: 4}, parts: []string{"", other + "#1+2000@1"},
			from: Candidates{Limits: Limits{Concurrency: 1}}, allowed: none, stays: true,
		},
		"what the log has no more": {
			parts: []string{other + "3#1+900@1"}, from: Candidates{First: 2},
			granted: "2#2 3#1", next: "2-2 claimed #2 until 1500 by w, 3-3 claimed #1 until 1500 by w",
		},
		"a repeated wish gets what it had, a millisecond longer": {
			parts: []string{"w#1+900" + mine + "3#1+1400@0"}, wish: Wish{Repeats: true},
			granted: "1#1 2#1", found: true,
			next: "0-0 waiting #1 until 900, 1-2 claimed #1 until 1401 by w, 3-3 claimed #1 until 1400 by w",
		},
		"a repeated wish gets what it had, in a queue that is paused": {
			parts: []string{mine + "#1+1400@0"}, wish: Wish{Repeats: true},
			from:    Candidates{Limits: Limits{Paused: true}},
			granted: "0#1", found: true, next: "0-0 claimed #1 until 1401 by w",
		},
		"a repeated wish gets others after what its caller has": {
			parts: []string{mine + "#1+1400@0"}, wish: Wish{Repeats: true, Has: func(g Grant) bool { return g.Offset == 0 }},
			granted: "1#1 2#1", next: "0-0 claimed #1 until 1400 by w, 1-2 claimed #1 until 1500 by w",
		},
		"a repeated wish gets nothing of another worker, nor with another nonce": {
			parts: []string{mine + "#1+1400@1" + other + "#1@0"}, from: Candidates{End: 2}, wish: Wish{Repeats: true},
			stays: true, next: "0-0 claimed #1 until 1400 by v, 1-1 claimed #1 until 1400 by w",
		},
		"a repeated wish whose leases ended gets them as another attempt": {
			parts: []string{mine + "#1+1000@0"}, from: Candidates{End: 1}, wish: Wish{Repeats: true},
			granted: "0#2", next: "0-0 claimed #2 until 1500 by w",
		},
		"a wish that is not repeated does not get what its nonce has": {
			parts: []string{mine + "#1+1400@0"}, from: Candidates{End: 1}, stays: true,
			next: "0-0 claimed #1 until 1400 by w",
		},
		"one of each key": {
			from:    Candidates{End: 4, InOrder: byKeys("abab")},
			wish:    Wish{Most: 3},
			granted: "0#1 1#1", allowed: 3, next: "0-1 claimed #1 until 1500 by w, 2-3 waiting",
		},
		"keys that are taken are skipped, and that is put": {
			parts: []string{other + "#1+2000@1"},
			from:  Candidates{End: 3, InOrder: byKeys("aaa")},
			next:  "0-0 claimed #1 until 2000 by v, 1-2 waiting",
		},
		"nothing from where keys are not known": {
			from:    Candidates{End: 4, InOrder: byKeys("a")},
			granted: "0#1", next: "0-0 claimed #1 until 1500 by w",
		},
	} {
		t.Run(name, func(t *testing.T) {
			parts := c.parts
			if parts == nil {
				parts = []string{""}
			}
			s, before := aState(t, parts...), aState(t, parts...)
			if c.from.End == 0 {
				c.from.End = 10
			}
			if c.from.Limits.Window == 0 {
				c.from.Limits.Window = 100
			}
			switch c.allowed {
			case 0:
				c.allowed = 2
			case none:
				c.allowed = 0
			}
			w := c.wish
			w.Most, w.Now, w.Until, w.Nonce, w.Worker = max(w.Most, 2), 1000, 1500, nonce, "w"
			next, got, changed := s.Take(c.from, w)
			if !reflect.DeepEqual(s, before) {
				t.Errorf("the state that it was taken from became %+v, from %+v", s, before)
			}
			if is := next.Part(0).describe(); is != c.next {
				t.Errorf("the state became %q,\nwant %q", is, c.next)
			}
			if offsets(got.Granted) != c.granted || offsets(got.Spent) != c.spent || changed == c.stays {
				t.Errorf("granted %q, spent %q, changed %v", offsets(got.Granted), offsets(got.Spent), changed)
			}
			for _, g := range got.Granted {
				if r, _ := next.Part(0).At(g.Offset); r.Until != g.Until || r.Nonce != g.Nonce || r.Attempt != g.Attempt {
					t.Errorf("granted %+v, and the state says %+v", g, r)
				}
			}
			if got.Allowed != c.allowed || got.Found != c.found {
				t.Errorf("%d may be handed out, found %v", got.Allowed, got.Found)
			}
			if len(parts) > 1 && !reflect.DeepEqual(next.Parts[1:], before.Parts[1:]) {
				t.Errorf("other partitions became %+v", next.Parts[1:])
			}
		})
	}
}

// byKeys is the order of messages that each have a letter as their key; ".": none. The keys of
// later ones are not known.
func byKeys(letters string) func(*Part, eventlog.Offset) (Order, eventlog.Offset) {
	return func(_ *Part, end eventlog.Offset) (Order, eventlog.Offset) {
		open := make(map[byte]bool)
		return func(at eventlog.Offset, done bool) bool {
			if at >= eventlog.Offset(len(letters)) {
				return false
			}
			key := letters[at]
			first := !done && !open[key]
			open[key] = key != '.' && (open[key] || !done)
			return first
		}, min(end, eventlog.Offset(len(letters)))
	}
}

// none stands for 0 in a table where 0 is the default.
const none = -1

// A rate counts what is handed out, and grows with the time.
func TestATakeSpendsTheRate(t *testing.T) {
	s := aState(t, "")
	for _, c := range []struct {
		now           Time
		sweep, allows int
	}{
		{now: 1000, allows: 3},
		{now: 1000, allows: 0},
		{now: 1334, allows: 1},
		{now: 1334, allows: 0},
		{now: 90_000, allows: 3},           // not more than a second's
		{now: 90_700, sweep: 9, allows: 2}, // what is claimed beside them does not count
		{now: 91_034, allows: 1},
		{now: 90_000, allows: 0}, // another process reads the clock a little late
		{now: 80_000, allows: 3}, // the clock was set back
	} {
		from := Candidates{End: 1000, Limits: Limits{Window: 1000, Rate: 3}}
		next, got, _ := s.Take(from, Wish{Most: 5, Sweep: c.sweep, Now: c.now, Until: c.now + 1_000_000})
		if got.Allowed != c.allows || min(len(got.Granted), got.Allowed) != c.allows {
			t.Errorf("at %d: %d of %d may be handed out, want %d", c.now, got.Allowed, len(got.Granted), c.allows)
		}
		s = next
	}
}

// A prospect says whether a take would grant something.
func TestAProspectIsWhatATakeGrants(t *testing.T) {
	rng := seed.Random(t)
	free := 0
	for range 2000 {
		s := aState(t, randomRuns(rng))
		p := s.Part(0)
		from := Candidates{First: p.Floor, End: p.Next + eventlog.Offset(rng.IntN(2))}
		from.Limits.Window = int64(1 + rng.IntN(8))
		w := Wish{Most: 1, Now: 1000, Until: 1500, Nonce: 1, Worker: "w", Repeats: rng.IntN(2) == 0}
		seen := s.Prospect(from, w)
		_, got, _ := s.Take(from, w)
		if seen.Free != (len(got.Granted) > 0) || seen.Unresolved != (len(p.Runs) > 0) {
			t.Fatalf("%s, of %+v: %+v, and %q was granted", p.describe(), from, seen, offsets(got.Granted))
		}
		if seen.Free {
			free++
			continue
		}
		if w.Now += Time(seen.Wait / time.Millisecond); seen.Wait == time.Minute {
			continue // nothing becomes free by itself
		}
		ends := func(r Run) bool { return r.Fate != Done && r.Until > 1000 && r.Until <= w.Now }
		if !slices.ContainsFunc(p.Runs, ends) {
			t.Fatalf("%s: no lease ends within %v", p.describe(), seen.Wait)
		}
		if w.Now--; slices.ContainsFunc(p.Runs, ends) {
			t.Fatalf("%s: a lease ends before %v", p.describe(), seen.Wait)
		}
	}
	if free < 200 || free > 1900 {
		t.Errorf("%d of 2000 had a message", free)
	}
	if seen := new(State).Prospect(Candidates{First: 3, End: 3}, Wish{}); seen != (Prospect{Wait: time.Minute}) {
		t.Errorf("of an empty partition nobody claimed from: %+v", seen)
	}
	if seen := new(State).Prospect(Candidates{First: 3, End: 4}, Wish{}); !seen.Free {
		t.Errorf("of a partition nobody claimed from: %+v", seen)
	}
}

// randomRuns is a text for aState.
func randomRuns(rng *rand.Rand) string {
	var text strings.Builder
	before := 0
	for range rng.IntN(5) {
		until := 900 + rng.IntN(200)
		fmt.Fprintf(&text, "C%s%d#1%+d@%d", nonceText(uint32(1+rng.IntN(2))), 1+rng.IntN(2), until-before, rng.IntN(2))
		before = until
		text.WriteString([]string{"", "d", "s", "s2"}[rng.IntN(4)])
	}
	return text.String()
}

// A copy of a part is one of its own: what is done to it leaves the other as it is.
func TestACopyOfAPartIsItsOwn(t *testing.T) {
	rng := seed.Random(t)
	for range 500 {
		p := *aState(t, randomRuns(rng)).Part(0)
		before := slices.Clone(p.Runs)
		other := p
		for range 3 {
			if n := int64(other.Next - other.Floor); n > 0 && rng.IntN(2) == 0 {
				from := other.Floor + eventlog.Offset(rng.Int64N(n))
				n = 1 + rng.Int64N(int64(other.Next-from))
				other.Set(Run{From: from, N: n, Fate: []Fate{Done, Waiting}[rng.IntN(2)]})
			} else {
				other.Trimmed(other.Floor + eventlog.Offset(rng.IntN(3)))
			}
		}
		other.Reach(other.Next + 2)
		if !slices.Equal(p.Runs, before) {
			t.Fatalf("it was %+v, and became %+v", before, p.Runs)
		}
	}
}
