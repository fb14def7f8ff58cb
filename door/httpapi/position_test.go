package httpapi

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/use/group"
)

func TestPositionsAreReadAsTheyAreWritten(t *testing.T) {
	random := seed.Random(t)
	for range 2000 {
		p := make(positions, 1+random.IntN(40))
		for n := range p {
			if random.IntN(3) > 0 {
				p[n] = eventlog.Offset(random.Int64() >> random.IntN(63))
			}
		}
		of := eventlog.Topic{ID: eventlog.TopicID{byte(random.Int())}, Partitions: make([]eventlog.Partition, len(p))}
		epoch := random.Int32() >> random.IntN(31)
		text := string(p.appendTo(nil, of, epoch))
		got, in, err := parsePositions(text, of)
		if err != nil || !slices.Equal(got, p) || in != epoch {
			t.Fatalf("%v of epoch %d became %s, and that %v of %d, %v", p, epoch, text, got, in, err)
		}
		of.Partitions = of.Partitions[1:]
		if _, _, err := parsePositions(text, of); p[len(p)-1] > 0 && (err == nil || problemOf(err).Status != 404) {
			t.Errorf("%s in a topic with a partition less: %v", text, err)
		}
	}
}

// Positions that people or older versions wrote are read, too. They have no epoch.
func TestWrittenPositionsAreRead(t *testing.T) {
	of := eventlog.Topic{ID: eventlog.TopicID{0x3f, 0x2a, 0x91, 0xc0}, Partitions: make([]eventlog.Partition, 3)}
	for text, want := range map[string]positions{"0:13,2:40": {13, 0, 40}, "2:40": {0, 0, 40}, "3f2a91c0/": {0, 0, 0}, "3f2a91c0/0:13,2:40": {13, 0, 40}, "3f2a91c0.": {0, 0, 0}, "3f2a91c0.AAEaAQE2": {13, 0, 40}} {
		if got, epoch, err := parsePositions(text, of); err != nil || !slices.Equal(got, want) || epoch != unknownEpoch {
			t.Errorf("%s: %v of epoch %d, %v", text, got, epoch, err)
		}
	}
	run := func(raw ...byte) string { return "3f2a91c0." + base64.RawURLEncoding.EncodeToString(raw) }
	for _, text := range []string{"", "0:1,0:1", "0:1,0:2", "3f2a91c0/0:1,0:2", "3f2a91c0.AA=", "3f2a91c0.*", "3f2a91c0..", "3f2a91c0..-1", "3f2a91c0..2147483648", "3f2a91c0..0.0", "3f2a91c0/.0", "3f2a91c0/0:1.0", "0:1.0", run(0), run(0, 0), run(0, 1), run(0, 1, 0), run(0, 1, 1), run(0, 1, 0x80),
		run(0, 0xff, 0xff, 0xff, 0xff, 0x07, 2), run(0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2), run(0, 2, 2, 3)} {
		if got, _, err := parsePositions(text, of); err == nil || problemOf(err).Status != 400 {
			t.Errorf("%q is read as %v, %v", text, got, err)
		}
	}
	if _, _, err := parsePositions(run(3, 1, 2), of); err == nil || problemOf(err).Status != 404 {
		t.Errorf("a partition that is not there: %v", err)
	}
}

