package httpapi_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// compressed puts n events of so many bytes into a partition, as a client that compresses well
// would.
func (d *door) compressed(topic string, partition, n, size int) {
	d.t.Helper()
	now := time.Now().UnixMilli()
	records := make([]batch.Record, n)
	for i := range records {
		records[i].Timestamp, records[i].Value = now, []byte(strings.Repeat("x", size))
	}
	raw, err := batch.Seal(records, batch.Gzip)
	if err != nil {
		d.t.Fatal(err)
	}
	of, err := d.log.Topic(d.t.Context(), topic)
	if err != nil {
		d.t.Fatal(err)
	}
	one := eventlog.Batch{Partition: of.Partitions[partition], Records: int32(n), MaxTime: eventlog.Timestamp(now), Bytes: raw}
	if _, err := d.log.Append(d.t.Context(), eventlog.Entry{Batches: []eventlog.Batch{one}}); err != nil {
		d.t.Fatal(err)
	}
}

// ask sends a request and reads nothing of the answer.
func (d *door) ask(path string) net.Conn {
	d.t.Helper()
	c, err := d.dial(d.t.Context(), "", "")
	if err != nil {
		d.t.Fatal(err)
	}
	go fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nConnection: close\r\n\r\n", path)
	return c
}

// live is how much memory is in use.
func live() int64 {
	runtime.GC()
	runtime.GC() // pools keep what they have for one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// However many readers do not take their answers, and however small the events were on their way
// in, the answers take no more memory than they may; and each reader gets its events once it reads.
func TestReadersShareARoom(t *testing.T) {
	const readers, room, connection = 50, 1 << 20, 64 << 10
	for kind, path := range map[string]func(d *door, i int) string{
		"a page":   func(*door, int) string { return "/v1/topics/orders/partitions/0/events" },
		"a stream": func(*door, int) string { return "/v1/topics/orders/events?from=earliest" },
		"a member": func(d *door, i int) string {
			return d.join(fmt.Sprint("g", i), `{"topics":["orders"]}`).path + "/events"
		},
	} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, httpapi.Config{}.With(httpapi.Limits{FetchBytes: room}), func(t *testing.T, d *door) {
				d.topic("orders", 1)
				d.compressed("orders", 0, 30, 100<<10)
				var paths []string
				for i := range readers {
					paths = append(paths, path(d, i))
				}
				before := live()
				var conns []net.Conn
				for _, p := range paths {
					conns = append(conns, d.ask(p))
				}
				synctest.Wait()
				if took := live() - before; took > room+readers*connection {
					t.Errorf("%d readers that take nothing cost %d bytes; %d are theirs", readers, took, room)
				}
				first := make(chan string)
				for _, c := range conns {
					go func() {
						defer c.Close()
						in := bufio.NewReader(c)
						answer, err := http.ReadResponse(in, nil)
						if err != nil {
							first <- err.Error()
							return
						}
						got := make([]byte, 1<<10)
						if _, err := io.ReadFull(answer.Body, got); err != nil || !strings.Contains(string(got), `"offset":0`) {
							first <- fmt.Sprintf("%d %s, %v", answer.StatusCode, got, err)
							return
						}
						first <- ""
					}()
				}
				for range conns {
					if wrong := <-first; wrong != "" {
						t.Errorf("a reader gets %s", wrong)
					}
				}
			})
		})
	}
}

