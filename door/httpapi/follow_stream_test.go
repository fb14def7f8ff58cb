package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/use/stream"
)

// followed is an event as a client that follows its stream gets it.
type followed struct {
	Version int64
	Value   string
}

// events returns the next n events of a stream, which must be neither gaps nor a deletion.
func (l *listener) events(n int) (events []followed) {
	l.t.Helper()
	for range n {
		kind, data, ok := l.message()
		var e followed
		if err := json.Unmarshal([]byte(data), &e); !ok || kind != "" || err != nil {
			l.t.Fatalf("after %d of %d events: %q %q %v %v", len(events), n, kind, data, ok, err)
		}
		events = append(events, e)
	}
	return events
}

func (l *listener) wantEvents(from, to int64) {
	l.t.Helper()
	for i, e := range l.events(int(to - from)) {
		if want := from + int64(i); e.Version != want || e.Value != fmt.Sprint("v", want) {
			l.t.Fatalf("event %d is %+v, want version %d", i, e, want)
		}
	}
}

// grow appends n events to a stream that has from of them.
func (d *door) grow(category, name string, from, n int) {
	d.t.Helper()
	var events []string
	for i := range n {
		events = append(events, fmt.Sprintf(`{"type":"t","value":"v%d"}`, from+i))
	}
	if a := d.append(category, name, `{"events":[`+strings.Join(events, ",")+`]}`); a.status != 201 {
		d.t.Fatalf("%d %s", a.status, a.body)
	}
}

func TestAStreamIsFollowedFromItsBeginningAndAsItGrows(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("orders")
	d.grow("orders", "a", 0, 2500) // more than a page
	const path = "/v1/categories/orders/streams/a/events"
	all, some, latest, early := d.listen(path), d.listen(path+"?from=2400"), d.listen(path+"?from=latest"), d.listen("/v1/categories/orders/streams/later/events")
	lines := d.listen(path+"?from=2499", "Accept: application/x-ndjson")
	all.wantEvents(0, 2500)
	some.wantEvents(2400, 2500)
	for n := 2500; n < 2600; n += 2 {
		d.grow("orders", "b", (n-2500)/2, 1)
		d.grow("orders", "a", n, 2)
		if n == 2510 {
			d.grow("orders", "later", 0, 3)
		}
	}
	all.wantEvents(2500, 2600)
	some.wantEvents(2500, 2600)
	latest.wantEvents(2500, 2600)
	early.wantEvents(0, 3)
	for n := 2499; n < 2600; n++ {
		var e followed
		if !lines.lines.Scan() || json.Unmarshal(lines.lines.Bytes(), &e) != nil || e.Version != int64(n) {
			t.Fatalf("as lines, event %d is %q", n, lines.lines.Text())
		}
	}
	all.close()
	d.grow("orders", "a", 2600, 5)
	d.listen(path, "Last-Event-ID: "+all.id).wantEvents(2600, 2605)
	d.listen(path+"?from="+all.id).wantEvents(2600, 2605)
	for _, refused := range []string{"x", "-1", "3/%zz", "9223372036854775807", ""} {
		d.follow(path+"?from="+refused).refused(400, "invalid_request")
	}
	d.get("/v1/categories/none/streams/a/events").refused(404, "unknown_category")
}

func TestWhoFollowsAStreamLearnsThatEventsAreGone(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("orders")
	orders, err := d.categories.Category(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	d.grow("orders", "a", 0, 10)
	const path = "/v1/categories/orders/streams/a/events"
	before := d.listen(path)
	before.wantEvents(0, 10)
	if err := orders.Forget(t.Context(), "a", 5); err != nil {
		t.Fatal(err)
	}
	l := d.listen(path + "?from=2")
	if kind, data, _ := l.message(); kind != "gap" || data != `{"gap":{"from":2,"to":5}}` {
		t.Errorf("%s %s", kind, data)
	}
	atGap := l.id
	l.wantEvents(5, 10)
	d.listen(path, "Last-Event-ID: "+atGap).wantEvents(5, 10)

	if _, err := orders.Delete(t.Context(), "a", stream.Any); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*listener{before, l} {
		if kind, data, _ := l.message(); kind != "deleted" || data != `{"deleted":true,"version":10}` {
			t.Errorf("%s %s", kind, data)
		}
		if kind, data, ok := l.message(); ok {
			t.Errorf("after the deletion: %s %s", kind, data)
		}
		d.follow(path, "Last-Event-ID: "+l.id).refused(404, "unknown_stream")
	}
	again := d.listen(path) // waits until it is begun again
	d.grow("orders", "a", 10, 2)
	if kind, data, _ := again.message(); kind != "gap" || data != `{"gap":{"from":0,"to":10}}` {
		t.Errorf("%s %s", kind, data)
	}
	again.wantEvents(10, 12)
	d.listen(path, "Last-Event-ID: "+l.id).wantEvents(10, 12)
}

// A store that was restored from a backup has other events at the same versions: who read the lost
// ones is told, and skips nothing.
func TestAPositionInAStreamWhoseEndWasLostIsRefused(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.category("orders")
	d.grow("orders", "a", 0, 10)
	const path = "/v1/categories/orders/streams/a/events"
	l := d.listen(path)
	l.wantEvents(0, 10)
	for _, lost := range []string{"10/another", "5/another", "11", "20/another"} {
		if got := d.follow(path, "Last-Event-ID: "+lost).refused(416, "offset_out_of_range"); !strings.Contains(got.body, "version 10") {
			t.Errorf("%s: %s", lost, got.body)
		}
	}
	next := strings.Split(l.id, "/")
	if len(next) != 2 || next[0] != "10" || next[1] == "" {
		t.Errorf("the id of the last event is %q", l.id)
	}
}

func TestAFollowedStreamThatDoesNotChangeSaysThatItIsAlive(t *testing.T) {
	bubble(t, httpapi.Config{}.With(httpapi.Limits{KeepAlive: 10 * time.Second}), func(t *testing.T, d *door) {
		d.category("orders")
		d.grow("orders", "a", 0, 1)
		l := d.listen("/v1/categories/orders/streams/a/events")
		l.wantEvents(0, 1)
		began := time.Now()
		for range 3 {
			for l.lines.Scan() && l.lines.Text() != ":" {
			}
		}
		if took := time.Since(began); took < 29*time.Second || took > 31*time.Second {
			t.Errorf("three keep-alives after %v", took)
		}
		synctest.Wait()
		d.grow("orders", "a", 1, 1)
		l.wantEvents(1, 2)
		l.close()
	})
}
