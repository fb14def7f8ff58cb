package httpapi_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store/memory"
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

func (d *door) follow(path string, headers ...string) answer {
	d.t.Helper()
	return d.do("GET", path, "", append(headers, "Accept: text/event-stream")...)
}

func (d *door) listen(path string, headers ...string) *listener {
	d.t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+d.addr+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	answer, err := d.client.Do(r)
	if err != nil {
		d.t.Fatalf("%s: %v", path, err)
	}
	d.t.Cleanup(func() { leave(); answer.Body.Close() })
	if answer.StatusCode != 200 {
		why, _ := io.ReadAll(answer.Body)
		d.t.Fatalf("%s: %s %s", path, answer.Status, why)
	}
	l := &listener{t: d.t, answer: answer, lines: bufio.NewScanner(answer.Body), leave: leave}
	l.lines.Buffer(nil, 32<<20)
	return l
}

func (l *listener) close() {
	l.leave()
	l.answer.Body.Close()
}

// messageMax is how long a test waits for an event: one that was skipped does not come. In a bubble
// the time is fake.
const messageMax = time.Minute

// message returns the next server-sent event's type and data; ok is false at the end of the stream,
// and where nothing comes for messageMax. Comments and positions alone are passed over.
func (l *listener) message() (kind, data string, ok bool) {
	late := time.AfterFunc(messageMax, l.leave)
	defer func() {
		if !late.Stop() {
			l.t.Errorf("within %v no event came", messageMax)
		}
	}()
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
		all := d.listen("/v1/topics/orders/events?from=earliest")
		if got := all.answer.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("Content-Type %s", got)
		}
		news := d.listen("/v1/topics/orders/events")
		one := d.listen("/v1/topics/orders/events?partition=2", "Accept: application/x-ndjson")
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

// A client that is cut off anywhere comes back with the last id it saw and goes on with the next
// event: none is lost, none comes twice.
func TestStreamResumesExactly(t *testing.T) { bubble(t, httpapi.Config{}, resumesExactly) }

func resumesExactly(t *testing.T, d *door) {
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
		l := d.listen("/v1/topics/orders/events?from=earliest", headers...)
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
	l := d.listen("/v1/topics/orders/events?from=" + id)
	d.do("POST", "/v1/topics/orders/events", "new")
	if got := l.values(1); got[0] != "new" {
		t.Errorf("after all events comes %q", got)
	}
	l.close()
}

// A client that was cut off before it saw an event has a position nevertheless.
func TestStreamHasAPositionFromTheStart(t *testing.T) {
	bubble(t, httpapi.Config{}, hasAPositionFromTheStart)
}

func hasAPositionFromTheStart(t *testing.T, d *door) {
	d.topic("orders", 1)
	d.do("POST", "/v1/topics/orders/events", "before")
	l := d.listen("/v1/topics/orders/events")
	for l.id == "" && l.lines.Scan() {
		if name, value, _ := strings.Cut(l.lines.Text(), ": "); name == "id" {
			l.id = value
		}
	}
	l.close()
	d.do("POST", "/v1/topics/orders/events", "meanwhile")
	back := d.listen("/v1/topics/orders/events", "Last-Event-ID: "+l.id)
	if got := back.values(1); got[0] != "meanwhile" {
		t.Errorf("after the position comes %q", got)
	}
	back.close()
}

func TestStreamTellsOfAGap(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	for i := range 5 {
		d.do("POST", "/v1/topics/orders/events", fmt.Sprint(i))
	}
	first := d.listen("/v1/topics/orders/events?from=earliest")
	first.values(1)
	first.close()
	topic, err := d.log.Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.log.Trim(t.Context(), topic.Partitions[0], 3); err != nil {
		t.Fatal(err)
	}
	l := d.listen("/v1/topics/orders/events", "Last-Event-ID: "+first.id)
	kind, data, _ := l.message()
	if kind != "gap" || data != `{"partition":0,"gap":{"from":1,"to":3}}` {
		t.Errorf("%s %s", kind, data)
	}
	if got := l.values(2); !slices.Equal(got, []string{"3", "4"}) {
		t.Errorf("after the gap come %q", got)
	}
	lines := d.listen("/v1/topics/orders/events?from=0:1", "Accept: application/x-ndjson")
	if lines.lines.Scan(); lines.lines.Text() != `{"partition":0,"gap":{"from":1,"to":3}}` {
		t.Error(lines.lines.Text())
	}
}