// What was forged or damaged is refused, or says something else in the one form in which weir says
// it.
func FuzzPositions(f *testing.F) {
	of := eventlog.Topic{ID: eventlog.TopicID{0x3f, 0x2a, 0x91, 0xc0}, Partitions: make([]eventlog.Partition, 41)}
	for _, seed := range []string{"", "0:13,2:40", "3f2a91c0/", "3f2a91c0/0:13,2:40", "3f2a91c0.", "3f2a91c0.AAEaAQE2", "3f2a91c0..0", "3f2a91c0.AAEaAQE2.28512345", "3f2a91c0.AAEaAQE2.", "3f2a91c0.AAEaAQE2.0.0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, epoch, err := parsePositions(text, of)
		if err != nil {
			if status := problemOf(err).Status; status != 400 && status != 404 && status != 410 {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if epoch < unknownEpoch || slices.ContainsFunc(p, func(o eventlog.Offset) bool { return o < 0 }) {
			t.Errorf("%q is %v of epoch %d", text, p, epoch)
		}
		epoch = max(epoch, 0)
		if back, in, err := parsePositions(string(p.appendTo(nil, of, epoch)), of); err != nil || !slices.Equal(back, p) || in != epoch {
			t.Errorf("%q is %v of epoch %d, and written anew %v of %d, %v", text, p, epoch, back, in, err)
		}
	})
}

// What weir gives out as a position fits into what it takes, whatever the offsets are, and usual
// ones take three letters for each.
func TestPositionsFitIntoAHeader(t *testing.T) {
	p := make(positions, streamPartitions)
	of := eventlog.Topic{Partitions: make([]eventlog.Partition, len(p))}
	for n := range p {
		p[n] = 1
		if n%2 == 0 {
			p[n] = math.MaxInt64
		}
	}
	if size, most := len(p.appendTo(nil, of, math.MaxInt32)), headerBytesMax-4<<10; size > most {
		t.Errorf("a position has %d letters, and %d are the most", size, most)
	}
	for n := range p {
		p[n] = eventlog.Offset(5_000_000 + n%7*1000)
	}
	if size := len(p.appendTo(nil, of, math.MaxInt32)); size > 3*len(p) {
		t.Errorf("a usual position has %d letters", size)
	}
}

func randomPages(random *rand.Rand) []memberPage {
	var pages []memberPage
	for _, topic := range []string{"orders", "a", strings.Repeat("x", 249)} {
		for n := range random.IntN(5) {
			p := memberPage{of: place{topic, int32(n*n) + random.Int32()>>(random.IntN(31)), random.Int32() >> random.IntN(31)}}
			if slices.ContainsFunc(pages, func(q memberPage) bool { return q.of.topic == topic && q.of.partition == p.of.partition }) {
				continue
			}
			if p.next = eventlog.Offset(random.Int64() >> random.IntN(63)); random.IntN(3) == 0 {
				p.had = p.next
			}
			pages = append(pages, p)
		}
	}
	random.Shuffle(len(pages), func(i, j int) { pages[i], pages[j] = pages[j], pages[i] })
	return pages
}

func TestCursorsAreReadAsTheyAreWritten(t *testing.T) {
	random := seed.Random(t)
	for range 2000 {
		pages, want := randomPages(random), cursor{}
		for _, p := range pages {
			if p.next != p.had {
				want[p.of] = p.next
			}
		}
		text := cursorAfter(pages)
		if got, err := parseCursor(text); err != nil || !maps.Equal(got, want) {
			t.Fatalf("%v became %s, and that %v, %v", want, text, got, err)
		}
	}
}

// What was forged or damaged is refused, or says something else in the one form in which weir says
// it.
func FuzzCursor(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	f.Add("")
	f.Add("orders/0/1:2")
	for range 10 {
		f.Add(cursorAfter(randomPages(random)))
	}
	f.Fuzz(func(t *testing.T, text string) {
		cu, err := parseCursor(text)
		if err != nil {
			if problemOf(err).Status != 400 {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		var pages []memberPage
		for of, at := range cu {
			if of.since < 0 || of.partition < 0 || at < 0 {
				t.Errorf("%q has %v: %d", text, of, at)
			}
			pages = append(pages, memberPage{page: page{next: at}, of: of, had: -1})
		}
		// Numbers may be written longer than they need be.
		if back, err := parseCursor(cursorAfter(pages)); err != nil || !maps.Equal(back, cu) {
			t.Errorf("%q is %v, and written anew %v, %v", text, cu, back, err)
		}
	})
}

// A cursor is never longer than it may be; what it has no room for is left out of the answer, and
// in turn comes into another.
func TestCursorsHaveABound(t *testing.T) {
	random := seed.Random(t)
	var own []group.Assigned
	for n := range 2000 {
		a := group.Assigned{Topic: fmt.Sprint(strings.Repeat("t", 46), n%3), Since: random.Int32() >> random.IntN(31), Position: eventlog.Offset(random.Int64N(1e7))}
		a.Partition = int32(n)
		own = append(own, a)
	}
	served := make(map[place]bool)
	after, answers := cursor{}, 0
	for ; len(served) < len(own) && answers < 1000; answers++ {
		_, pages := after.spans(own)
		for i := range pages {
			pages[i].next = pages[i].from + eventlog.Offset(1+random.IntN(1000))
		}
		room := fit(pages)
		next := cursorAfter(pages)
		if len(next) > cursorMax {
			t.Fatalf("a cursor has %d letters", len(next))
		}
		if !room { // the client commits
			after = cursor{}
			continue
		}
		for _, p := range pages {
			if p.next > p.from {
				served[p.of] = true
			}
		}
		var err error
		if after, err = parseCursor(next); err != nil {
			t.Fatal(err)
		}
		if random.IntN(10) == 0 {
			clear(after)
		}
	}
	if len(served) < len(own) || answers < 2 {
		t.Errorf("%d of %d partitions were served in %d answers", len(served), len(own), answers)
	}
}
