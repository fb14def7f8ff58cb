package httpapi

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/seed"
)

// The place of an error is that of a count from the start, wherever the reader failed before.
func TestThePlaceOfAnErrorDoesNotDependOnEarlierOnes(t *testing.T) {
	random := seed.Random(t)
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
		items, _, err := parseEvents(body, true)
		if err != nil || len(items) != eventsMax {
			t.Fatalf("%d items, %v", len(items), err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: it takes %v", name, took)
		}
	}
}

// What is kept of a body while it is parsed is bounded, however it is written.
func TestMembersAndHeadersOfABodyAreBounded(t *testing.T) {
	members := func(n int) string {
		var b strings.Builder
		b.WriteString("{")
		for i := range n {
			if i > 0 {
				b.WriteString(",")
			}
			fmt.Fprintf(&b, `"%d":""`, i)
		}
		return b.String() + "}"
	}
	half := members(headersMax / 2)
	event := func(headers string) string { return `{"value":"v","headers":` + headers + `}` }
	nested := strings.TrimSuffix(half, "}") + `,"in":` + half + "}"
	for name, c := range map[string]struct {
		events  []string
		headers int // -1: refused
	}{
		"two events with half of the headers":          {[]string{event(half), event(half)}, headersMax},
		"and one with one more":                        {[]string{event(half), event(half), event(`{"a":""}`)}, -1},
		"an event with too many":                       {[]string{event("[" + strings.Repeat(`{"name":"a","value":""},`, headersMax) + `{"name":"b","value":""}]`)}, -1},
		"values with many members, one after another":  {[]string{`{"value":` + half + `}`, `{"value":` + half + `}`, `{"value":` + half + `}`}, 0},
		"a value with too many members":                {[]string{`{"value":` + members(namesMax+1) + `}`}, -1},
		"a value with too many members in two objects": {[]string{`{"value":` + nested + `}`}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			_, inOne, err := parseEvents([]byte(`{"events":[`+strings.Join(c.events, ",")+`]}`), false)
			_, inLines, err2 := parseLines([]byte(strings.Join(c.events, "\n")), false)
			if c.headers < 0 {
				if err == nil || err2 == nil {
					t.Errorf("they are taken: %v, %v", err, err2)
				}
				return
			}
			if err != nil || err2 != nil || inOne != c.headers || inLines != c.headers {
				t.Errorf("%d headers (%v), and in lines %d (%v); want %d", inOne, err, inLines, err2, c.headers)
			}
		})
	}
}