func TestStreamBeginsOnlyWhereItCan(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 2)
	l := d.listen("/v1/topics/orders/events")
	d.do("POST", "/v1/topics/orders/events", "a")
	l.values(1)
	d.follow("/v1/topics/orders/events?from=0:1,1:7").refused(416, "offset_out_of_range", `"end_offset":0`, "holds no events")
	for _, bad := range []string{"yesterday", "0", "0:", ":1", "0:-1", "0:1,", "abc/0:1", "/", "99999999999:1"} {
		d.follow("/v1/topics/orders/events?from="+bad).refused(400, "invalid_request", "partition:offset")
	}
	d.follow("/v1/topics/orders/events?from=2:0").refused(404, "unknown_partition")
	d.follow("/v1/topics/orders/events?partition=2").refused(404, "unknown_partition")
	d.follow("/v1/topics/orders/events?partition=x").refused(400, "invalid_request")
	d.follow("/v1/topics/nowhere/events").refused(404, "unknown_topic")

	if err := d.log.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := l.message(); ok || l.lines.Err() != nil {
		t.Errorf("the stream of a deleted topic goes on, or breaks: %v", l.lines.Err())
	}
	d.topic("orders", 2)
	d.follow("/v1/topics/orders/events", "Last-Event-ID: "+l.id).refused(410, "topic_recreated")
}

// An idle stream hears of new partitions when this process does, and not when its wait ends.
func TestStreamGetsNewPartitionsAtOnce(t *testing.T) {
	for name, other := range map[string]bool{"added here": false, "added by another process": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, l := memory.New(), newPipes()
				d := openAt(t, store, httpapi.Config{}, l, l.dial)
				defer d.stop()
				d.topic("orders", 1)
				stream := d.listen("/v1/topics/orders/events")
				synctest.Wait()
				began, log := time.Now(), d.log
				if other {
					log = anotherLog(t, store)
				}
				if _, err := log.ChangeTopic(t.Context(), "orders", eventlog.TopicChange{Partitions: 2}); err != nil {
					t.Fatal(err)
				}
				if _, err := publish.New(log, publish.Config{}).Publish(t.Context(), publish.Event{Topic: "orders", Partition: new(int32(1)), Value: []byte("in the new one")}); err != nil {
					t.Fatal(err)
				}
				got := stream.values(1)
				if took := time.Since(began); got[0] != "in the new one" || took > 100*time.Millisecond {
					t.Errorf("%q comes after %v", got, took)
				}
			})
		})
	}
}

// A stream of a topic that another process deletes, or deletes and makes again, ends when this
// process hears of it.
func TestStreamEndsWithItsTopic(t *testing.T) {
	for name, again := range map[string]bool{"deleted": false, "made again": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, l := memory.New(), newPipes()
				d := openAt(t, store, httpapi.Config{}, l, l.dial)
				defer d.stop()
				d.topic("orders", 1)
				stream := d.listen("/v1/topics/orders/events")
				synctest.Wait()
				began, other := time.Now(), anotherLog(t, store)
				if err := other.DeleteTopic(t.Context(), "orders"); err != nil {
					t.Fatal(err)
				}
				if again {
					if _, err := other.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
						t.Fatal(err)
					}
				}
				_, data, more := stream.message()
				if took := time.Since(began); more || took > 100*time.Millisecond {
					t.Errorf("after %v: %q", took, data)
				}
			})
		})
	}
}

// anotherLog is another process on a store.
func anotherLog(t *testing.T, store eventlog.Store) *eventlog.Log {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store, eventlog.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- log.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	return log
}

