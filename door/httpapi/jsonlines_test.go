package httpapi

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"
)

// The place of an error is that of a count from the start, wherever the reader failed before.
func TestThePlaceOfAnErrorDoesNotDependOnEarlierOnes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	in := make([]byte, 300)
	for i := range in {
		in[i] = "ab\n"[random.IntN(3)]
	}
	r := &jsonReader{in: in, line: 7}
	for range 2000 {
		r.pos = random.IntN(len(in) + 1)
		p := problemOf(r.fail("x"))
		read := in[:r.pos]
		line, column := 8+bytes.Count(read, []byte("\n")), len(read)-bytes.LastIndexByte(read, '\n')
		if p.Line != line || p.Column != column {
			t.Fatalf("position %d: line %d, column %d; want %d, %d", r.pos, p.Line, p.Column, line, column)
		}
	}
}

// 10,000 errors at the end of 8 MiB take a moment; counting 8 MiB for each takes a minute.
func TestManyErrorsInALargeBodyAreCountedOnce(t *testing.T) {
	for name, filler := range map[string][]byte{"lines": []byte("\n"), "one line": []byte(" ")} {
		body := append([]byte(`{"events":[`), bytes.Repeat(filler, 8<<20)...)
		body = append(append(body, bytes.Repeat([]byte("5,"), eventsMax-1)...), "5]}"...)
		began := time.Now()
		items, err := parseEvents(body, true)
		if err != nil || len(items) != eventsMax {
			t.Fatalf("%d items, %v", len(items), err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: it takes %v", name, took)
		}
	}
}