// Readers that wait for their turn to decode hold no memory that others wait for, and get their
// events when it is their turn.
func TestReadersThatWaitToDecodeGiveBackTheirMemory(t *testing.T) {
	const readers = 20
	bubble(t, httpapi.Config{}.With(httpapi.Limits{FetchBytes: 1 << 20}), func(t *testing.T, d *door) {
		d.topic("orders", 1)
		for range 4 {
			d.do("POST", "/v1/topics/orders/events", strings.Repeat("x", 30<<10))
		}
		d.queue("mail", "")
		d.asJSON("PUT", "/v1/queues/mail/schedules/s", `{"cron":"@daily","message":{"value":1}}`)
		release, err := d.server.TakeDecoders(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		answers := make(chan string, readers)
		for range readers {
			go func() { answers <- d.get("/v1/topics/orders/partitions/0/events").body }()
		}
		synctest.Wait()
		began := time.Now()
		if a := d.get("/v1/queues/mail/schedules/s"); a.status != 200 || time.Since(began) > 3*time.Second {
			t.Errorf("another's answer came with %d after %v", a.status, time.Since(began))
		}
		if len(answers) > 0 {
			t.Fatalf("%d readers have decoded without a turn", len(answers))
		}
		release()
		for range readers {
			if a := <-answers; !strings.Contains(a, `"offset":0`) {
				t.Fatalf("a reader got %.200s", a)
			}
		}
	})
}

// Who announces a body and sends ten bytes of it costs a connection, whatever the ten bytes
// promise.
func TestBodiesThatDoNotComeTakeNoMemory(t *testing.T) {
	const clients, connection = 50, 48 << 10
	for name, c := range map[string]struct{ encoding, begins string }{
		"zstd with a large window": {"zstd", "\x28\xb5\x2f\xfd" + "\x00\x68" + "\x0a\x00\x00a"}, // RFC 8878: the magic number, a window of 8 MiB, and a block that repeats a letter
		"gzip":                     {"gzip", "\x1f\x8b\b\x00\x00\x00\x00\x00\x00\xff"},
		"plain":                    {"identity", "0123456789"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
				d.topic("orders", 1)
				d.do("POST", "/v1/topics/orders/events", "a")
				before := live()
				for range clients {
					conn, err := d.dial(t.Context(), "", "")
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					go fmt.Fprintf(conn, "POST /v1/topics/orders/events HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: %s\r\nContent-Length: 15000000\r\n\r\n%s", c.encoding, c.begins)
				}
				synctest.Wait()
				if took := live() - before; took > clients*connection {
					t.Errorf("%d clients that sent 10 bytes each cost %d bytes", clients, took)
				}
			})
		})
	}
}

// zeros is a body that counts what is taken of it, one piece at a time.
type zeros struct{ taken atomic.Int64 }

const piece = 1 << 10

func (z *zeros) Read(b []byte) (int, error) {
	n := min(len(b), piece)
	clear(b[:n])
	z.taken.Add(int64(n))
	return n, nil
}

// What HTTP/2 takes of a body that nobody reads is held for as long as the request waits.
func TestHTTP2TakesLittleOfABodyThatNobodyReads(t *testing.T) {
	lender := httptest.NewTLSServer(nil) // has a certificate for 127.0.0.1
	lender.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(lender.Certificate())
	for _, c := range []struct {
		requests int
		window   int64 // docs/http.md has these numbers
	}{{1, 64 << 10}, {5, 128 << 10}} {
		t.Run(fmt.Sprint(c.requests), func(t *testing.T) {
			cfg := httpapi.Config{TLS: &tls.Config{Certificates: lender.TLS.Certificates}}.With(httpapi.Limits{Polls: c.requests})
			bubble(t, cfg, func(t *testing.T, d *door) {
				d.topic("orders", 1)
				dials := 0
				client := &http.Client{Transport: &http.Transport{
					DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
						dials++
						return d.dial(ctx, network, address)
					},
					TLSClientConfig:   &tls.Config{RootCAs: trusted},
					ForceAttemptHTTP2: true,
				}}
				defer client.CloseIdleConnections()
				get := func(path string, body io.Reader) string {
					r, err := http.NewRequestWithContext(t.Context(), "GET", "https://127.0.0.1"+path, body)
					if err != nil {
						return err.Error()
					}
					response, err := client.Do(r)
					if err != nil {
						return err.Error()
					}
					defer response.Body.Close()
					got, err := io.ReadAll(response.Body)
					return fmt.Sprint(response.Proto, " ", response.StatusCode, " ", string(got), " ", err)
				}
				get("/healthz", nil) // connects
				const page = "/v1/topics/orders/partitions/0/events?wait_ms=60000"
				var body zeros
				answers := make(chan string, c.requests)
				for range c.requests {
					go func() { answers <- get(page, io.LimitReader(&body, 1<<20)) }()
				}
				synctest.Wait() // until the door waits for events, and the client for the windows
				if got := get(page, nil); !strings.Contains(got, "HTTP/2.0 503") || !strings.Contains(got, "requests that wait for events") {
					t.Errorf("%d requests do not wait: one more gets %s", c.requests, got)
				}
				if n := body.taken.Load(); n < c.window || n > c.window+int64(c.requests)*piece { // the client takes a piece before it waits
					t.Errorf("%d bytes are taken of bodies that nobody reads; want %d, and a piece of each at most", n, c.window)
				}
				d.compressed("orders", 0, 1, 5)
				for range c.requests {
					if got := <-answers; !strings.HasPrefix(got, "HTTP/2.0 200") || !strings.Contains(got, `"xxxxx"`) {
						t.Errorf("a request that waited gets %s", got)
					}
				}
				if dials != 1 {
					t.Errorf("%d connections, want one for all requests", dials)
				}
			})
		})
	}
}

