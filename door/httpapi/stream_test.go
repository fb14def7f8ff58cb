package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/publish"
)

// listener is a client of a stream.
type listener struct {
	t      testing.TB
	answer *http.Response
	lines  *bufio.Scanner
	id     string // of the last event
	leave  context.CancelFunc
}

func (d *door) listen(path string, headers ...string) *listener {
	d.t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+d.addr+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	answer, err := d.client.Do(r)
	if err != nil {
		d.t.Fatalf("%s: %v", path, err)
	}
	if answer.StatusCode != 200 {
		d.t.Fatalf("%s: %s", path, answer.Status)
	}
	l := &listener{t: d.t, answer: answer, lines: bufio.NewScanner(answer.Body), leave: leave}
	l.lines.Buffer(nil, 32<<20)
	d.t.Cleanup(l.close)
	return l
}

func (l *listener) close() {
	l.leave()
	l.answer.Body.Close()
}

// message returns the next server-sent event's type and data; ok is false at the end of the stream. Comments and positions alone are passed over.
func (l *listener) message() (kind, data string, ok bool) {
	for l.lines.Scan() {
		name, value, _ := strings.Cut(l.lines.Text(), ": ")
		switch {
		case name == "id":
			l.id = value
		case name == "event":
			kind = value
		case name == "data":
			data = value
		case l.lines.Text() == "" && data != "":
			return kind, data, true
		}
	}
	return "", "", false
}

// values returns the values of the next n events.
func (l *listener) values(n int) (values []string) {
	l.t.Helper()
	for range n {
		_, data, ok := l.message()
		if !ok {
			l.t.Fatalf("the stream ended after %q: %v", values, l.lines.Err())
		}
		values = append(values, valueIn(data))
	}
	return values
}

func valueIn(event string) string {
	_, rest, _ := strings.Cut(event, `"value":"`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

func TestStreamHasWhatIsThereAndWhatComes(t *testing.T) {
	stores(t, func(t *testing.T, store func() eventlog.Store) {
		d := openOn(t, store(), httpapi.Config{})
		d.topic("orders", 3)
		d.do("POST", "/v1/topics/orders/events", "before")
		all := d.listen("/v1/topics/orders/stream?from=earliest")
		if got := all.answer.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("Content-Type %s", got)
		}
		news := d.listen("/v1/topics/orders/stream")
		one := d.listen("/v1/topics/orders/stream?partition=2", "Accept: application/x-ndjson")
		if got := all.values(1); got[0] != "before" {
			t.Errorf("the stream begins with %q", got)
		}
		for i := range 3 {
			d.do("POST", fmt.Sprintf("/v1/topics/orders/events?partition=%d&timestamp=5", i), fmt.Sprint("after", i))
		}
		for name, l := range map[string]*listener{"from the beginning": all, "from now on": news} {
			got := l.values(3)
			slices.Sort(got)
			if !slices.Equal(got, []string{"after0", "after1", "after2"}) {
				t.Errorf("%s: %q", name, got)
			}
		}
		if !one.lines.Scan() || !same(one.lines.Text(), `{"partition":2,"offset":`+strconv.Itoa(int(d.end("orders", 2))-1)+`,"timestamp":5,"key":null,"value":"after2"}`) {
			t.Errorf("one partition, in lines: %s", one.lines.Text())
		}
		d.stop() // ends the streams
		for _, l := range []*listener{all, news, one} {
			if l.lines.Scan() && l.lines.Text() != "" || l.lines.Err() != nil {
				t.Errorf("a stream does not end cleanly: %q, %v", l.lines.Text(), l.lines.Err())
			}
		}
	})
}

// A client that is cut off anywhere comes back with the last id it saw and goes on with the next event: none is lost, none comes twice.
func TestStreamResumesExactly(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 4)
	publisher := publish.New(d.log, publish.Config{})
	const total = 500
	var events []publish.Event
	for i := range total {
		events = append(events, publish.Event{Topic: "orders", Key: []byte(strconv.Itoa(i)), Value: []byte(strconv.Itoa(i))})
	}
	if _, err := publisher.Publish(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	id, headers := "", []string(nil)
	for stretch := 1; len(seen) < total; stretch = stretch*2%37 + 1 {
		l := d.listen("/v1/topics/orders/stream?from=earliest", headers...)
		for _, v := range l.values(min(stretch, total-len(seen))) {
			seen[v]++
		}
		l.close()
		id = l.id
		headers = []string{"Last-Event-ID: " + id}
	}
	for v, n := range seen {
		if n != 1 {
			t.Errorf("event %s came %d times", v, n)
		}
	}
	l := d.listen("/v1/topics/orders/stream?from=" + id)
	d.do("POST", "/v1/topics/orders/events", "new")
	if got := l.values(1); got[0] != "new" {
		t.Errorf("after all events comes %q", got)
	}
}

// A client that was cut off before it saw an event has a position nevertheless.
func TestStreamHasAPositionFromTheStart(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	d.do("POST", "/v1/topics/orders/events", "before")
	l := d.listen("/v1/topics/orders/stream")
	for l.id == "" && l.lines.Scan() {
		if name, value, _ := strings.Cut(l.lines.Text(), ": "); name == "id" {
			l.id = value
		}
	}
	l.close()
	d.do("POST", "/v1/topics/orders/events", "meanwhile")
	if got := d.listen("/v1/topics/orders/stream", "Last-Event-ID: "+l.id).values(1); got[0] != "meanwhile" {
		t.Errorf("after the position comes %q", got)
	}
}

func TestStreamTellsOfAGap(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	for i := range 5 {
		d.do("POST", "/v1/topics/orders/events", fmt.Sprint(i))
	}
	first := d.listen("/v1/topics/orders/stream?from=earliest")
	first.values(1)
	first.close()
	topic, err := d.log.Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.log.Trim(t.Context(), topic.Partitions[0], 3); err != nil {
		t.Fatal(err)
	}
	l := d.listen("/v1/topics/orders/stream", "Last-Event-ID: "+first.id)
	kind, data, _ := l.message()
	if kind != "gap" || data != `{"partition":0,"gap":{"from":1,"to":3}}` {
		t.Errorf("%s %s", kind, data)
	}
	if got := l.values(2); !slices.Equal(got, []string{"3", "4"}) {
		t.Errorf("after the gap come %q", got)
	}
	lines := d.listen("/v1/topics/orders/stream?from=0:1", "Accept: application/x-ndjson")
	if lines.lines.Scan(); lines.lines.Text() != `{"partition":0,"gap":{"from":1,"to":3}}` {
		t.Error(lines.lines.Text())
	}
}

func TestStreamBeginsOnlyWhereItCan(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 2)
	l := d.listen("/v1/topics/orders/stream")
	d.do("POST", "/v1/topics/orders/events", "a")
	l.values(1)
	d.get("/v1/topics/orders/stream?from=0:1,1:7").refused(416, "offset_out_of_range", `"end_offset":0`, "holds nothing")
	for _, bad := range []string{"yesterday", "0", "0:", ":1", "0:-1", "0:1,", "abc/0:1", "/", "99999999999:1"} {
		d.get("/v1/topics/orders/stream?from="+bad).refused(400, "invalid_request", "partition:offset")
	}
	d.get("/v1/topics/orders/stream?from=2:0").refused(404, "unknown_partition")
	d.get("/v1/topics/orders/stream?partition=2").refused(404, "unknown_partition")
	d.get("/v1/topics/orders/stream?partition=x").refused(400, "invalid_request")
	d.get("/v1/topics/nowhere/stream").refused(404, "unknown_topic")

	if err := d.log.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := l.message(); ok || l.lines.Err() != nil {
		t.Errorf("the stream of a deleted topic goes on, or breaks: %v", l.lines.Err())
	}
	d.topic("orders", 2)
	d.get("/v1/topics/orders/stream", "Last-Event-ID: "+l.id).refused(410, "topic_recreated")
}