func TestIdleStreamSaysThatItIsAlive(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.topic("orders", 1)
		began := time.Now()
		l := d.listen("/v1/topics/orders/events")
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

// taken reads from a connection until it is cut off: so many bytes at a time, with a pause between.
func taken(t *testing.T, c net.Conn, piece int, pause time.Duration) (text string, took time.Duration) {
	began := time.Now()
	var got strings.Builder
	for buf := make([]byte, piece); ; time.Sleep(pause) { // fake time
		n, err := io.ReadFull(c, buf)
		got.Write(buf[:n])
		if err != nil {
			return got.String(), time.Since(began)
		}
		if time.Since(began) > 5*time.Minute {
			t.Error("a slow reader is not cut off within 5 minutes")
			c.Close()
		}
	}
}

// H13: who stops reading is cut off, holds up nobody meanwhile, and comes back to the very next
// event.
func TestSlowReaderIsCutOff(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.topic("orders", 1)
		slow := d.ask("/v1/topics/orders/events")
		id, in := "", bufio.NewReader(slow)
		for id == "" {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if name, value, _ := strings.Cut(strings.TrimSpace(line), ": "); name == "id" {
				id = value
			}
		}
		in.Discard(in.Buffered())
		synctest.Wait()
		began := time.Now()
		d.do("POST", "/v1/topics/orders/events", strings.Repeat("a", 10_000)).want(200, `{"partition":0,"offset":0}`)
		d.get("/v1/topics/orders/partitions/0/events?max=1")
		if took := time.Since(began); took > time.Second {
			t.Errorf("others waited for %v", took)
		}
		time.Sleep(time.Minute)
		if rest, _ := io.ReadAll(in); len(rest) > 5000 {
			t.Errorf("after a minute %d bytes are still to be had", len(rest))
		}
		back := d.listen("/v1/topics/orders/events", "Last-Event-ID: "+id)
		if got := back.values(1); got[0] != strings.Repeat("a", 10_000) {
			t.Errorf("it comes back to %.10q", got[0])
		}
		back.close()
	})
}

// Slow readers hold the room for events for as long as a page may take, and not for as long as they
// like: others get theirs.
func TestSlowReadersStarveNobody(t *testing.T) {
	for _, path := range []string{"stream?from=earliest", "partitions/0/events?max=1000&wait_ms=60000"} {
		bubble(t, httpapi.Config{}.With(httpapi.Limits{FetchBytes: 2 << 20}), func(t *testing.T, d *door) {
			d.topic("orders", 1)
			for range 20 {
				d.do("POST", "/v1/topics/orders/events", strings.Repeat("x", 100_000))
			}
			var slow sync.WaitGroup
			for range 8 {
				slow.Go(func() {
					if _, took := taken(t, d.ask("/v1/topics/orders/"+path), 4<<10, 3*time.Second); took > time.Minute {
						t.Errorf("%s: a slow reader is cut off after %v only", path, took)
					}
				})
			}
			synctest.Wait()
			if got := d.get("/v1/topics/orders/partitions/0/events?max=1"); got.status != 200 {
				t.Errorf("beside readers of %s: %d %s", path, got.status, got.body)
			}
			slow.Wait()
		})
	}
}

// Who takes a large page at the least rate has all the time that this needs.
func TestASteadyReaderIsNotCutOff(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.topic("orders", 1)
		for range 10 {
			d.do("POST", "/v1/topics/orders/events", strings.Repeat(`"`, 100_000)) // twice as long in JSON
		}
		began := time.Now()
		text, _ := taken(t, d.ask("/v1/topics/orders/partitions/0/events"), 16<<10, 170*time.Millisecond)
		if took := time.Since(began); len(text) < 2_000_000 || took < 16*time.Second {
			t.Errorf("%d bytes in %v", len(text), took)
		}
	})
}

// HTTP/2 ends a stream whose time to write is up, also one that has nothing to say.
func TestIdleStreamsStayOverHTTP2(t *testing.T) {
	lender := httptest.NewTLSServer(nil) // of a certificate
	lender.Close()
	trusted := lender.Client().Transport.(*http.Transport).TLSClientConfig
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		d := openAt(t, memory.New(), httpapi.Config{TLS: &tls.Config{Certificates: lender.TLS.Certificates}}.With(httpapi.Limits{KeepAlive: time.Hour}), l, l.dial)
		defer d.stop()
		d.topic("orders", 1)
		transport := &http.Transport{DialContext: l.dial, TLSClientConfig: trusted.Clone(), ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequest("GET", "https://"+d.addr+"/v1/topics/orders/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		answer, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.ProtoMajor != 2 {
			t.Fatalf("the protocol is %s", answer.Proto)
		}
		time.Sleep(10 * time.Minute) // fake time
		if _, err := publish.New(d.log, publish.Config{}).Publish(t.Context(), publish.Event{Topic: "orders", Value: []byte("a")}); err != nil {
			t.Fatal(err)
		}
		stream := &listener{t: t, answer: answer, lines: bufio.NewScanner(answer.Body)}
		if got := stream.values(1); got[0] != "a" {
			t.Errorf("%q", got)
		}
	})
}