// What a claim said was read before it waits, and others may send large bodies meanwhile.
func TestClaimsThatWaitHoldNoBodies(t *testing.T) {
	bubble(t, httpapi.Config{}.With(httpapi.Limits{BodyBytes: 64 << 10}), func(t *testing.T, d *door) {
		d.topic("orders", 1)
		d.queue("mail", "")
		body := `{"wait_ms":60000}` + strings.Repeat(" ", 40<<10)
		for range 3 {
			c, err := d.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			go fmt.Fprintf(c, "POST /v1/queues/mail/claim HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			synctest.Wait()
		}
		if got := d.do("POST", "/v1/topics/orders/events", strings.Repeat("x", 40<<10)); got.status != 200 {
			t.Errorf("while claims wait an event of 40 KiB is answered %d %s", got.status, got.body)
		}
	})
}

// Readers that take nothing are cut off while others wait for the memory: a page, and a list that
// was made whole.
func TestReadersThatTakeNothingStopNobody(t *testing.T) {
	bubble(t, httpapi.Config{}.With(httpapi.Limits{FetchBytes: 1 << 20}), func(t *testing.T, d *door) {
		d.topic("orders", 1)
		d.compressed("orders", 0, 30, 100<<10)
		d.topic("wide", 5000)
		const page, list = "/v1/topics/orders/partitions/0/events", "/v1/topics/wide"
		for range 20 {
			defer d.ask(page).Close()
			defer d.ask(list).Close()
		}
		synctest.Wait()
		for _, path := range []string{page, list} {
			began := time.Now()
			if got := d.get(path); got.status != 200 {
				t.Errorf("%s: %d %.200s", path, got.status, got.body)
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("%s: it waits %v", path, took)
			}
		}
	})
}

// An event that is larger than the room comes all the same, alone.
func TestEventLargerThanTheRoomIsRead(t *testing.T) {
	for _, room := range []int64{1, 1 << 20} {
		t.Run(fmt.Sprint(room), func(t *testing.T) { readsLargeEvents(t, room) })
	}
}

func readsLargeEvents(t *testing.T, room int64) {
	d := open(t, httpapi.Config{}.With(httpapi.Limits{FetchBytes: room}))
	d.topic("orders", 2)
	d.compressed("orders", 0, 2, 3<<20)
	for _, value := range []string{strings.Repeat("y", 500<<10), "small"} {
		d.do("POST", "/v1/topics/orders/events?partition=1", value)
	}
	type page struct {
		Events []struct {
			Partition int
			Value     string
		}
		Next       string
		NextOffset int64 `json:"next_offset"`
	}
	var got page
	d.get("/v1/topics/orders/partitions/0/events").decode(&got)
	if len(got.Events) != 1 || len(got.Events[0].Value) != 3<<20 || got.NextOffset != 1 {
		t.Errorf("a page of %d events, then %d", len(got.Events), got.NextOffset)
	}
	l := d.listen("/v1/topics/orders/events?from=earliest")
	sizes := map[int]int{}
	for _, v := range l.values(4) {
		sizes[len(v)]++
	}
	l.close()
	if sizes[3<<20] != 2 || sizes[500<<10] != 1 || sizes[5] != 1 {
		t.Errorf("the stream has, by size, %v", sizes)
	}
	c := d.join("g", `{"topics":["orders"]}`)
	for seen := 0; seen < 4; {
		var got page
		d.get(c.path + "/events?wait_ms=10000").decode(&got)
		if len(got.Events) == 0 {
			t.Fatalf("the member gets nothing after %d events", seen)
		}
		seen += len(got.Events)
		c.commit(`{"next":"`+got.Next+`"}`).want(204, "")
	}
}

// Clients that send much of their bodies and then nothing are cut off while others wait for the
// memory.
func TestSilentBodiesStopNobody(t *testing.T) {
	bubble(t, httpapi.Config{}.With(httpapi.Limits{BodyBytes: 1 << 20}), func(t *testing.T, d *door) {
		d.topic("orders", 1)
		for range 20 {
			c, err := d.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			go fmt.Fprintf(c, "POST /v1/topics/orders/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15000000\r\n\r\n%s", strings.Repeat("x", 300<<10))
		}
		synctest.Wait()
		began := time.Now()
		for i := range 5 {
			d.do("POST", "/v1/topics/orders/events", strings.Repeat("x", 40<<10)).want(200, fmt.Sprintf(`{"partition":0,"offset":%d}`, i))
		}
		if took := time.Since(began); took > 20*time.Second { // each of the 20 is cut off within a second of its turn
			t.Errorf("they wait %v", took)
		}
	})
}

// Pages of a queue's messages that nobody takes hold half of the memory for answers at most: others
// get theirs at once.
func TestPagesThatAreNotTakenLeaveMemoryForOthers(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.queue("mail", "")
		for range 100 {
			d.enqueued("/v1/queues/mail/messages", strings.Repeat("x", 50<<10))
		}
		for range 20 {
			defer d.ask("/v1/queues/mail/messages?max=1000").Close()
		}
		synctest.Wait()
		began := time.Now()
		if got := d.claim("mail", `{}`); len(got.Messages) != 1 || time.Since(began) > 0 {
			t.Errorf("a claim got %d messages, after %v", len(got.Messages), time.Since(began))
		}
	})
}

