package httpapi_test

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weir-log/weir/door/httpapi"
)

// inUse is live, with the stacks of goroutines.
func inUse() int64 {
	heap := live()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return heap + int64(m.StackInuse)
}

// waiting sends n requests, and reads what comes.
func (d *door) waiting(n int, method, path, body, accept string) (conns []net.Conn) {
	d.t.Helper()
	for range n {
		c, err := d.dial(d.t.Context(), "", "")
		if err != nil {
			d.t.Fatal(err)
		}
		conns = append(conns, c)
		go func() {
			fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, accept, len(body), body)
			_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 512))
		}()
	}
	synctest.Wait()
	return conns
}

// What waits takes no more memory than it has claimed, however many partitions there are, and gives
// all of it back.
func TestWhatWaitsIsInTheBudget(t *testing.T) {
	const requests, partitions = 100, 2048
	const client = 8 << 10 // what the test takes for each
	for name, r := range map[string][4]string{
		"a stream of server-sent events": {"GET", "/v1/topics/wide/events", "", "text/event-stream"},
		"a stream of lines":              {"GET", "/v1/topics/wide/events", "", "application/x-ndjson"},
		"a stream of one partition":      {"GET", "/v1/topics/wide/events?partition=7", "", "application/x-ndjson"},
		"a follower":                     {"GET", "/v1/categories/c/streams/s/events", "", "text/event-stream"},
		"a long poll":                    {"GET", "/v1/topics/wide/partitions/0/events?wait_ms=60000", "", "*/*"},
		"a claim":                        {"POST", "/v1/queues/mail/claim", `{"wait_ms":60000}`, "*/*"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
				d.topic("wide", partitions)
				d.asJSON("POST", "/v1/categories", fmt.Sprintf(`{"name":"c","partitions":%d}`, partitions))
				d.fill("c", "s", 1, 10)
				d.queue("mail", "")
				d.waiting(1, r[0], r[1], r[2], r[3])[0].Close() // what is made once
				synctest.Wait()
				before := inUse()
				conns := d.waiting(requests, r[0], r[1], r[2], r[3])
				took, held := inUse()-before-requests*client, d.server.HeldByWaits()
				t.Logf("each takes %d bytes, and claims %d", took/requests, held/requests)
				if held < requests*httpapi.WaitBytes || took > held {
					t.Errorf("%d requests that wait take %d bytes, and claim %d", requests, took, held)
				}
				if most := int64(requests * (httpapi.WaitBytes + 8*partitions)); held > most {
					t.Errorf("%d requests that wait claim %d bytes, want %d at most", requests, held, most)
				}
				for _, c := range conns {
					c.Close()
				}
				synctest.Wait()
				if held := d.server.HeldByWaits(); held != 0 {
					t.Errorf("%d bytes are claimed for requests that are over", held)
				}
			})
		})
	}
}

// A member that waits claims what each of its partitions takes.
func TestAMembersPartitionsAreInTheBudget(t *testing.T) {
	const partitions = 2048
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.topic("wide", partitions)
		m := d.join("g", `{"topics":["wide"]}`)
		before := inUse()
		c := d.waiting(1, "GET", m.path+"/events?wait_ms=60000", "", "*/*")[0]
		took, held := inUse()-before, d.server.HeldByWaits()
		t.Logf("it takes %d bytes, and claims %d", took, held)
		if took > held || held < partitions*64 {
			t.Errorf("a member that waits for %d partitions takes %d bytes, and claims %d", partitions, took, held)
		}
		c.Close()
		synctest.Wait()
		if held := d.server.HeldByWaits(); held != 0 {
			t.Errorf("%d bytes are claimed for requests that are over", held)
		}
	})
}

// Streams of many partitions that one event wakes, all at the same time, claim what each takes to
// read it.
func TestStreamsThatWakeTogetherStayWithinTheBudget(t *testing.T) {
	const streams, partitions, room = 100, 2048, 4 << 20
	bubble(t, httpapi.Config{}.With(httpapi.Limits{FetchBytes: room}), func(t *testing.T, d *door) {
		d.topic("wide", partitions)
		conns := d.waiting(streams, "GET", "/v1/topics/wide/events", "", "application/x-ndjson")
		release, err := d.server.TakeDecoders(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before := inUse()
		d.do("POST", "/v1/topics/wide/events", "x")
		synctest.Wait()
		took := inUse() - before
		t.Logf("they take %d bytes more", took)
		if took > room+room/4+64<<10 {
			t.Errorf("%d streams that have an event to decode take %d bytes, and may take %d", streams, took, room)
		}
		release()
		for _, c := range conns {
			c.Close()
		}
	})
}

// A client's requests that wait have a quarter of the memory, and what does not fit is told so at
// once.
func TestWhatWaitsBeyondTheBudgetIsRefused(t *testing.T) {
	bubble(t, httpapi.Config{}.With(httpapi.Limits{WaitBytes: 3 * httpapi.WaitBytes}), func(t *testing.T, d *door) {
		d.topic("orders", 1)
		const poll = "/v1/topics/orders/partitions/0/events?wait_ms=60000"
		conns := d.waiting(3, "GET", poll, "", "*/*")
		if a := d.get(poll); a.status != 503 || !strings.Contains(a.body, "overloaded") || !strings.Contains(a.body, fmt.Sprint(3*httpapi.WaitBytes)) {
			t.Errorf("%d %s", a.status, a.body)
		}
		conns[0].Close()
		synctest.Wait()
		d.get("/v1/topics/orders/partitions/0/events?wait_ms=1").want(200, `{"events":[],"next_offset":0,"first_offset":0,"end_offset":0}`)
	})
}