func TestStreamsAreBounded(t *testing.T) {
	d := open(t, httpapi.Config{}.With(httpapi.Limits{Streams: 1}))
	d.topic("orders", 1)
	l := d.listen("/v1/topics/orders/events")
	d.follow("/v1/topics/orders/events").refused(503, "overloaded", `"limit":1`)
	l.close()
	for { // the server sees the client go in its own time
		r, err := d.client.Get("http://" + d.addr + "/v1/topics/orders/events")
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
		l := d.listen("/v1/topics/orders/events?from=earliest", "Accept: application/x-ndjson")
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

// The position of a topic with as many partitions as a stream may have is one that a client can
// come back with.
func TestLongPositionsResume(t *testing.T) {
	d := open(t, httpapi.Config{})
	const most = 2048
	d.topic("orders", most)
	of, err := d.log.Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	random := seed.Random(t)
	var e eventlog.Entry
	for _, p := range of.Partitions { // nobody reads these
		e.Batches = append(e.Batches, eventlog.Batch{Partition: p, Records: random.Int32(), Bytes: []byte{0}})
	}
	if _, err := d.log.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	l := d.listen("/v1/topics/orders/events")
	d.do("POST", "/v1/topics/orders/events?partition=2000", "a")
	l.values(1)
	l.close()
	if len(l.id) < 8<<10 {
		t.Errorf("the position has only %d letters", len(l.id))
	}
	d.do("POST", "/v1/topics/orders/events?partition=7", "b")
	for _, back := range []*listener{d.listen("/v1/topics/orders/events", "Last-Event-ID: "+l.id), d.listen("/v1/topics/orders/events?from=" + l.id)} {
		if got := back.values(1); got[0] != "b" {
			t.Errorf("after the position comes %q", got)
		}
	}

	open := d.listen("/v1/topics/orders/events")
	if _, err := d.log.ChangeTopic(t.Context(), "orders", eventlog.TopicChange{Partitions: most + 1}); err != nil {
		t.Fatal(err)
	}
	d.do("POST", "/v1/topics/orders/events?partition=7", "c")
	for open.lines.Scan() { // it ends
	}
	d.follow("/v1/topics/orders/events").refused(413, "too_large", `"limit":2048`, "partition=", "ndjson")
	d.listen("/v1/topics/orders/events", "Accept: application/x-ndjson")
	one := d.listen("/v1/topics/orders/events?partition=2048&from=earliest")
	d.do("POST", "/v1/topics/orders/events?partition=2048", "d")
	if got := one.values(1); got[0] != "d" || len(one.id) > 30 {
		t.Errorf("%q at %s", got, one.id)
	}
}

// faraway is a store that has its bounds at hand, and no events for so many reads.
type faraway struct {
	eventlog.Store
	away, tries atomic.Int64
}

func (s *faraway) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	for _, span := range spans {
		if span.MaxBytes > 0 {
			s.tries.Add(1)
			if s.away.Add(-1) >= 0 {
				return nil, fmt.Errorf("%w: connection refused", eventlog.ErrUnavailable)
			}
		}
	}
	return s.Store.Read(ctx, spans, maxBytes)
}

// While the store is away a stream stays, looks once a second, and goes on.
func TestStreamHoldsOnWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faraway{Store: memory.New()}
		l := newPipes()
		before := openAt(t, store, httpapi.Config{}, l, l.dial)
		before.topic("orders", 1)
		before.do("POST", "/v1/topics/orders/events", "a")
		before.stop()

		l = newPipes()
		d := openAt(t, store, httpapi.Config{}, l, l.dial) // has nothing in memory
		defer d.stop()
		store.away.Store(30)
		began := time.Now()
		stream := d.listen("/v1/topics/orders/events?from=earliest")
		if got := stream.values(1); got[0] != "a" {
			t.Errorf("%q", got)
		}
		if took := time.Since(began); took < 20*time.Second || took > time.Minute || store.tries.Load() < 31 {
			t.Errorf("%d tries in %v", store.tries.Load(), took)
		}
		stream.close()
	})
}
