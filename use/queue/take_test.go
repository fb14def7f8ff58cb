package queue

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
func aState(t *testing.T, parts ...string) *state {
	t.Helper()
	s := &state{writer: "before"}
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
		p := s.part(eventlog.Partition(i))
		p.floor, p.next = floor, floor
		for _, r := range runs {
			r.from = p.next
			p.runs, p.next = append(p.runs, r), r.end()
		}
	}
	return s
}

// describe is a part as a text: what aState reads, but with spaces and names.
func (p *part) describe() string {
	var text []string
	for _, r := range p.runs {
		what := fmt.Sprintf("%d-%d %s", r.from, r.end()-1, fateNames[r.fate])
		if r.attempt > 0 {
			what += fmt.Sprintf(" #%d", r.attempt)
		}
		if r.until > 0 {
			what += fmt.Sprintf(" until %d", r.until)
		}
		if r.worker != "" {
			what += " by " + r.worker
		}
		if r.reason != "" {
			what += " after " + r.reason
		}
		text = append(text, what)
	}
	return strings.Join(text, ", ")
}

// offsets is a list of grants as a text: offsets with their attempts.
func offsets(granted []grant) string {
	text := make([]string, len(granted))
	for i, g := range granted {
		text[i] = fmt.Sprintf("%d#%d", g.offset, g.attempt)
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
		from    candidates
		wish    wish
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
			from: candidates{end: 1}, granted: "0#1", next: "0-0 claimed #1 until 1500 by w",
		},
		"none": {
			from: candidates{first: 3, end: 3}, stays: true,
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
			parts: []string{other + "#1+1001@1w#1+1001"}, from: candidates{end: 2}, stays: true,
			next: "0-0 claimed #1 until 1001 by v, 1-1 waiting #1 until 1001",
		},
		"those that were given back, as their first attempt": {
			parts: []string{"w+1s"}, granted: "0#1 1#1", next: "0-1 claimed #1 until 1500 by w",
		},
		"the last attempt is spent": {
			parts: []string{other + "2#3+900@1"}, from: candidates{limits: limits{attempts: 3}},
			granted: "2#1 3#1", spent: "0#3 1#3",
			next: "0-1 claimed #3 until 900 by v, 2-3 claimed #1 until 1500 by w",
		},
		"a message that its worker gave back is not spent": {
			parts: []string{"w#3+900"}, from: candidates{end: 1, limits: limits{attempts: 3}},
			granted: "0#4", next: "0-0 claimed #4 until 1500 by w",
		},
		"the window is full": {
			parts: []string{other + "2#1+2000@1"}, from: candidates{limits: limits{window: 2}}, stays: true,
			next: "0-1 claimed #1 until 2000 by v",
		},
		"the window has one place": {
			parts: []string{other + "#1+2000@1"}, from: candidates{limits: limits{window: 2}},
			granted: "1#1", next: "0-0 claimed #1 until 2000 by v, 1-1 claimed #1 until 1500 by w",
		},
		"a full window does not keep what was started": {
			parts: []string{"sw#1+900" + other + "#1+2000@1"}, from: candidates{limits: limits{window: 2}},
			granted: "1#2", next: "0-0 waiting, 1-1 claimed #2 until 1500 by w, 2-2 claimed #1 until 2000 by v",
		},
		"a queue that is paused": {
			parts: []string{"w#1+900"}, from: candidates{limits: limits{paused: true}}, stays: true,
			next: "0-0 waiting #1 until 900",
		},
		"concurrency counts all partitions, and leases that have not ended": {
			parts:   []string{"", other + "2#1+2000@1" + other + "#2-1100"},
			from:    candidates{limits: limits{concurrency: 3}},
			granted: "0#1", allowed: 1, next: "0-0 claimed #1 until 1500 by w",
		},
		"concurrency leaves none": {
			parts: []string{"", other + "2#1+2000@1"}, from: candidates{limits: limits{concurrency: 1}},
			allowed: none, stays: true,
		},
		"a rate begins with the claims of a second": {
			from: candidates{limits: limits{rate: 1}}, granted: "0#1", allowed: 1,
			next: "0-0 claimed #1 until 1500 by w",
		},
		"a sweep claims more than is handed out": {
			wish: wish{sweep: 4}, granted: "0#1 1#1 2#1 3#1", next: "0-3 claimed #1 until 1500 by w",
		},
		"a sweep claims more than the limits allow": {
			wish: wish{sweep: 4}, from: candidates{limits: limits{rate: 1}},
			granted: "0#1 1#1 2#1 3#1", allowed: 1, next: "0-3 claimed #1 until 1500 by w",
		},
		"a sweep claims none if the limits allow none": {
			wish: wish{sweep: 4}, parts: []string{"", other + "#1+2000@1"},
			from: candidates{limits: limits{concurrency: 1}}, allowed: none, stays: true,
		},
		"what the log has no more": {
			parts: []string{other + "3#1+900@1"}, from: candidates{first: 2},
			granted: "2#2 3#1", next: "2-2 claimed #2 until 1500 by w, 3-3 claimed #1 until 1500 by w",
		},
		"a repeated wish gets what it had, a millisecond longer": {
			parts: []string{"w#1+900" + mine + "3#1+1400@0"}, wish: wish{repeats: true},
			granted: "1#1 2#1", found: true,
			next: "0-0 waiting #1 until 900, 1-2 claimed #1 until 1401 by w, 3-3 claimed #1 until 1400 by w",
		},
		"a repeated wish gets what it had, in a queue that is paused": {
			parts: []string{mine + "#1+1400@0"}, wish: wish{repeats: true},
			from:    candidates{limits: limits{paused: true}},
			granted: "0#1", found: true, next: "0-0 claimed #1 until 1401 by w",
		},
		"a repeated wish gets others after what its caller has": {
			parts: []string{mine + "#1+1400@0"}, wish: wish{repeats: true, own: map[MessageID]bool{{0, 0}: false}},
			granted: "1#1 2#1", next: "0-0 claimed #1 until 1400 by w, 1-2 claimed #1 until 1500 by w",
		},
		"a repeated wish gets nothing of another worker, nor with another nonce": {
			parts: []string{mine + "#1+1400@1" + other + "#1@0"}, from: candidates{end: 2}, wish: wish{repeats: true},
			stays: true, next: "0-0 claimed #1 until 1400 by v, 1-1 claimed #1 until 1400 by w",
		},
		"a repeated wish whose leases ended gets them as another attempt": {
			parts: []string{mine + "#1+1000@0"}, from: candidates{end: 1}, wish: wish{repeats: true},
			granted: "0#2", next: "0-0 claimed #2 until 1500 by w",
		},
		"a wish that is not repeated does not get what its nonce has": {
			parts: []string{mine + "#1+1400@0"}, from: candidates{end: 1}, stays: true,
			next: "0-0 claimed #1 until 1400 by w",
		},
		"one of each key": { // a b a b
			from:    candidates{end: 4, order: (&keys{before: []eventlog.Offset{-1, -1, 0, 1}}).order},
			wish:    wish{most: 3},
			granted: "0#1 1#1", allowed: 3, next: "0-1 claimed #1 until 1500 by w, 2-3 waiting",
		},
		"keys that are taken are skipped, and that is put": { // a a a b
			parts: []string{other + "#1+2000@1"},
			from:  candidates{end: 3, order: (&keys{before: []eventlog.Offset{-1, 0, 1}}).order},
			next:  "0-0 claimed #1 until 2000 by v, 1-2 waiting",
		},
		"nothing from where keys are not known": {
			from:    candidates{end: 4, order: (&keys{before: []eventlog.Offset{-1}}).order},
			granted: "0#1", next: "0-0 claimed #1 until 1500 by w",
		},
	} {
		t.Run(name, func(t *testing.T) {
			parts := c.parts
			if parts == nil {
				parts = []string{""}
			}
			s, before := aState(t, parts...), aState(t, parts...)
			if c.from.end == 0 {
				c.from.end = 10
			}
			if c.from.limits.window == 0 {
				c.from.limits.window = 100
			}
			switch c.allowed {
			case 0:
				c.allowed = 2
			case none:
				c.allowed = 0
			}
			w := c.wish
			w.most, w.now, w.until, w.nonce, w.worker = max(w.most, 2), 1000, 1500, nonce, "w"
			next, got, changed := s.take(c.from, w)
			if !reflect.DeepEqual(s, before) {
				t.Errorf("the state that it was taken from became %+v, from %+v", s, before)
			}
			if is := next.part(0).describe(); is != c.next {
				t.Errorf("the state became %q,\nwant %q", is, c.next)
			}
			if offsets(got.granted) != c.granted || offsets(got.spent) != c.spent || changed == c.stays {
				t.Errorf("granted %q, spent %q, changed %v", offsets(got.granted), offsets(got.spent), changed)
			}
			if got.allowed != c.allowed || got.found != c.found {
				t.Errorf("%d may be handed out, found %v", got.allowed, got.found)
			}
			if len(parts) > 1 && !reflect.DeepEqual(next.parts[1:], before.parts[1:]) {
				t.Errorf("other partitions became %+v", next.parts[1:])
			}
		})
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
		from := candidates{end: 1000, limits: limits{window: 1000, rate: 3}}
		next, got, _ := s.take(from, wish{most: 5, sweep: c.sweep, now: c.now, until: c.now + 1_000_000})
		if got.allowed != c.allows || min(len(got.granted), got.allowed) != c.allows {
			t.Errorf("at %d: %d of %d may be handed out, want %d", c.now, got.allowed, len(got.granted), c.allows)
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
		p := s.part(0)
		from := candidates{first: p.floor, end: p.next + eventlog.Offset(rng.IntN(2))}
		from.limits.window = int64(1 + rng.IntN(8))
		w := wish{most: 1, now: 1000, until: 1500, nonce: 1, worker: "w", repeats: rng.IntN(2) == 0}
		seen := s.prospect(from, w)
		_, got, _ := s.take(from, w)
		if seen.free != (len(got.granted) > 0) || seen.unresolved != (len(p.runs) > 0) {
			t.Fatalf("%s, of %+v: %+v, and %q was granted", p.describe(), from, seen, offsets(got.granted))
		}
		if seen.free {
			free++
			continue
		}
		if w.now += Time(seen.wait / time.Millisecond); seen.wait == time.Minute {
			continue // nothing becomes free by itself
		}
		ends := func(r run) bool { return r.fate != done && r.until > 1000 && r.until <= w.now }
		if !slices.ContainsFunc(p.runs, ends) {
			t.Fatalf("%s: no lease ends within %v", p.describe(), seen.wait)
		}
		if w.now--; slices.ContainsFunc(p.runs, ends) {
			t.Fatalf("%s: a lease ends before %v", p.describe(), seen.wait)
		}
	}
	if free < 200 || free > 1900 {
		t.Errorf("%d of 2000 had a message", free)
	}
	if seen := new(state).prospect(candidates{first: 3, end: 3}, wish{}); seen != (prospect{wait: time.Minute}) {
		t.Errorf("of an empty partition nobody claimed from: %+v", seen)
	}
	if seen := new(state).prospect(candidates{first: 3, end: 4}, wish{}); !seen.free {
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
		p := *aState(t, randomRuns(rng)).part(0)
		before := slices.Clone(p.runs)
		other := p
		for range 3 {
			if n := int64(other.next - other.floor); n > 0 && rng.IntN(2) == 0 {
				from := other.floor + eventlog.Offset(rng.Int64N(n))
				n = 1 + rng.Int64N(int64(other.next-from))
				other.set(run{from: from, n: n, fate: []fate{done, waiting}[rng.IntN(2)]})
			} else {
				other.trimmed(other.floor + eventlog.Offset(rng.IntN(3)))
			}
		}
		other.reach(other.next + 2)
		if !slices.Equal(p.runs, before) {
			t.Fatalf("it was %+v, and became %+v", before, p.runs)
		}
	}
}
