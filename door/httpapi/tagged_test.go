package httpapi_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
)

// taggedPage is the answer about events with tags.
type taggedPage struct {
	Boundary string
	Events   []struct {
		Stream, ID, Type string
		Version          int64
		Value            *string
		Erased           bool
		Tags             []string
	}
}

func taggedPath(category string, tags ...string) string {
	return "/v1/categories/" + category + "/events?" + url.Values{"tag": tags}.Encode()
}

// tagged reads the events that have tags, and returns where they are.
func (d *door) tagged(category string, tags ...string) (p taggedPage, places []string) {
	d.t.Helper()
	d.get(taggedPath(category, tags...)).into(200, &p)
	for _, e := range p.Events {
		places = append(places, fmt.Sprint(e.Stream, "/", e.Version))
	}
	return p, places
}

// enrol appends an event with tags within a boundary.
func (d *door) enrol(stream, within, id string, tags ...string) answer {
	d.t.Helper()
	return d.append("course", stream, fmt.Sprintf(`{"events":[{"id":%q,"type":"t","tags":["%s"]}],"within":%q}`, id, strings.Join(tags, `","`), within))
}

func TestTagsAreReadAndBoundAppends(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{})
		d.category("course")
		const student, seats = "student:7 &é/%", "course:1"
		d.append("course", "a/b", `{"events":[{"type":"defined","tags":["course:1"],"timestamp":1},{"type":"other","timestamp":2}]}`)
		d.append("course", "s7", `{"events":[{"type":"enrolled","tags":["`+student+`"],"subject":"ann","value":"x","timestamp":3},{"type":"subscribed","tags":["course:1","`+student+`"],"value":{"n":1},"timestamp":4}]}`)
		read, places := d.tagged("course", seats, student)
		if e := read.Events; !slices.Equal(places, []string{"a/b/0", "s7/0", "s7/1"}) || e[0].Type != "defined" || *e[1].Value != "x" || *e[2].Value != `{"n":1}` || !slices.Equal(e[2].Tags, []string{seats, student}) {
			t.Fatalf("%v %+v", places, read)
		}
		none, places := d.tagged("course", "nobody has it")
		if len(places) > 0 || none.Boundary == "" {
			t.Errorf("%v %+v", places, none)
		}

		d.append("course", "x", `{"events":[{"type":"t","tags":["course:2"]}]}`).want(201, `{"first":0,"version":1}`) // an unrelated one
		d.enrol("s8", read.Boundary, "1", seats).want(201, `{"first":0,"version":1}`)
		d.enrol("s8", read.Boundary, "1", seats).want(200, `{"first":0,"version":1,"duplicate":true}`)
		d.enrol("s9", read.Boundary, "1", seats).refused(412, "boundary_conflict", "Nothing was appended", "read the tags again")
		d.get("/v1/categories/course/streams/s9/events").refused(404, "unknown_stream")
		again, places := d.tagged("course", student)
		if len(places) != 2 {
			t.Errorf("%v", places)
		}
		d.enrol("s9", again.Boundary, "1", seats, student).want(201, `{"first":0,"version":1}`)
		d.enrol("s9", none.Boundary, "2", "nobody has it").want(201, `{"first":1,"version":2}`)
		d.enrol("s9", none.Boundary, "3", "nobody has it").refused(412, "boundary_conflict")
		// Both must hold: the boundary, and the version.
		now, _ := d.tagged("course", seats)
		d.append("course", "s9", fmt.Sprintf(`{"events":[{"type":"t"}],"within":%q}`, now.Boundary), `If-Match: "1"`).refused(412, "version_conflict", `"version":2`)
		d.append("course", "s9", fmt.Sprintf(`{"events":[{"type":"t"}],"within":%q}`, now.Boundary), `If-Match: "2"`).want(201, `{"first":2,"version":3}`)

		d.asJSON("POST", "/v1/categories/course/subjects/forget", `{"subject":"ann"}`).want(204, "")
		if read, _ := d.tagged("course", student); !read.Events[0].Erased || read.Events[0].Value != nil {
			t.Errorf("of a forgotten subject: %+v", read.Events[0])
		}
	})
}

func TestTagsThatCannotBeRead(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("course")
	d.category("other")
	d.topic("plain", 1)
	d.get("/v1/categories/course/events").refused(400, "invalid_request", "at least 1")
	for _, tags := range [][]string{{""}, {"a", "a"}, {strings.Repeat("x", 256)}, {"a\nb"}, {"\xff"}, strings.Split("a b c d e f g h i j k l m n o p q", " ")} {
		d.get(taggedPath("course", tags...)).refused(400, "invalid_request")
	}
	d.get("/v1/categories/course/events?tags=a").refused(400, "invalid_request", "did you mean tag?")
	d.get(taggedPath("none", "a")).refused(404, "unknown_category")
	d.get(taggedPath("plain", "a")).refused(404, "unknown_category")
	elsewhere, _ := d.tagged("other", "a")
	const one = `{"events":[{"type":"t"}],"within":%q}`
	d.append("course", "s", fmt.Sprintf(one, elsewhere.Boundary)).refused(400, "invalid_request", "another category")
	for _, text := range []string{"x", "====", "e30", "bnVsbA", "WzFd", "eyJhIjoxfQ", elsewhere.Boundary + "A", elsewhere.Boundary[1:]} {
		d.append("course", "s", fmt.Sprintf(one, text)).refused(400, "invalid_request", "boundary")
	}
	d.append("course", "s", fmt.Sprintf(one, "")).refused(400, "invalid_json", `"pointer":"/within"`)
	d.append("course", "s", `{"events":[{"type":"t"}],"within":5}`).refused(400, "invalid_json", `"pointer":"/within"`)
	d.append("course", "s", `{"events":[{"type":"t"}],"within":null}`).want(201, `{"first":0,"version":1}`)
}

// Events with a tag come in one answer or in none: a decision that rests on a part of them would be
// wrong.
func TestTaggedEventsThatNeedTooMuchMemoryAreRefused(t *testing.T) {
	d := open(t, httpapi.Config{}.With(httpapi.Limits{FetchBytes: 1 << 20}))
	d.category("course")
	for range 2 {
		d.append("course", "s", `{"events":[{"type":"t","tags":["many"],"value":"`+strings.Repeat("v", 100<<10)+`"}]}`)
	}
	d.append("course", "s", `{"events":[{"type":"t","tags":["few"],"value":"`+strings.Repeat("v", 100<<10)+`"}]}`)
	d.get(taggedPath("course", "many")).refused(413, "too_large", `"limit":131072`, "fewer events")
	d.get(taggedPath("course", "few", "many")).refused(413, "too_large")
	if _, places := d.tagged("course", "few"); !slices.Equal(places, []string{"s/2"}) {
		t.Errorf("%v", places)
	}
}

// Of clients that take the last seats at the same time, so many get one as there are.
func TestSeatsAreTakenOnceOverHTTP(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("course")
	const seats, students = 2, 6
	var all sync.WaitGroup
	for i := range students {
		all.Go(func() {
			me := fmt.Sprint("student", i)
			for {
				read, places := d.tagged("course", "seats", me)
				if len(places) >= seats {
					return
				}
				switch a := d.enrol(me, read.Boundary, "1", "seats", me); a.status {
				case 201:
					return
				case 412:
				default:
					t.Errorf("%d %s", a.status, a.body)
					return
				}
			}
		})
	}
	all.Wait()
	if _, places := d.tagged("course", "seats"); len(places) != seats {
		t.Errorf("%v have %d seats", places, seats)
	}
}