func TestStreamGetsNewPartitions(t *testing.T) {
	d := open(t, httpapi.Config{KeepAlive: 10 * time.Millisecond})
	d.topic("orders", 1)
	l := d.listen("/v1/topics/orders/stream")
	if _, err := d.log.AddPartitions(t.Context(), "orders", 2); err != nil {
		t.Fatal(err)
	}
	d.do("POST", "/v1/topics/orders/events?partition=1", "in the new one")
	if got := l.values(1); got[0] != "in the new one" {
		t.Errorf("%q", got)
	}
}

func TestIdleStreamSaysThatItIsAlive(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.topic("orders", 1)
		began := time.Now()
		l := d.listen("/v1/topics/orders/stream")
		comments := 0
		for comments < 3 && l.lines.Scan() {
			if l.lines.Text() == ":" {
				comments++
			}
		}
		if took := time.Since(began); comments != 3 || took > time.Minute {
			t.Errorf("%d signs of life in %v", comments, took)
		}
		l.close()
	})
}

// H13: who never reads is cut off, holds up nobody meanwhile, and can come back.
func TestSlowReaderIsCutOff(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.topic("orders", 1)
		slow, err := d.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		go fmt.Fprint(slow, "GET /v1/topics/orders/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
		synctest.Wait()
		began := time.Now()
		d.do("POST", "/v1/topics/orders/events", "a").want(200, `{"partition":0,"offset":0}`)
		d.get("/v1/topics/orders/partitions/0/events?max=1")
		if took := time.Since(began); took > time.Second {
			t.Errorf("others waited for %v", took)
		}
		synctest.Wait()
		var got bytes.Buffer
		for range time.Tick(time.Second) { // the stream's own clock runs meanwhile
			slow.SetReadDeadline(time.Now())
			if _, err := got.ReadFrom(slow); err == nil {
				break // the connection is closed
			}
			if time.Since(began) > time.Minute {
				t.Fatal("it is not cut off within a minute")
			}
			if got.Len() > 0 {
				t.Fatalf("it read %q, and was not to read at all", got.String())
			}
		}
	})
}

func TestStreamsAreBounded(t *testing.T) {
	d := open(t, httpapi.Config{Streams: 1})
	d.topic("orders", 1)
	l := d.listen("/v1/topics/orders/stream")
	d.get("/v1/topics/orders/stream").refused(503, "overloaded", `"limit":1`)
	l.close()
	for { // the server sees the client go in its own time
		r, err := d.client.Get("http://" + d.addr + "/v1/topics/orders/stream")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode == 200 {
			return
		}
	}
}

// With more events in all partitions than one fetch brings each of them gets its turn.
func TestStreamStarvesNoPartition(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.topic("orders", 3)
		big := strings.Repeat("x", 600<<10)
		for i := range 12 {
			d.do("POST", fmt.Sprintf("/v1/topics/orders/events?partition=%d", i%3), big)
		}
		l := d.listen("/v1/topics/orders/stream?from=earliest", "Accept: application/x-ndjson")
		seen := map[string]bool{}
		for range 8 {
			l.lines.Scan()
			partition, _, _ := strings.Cut(l.lines.Text(), ",")
			seen[partition] = true
		}
		if len(seen) != 3 {
			t.Errorf("the first 8 of 12 events are all of %v", seen)
		}
		l.close()
	})
}