// A small body that becomes a large entry claims the memory of the entry, and is refused while
// there is none.
func TestAnAppendClaimsTheMemoryOfWhatItBecomes(t *testing.T) {
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.category("c")
		var tags []string
		for n := range 10 {
			tags = append(tags, fmt.Sprintf(`"%d%s"`, n, strings.Repeat("é", 120))) // each byte is three in a key
		}
		name := strings.Repeat("é", 120)
		list := `{"type":"t","tags":[` + strings.Join(tags, ",") + `]}`
		one := `{"events":[` + list + `]}`
		all := `{"streams":[{"category":"c","stream":"` + name + `","events":[` + list + `]}]}`
		var held []func()
		for _, n := range []int64{128 << 20, 1} { // all, and one body more
			release, err := d.server.HoldBodies(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, release)
		}
		d.asJSON("POST", "/v1/categories/c/streams/"+url.PathEscape(name)+"/events", one).refused(503, "overloaded", "limit")
		d.asJSON("POST", "/v1/categories/append", all).refused(503, "overloaded", "limit")
		d.asJSON("POST", "/v1/categories/c/streams/small/events", `{"events":[{"type":"t","tags":["a"]}]}`).want(201, `{"first":0,"version":1}`)
		for _, release := range held {
			release()
		}
		d.asJSON("POST", "/v1/categories/c/streams/"+url.PathEscape(name)+"/events", one).want(201, `{"first":0,"version":1}`)
		d.asJSON("POST", "/v1/categories/append", all).want(201, `{"streams":[{"first":1,"version":2}]}`)
	})
}

// A follower that does not read holds its events and its encoder, and both count.
func TestAFollowersEncoderIsInTheBudget(t *testing.T) {
	const size = 100 << 10
	bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
		d.topic("t", 1)
		d.do("POST", "/v1/topics/t/events", strings.Repeat("v", size)).want(200, `{"partition":0,"offset":0}`)
		d.category("c")
		d.fill("c", "s", 1, size)
		for _, path := range []string{"/v1/topics/t/events?from=earliest", "/v1/categories/c/streams/s/events"} {
			before := d.server.HeldByAnswers()
			c := d.ask(path)
			head := make([]byte, 32)
			if _, err := io.ReadFull(c, head); err != nil {
				t.Fatal(err)
			}
			go func() { // takes the head of the answer, and nothing of the event
				for {
					if n, err := c.Read(head); err != nil || strings.Contains(string(head[:n]), "vvvv") {
						return
					}
				}
			}()
			synctest.Wait()
			if held := d.server.HeldByAnswers() - before; held < 2*size+httpapi.EncoderBytes {
				t.Errorf("%s: %d bytes count, want %d for the event and its batch, and %d for the encoder", path, held, 2*size, httpapi.EncoderBytes)
			}
			c.Close()
			synctest.Wait()
		}
	})
}
