package httpapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/internal/metric"
	"github.com/weir-log/weir/internal/pathname"
	"github.com/weir-log/weir/store/memory"
)

// raw sends bytes as they are on a connection of its own, and returns the answers, until the server
// closes it or more than enough answers came.
func (d *door) raw(request string) (answers []*http.Response) {
	d.t.Helper()
	c, err := d.dial(d.t.Context(), "tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	go io.WriteString(c, request) // a server that has enough closes, and this fails
	in := bufio.NewReader(c)
	for len(answers) < 3 {
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			return answers
		}
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		answers = append(answers, r)
	}
	return answers
}

// H1
func TestOversizedRequestsAreRefused(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	const post = "POST /v1/topics/orders/events HTTP/1.1\r\nHost: localhost\r\n"
	endless := strings.Repeat(fmt.Sprintf("%x\r\n%s\r\n", 64<<10, strings.Repeat("x", 64<<10)), 300)
	for name, c := range map[string]struct {
		request string
		status  int
	}{
		"a header of 1 MB":   {post + "X: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", 431},
		"10,000 headers":     {post + strings.Repeat("X: y\r\n", 10_000) + "\r\n", 431},
		"a URL of 1 MB":      {"GET /" + strings.Repeat("x", 1<<20) + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 431},
		"chunks without end": {post + "Transfer-Encoding: chunked\r\n\r\n" + endless, 413},
		"a length past all":  {post + "Content-Length: 99999999999\r\n\r\n", 413},
	} {
		got := d.raw(c.request)
		if len(got) != 1 || got[0].StatusCode != c.status {
			t.Errorf("%s: %v, want %d", name, got, c.status)
		}
	}
	if n := d.end("orders", 0); n != 0 {
		t.Errorf("the log holds %d records, want none", n)
	}
}

// H1, H7
func TestBodyThatDoesNotComeIsCutOff(t *testing.T) {
	for name, request := range map[string]string{
		"byte by byte": "Content-Length: 10\r\n\r\nx",
		"in chunks":    "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
		"after 100":    "Expect: 100-continue\r\nContent-Length: 10\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, httpapi.Config{}, func(t *testing.T, d *door) {
				d.topic("orders", 1)
				c, err := d.dial(t.Context(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				began := time.Now()
				go fmt.Fprint(c, "POST /v1/topics/orders/events HTTP/1.1\r\nHost: localhost\r\n"+request)
				synctest.Wait()
				d.do("POST", "/v1/topics/orders/events", "others").want(200, `{"partition":0,"offset":0}`)
				got, err := io.ReadAll(c)
				if err != nil || !strings.Contains(string(got), "408") || !strings.Contains(string(got), "urn:weir:problem:slow_body") {
					t.Errorf("%v %s", err, got)
				}
				if took := time.Since(began); took > 5*time.Minute {
					t.Errorf("it is cut off after %v", took)
				}
			})
		})
	}
}

// H2: a request that two readers could take for different ones publishes nothing, and its
// connection is closed.
func TestAmbiguousRequestsAreRefused(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	const post, get = "POST /v1/topics/orders/events HTTP/1.1\r\nHost: localhost\r\n", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for name, request := range map[string]string{
		"two lengths":         post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!" + get,
		"a negative length":   post + "Content-Length: -1\r\n\r\n" + get,
		"a length in words":   post + "Content-Length: five\r\n\r\n" + get,
		"an odd encoding":     post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + get,
		"two hosts":           "GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n" + get,
		"no host":             "GET /healthz HTTP/1.1\r\n\r\n" + get,
		"a folded header":     post + "X: a\r\n b\r\nX : c\r\nContent-Length: 0\r\n\r\n" + get,
		"a bare chunk length": post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + get,
	} {
		got := d.raw(request)
		if len(got) != 1 || got[0].StatusCode < 400 {
			t.Errorf("%s: %d answers, the first %v", name, len(got), got[0].Status)
		}
	}
	if n := d.end("orders", 0); n != 0 {
		t.Errorf("the log holds %d records, want none", n)
	}
}

// H2: where there are chunks and a length, the chunks count, and nothing behind them is taken for
// another request. 400 would be better, but net/http drops the length before any code of ours runs,
// and leaves no trace of it. RFC 9112, 6.1 and 6.3, allows what we do: take the chunks, and close
// the connection.
func TestChunksWithALengthEndTheConnection(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	for request, status := range map[string]int{
		"POST /v1/topics/orders/events?timestamp=1": 200,
		"POST /v1/topics/nowhere/events":            404,
		"POST /nowhere":                             404,
		"POST /v1//topics":                          404,
		"POST /v1/topics":                           415,
		"GET /v1/topics":                            200,
		"GET /healthz":                              200,
		"POST /healthz":                             405,
	} {
		got := d.raw(request + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" +
			"POST /v1/topics/orders/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n\r\nsmuggled")
		if len(got) != 1 || got[0].StatusCode != status || !got[0].Close {
			t.Errorf("%s: %d answers, want one, %d, that closes the connection", request, len(got), status)
		}
	}
	d.get("/v1/topics/orders/partitions/0/events").want(200,
		`{"events":[{"partition":0,"offset":0,"timestamp":1,"key":null,"value":"hello"}],"next_offset":1,"first_offset":0,"end_offset":1}`)
}

// H2: a body that ends early is not taken for all of it.
func TestHalfABodyIsNotPublished(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	c, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "POST /v1/topics/orders/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhello")
	c.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(c)
	if !strings.Contains(string(answer), "400 Bad Request") {
		t.Errorf("%s", answer)
	}
	if n := d.end("orders", 0); n != 0 {
		t.Errorf("the log holds %d records, want none", n)
	}
}

// H3
func TestCompressedBodies(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	gz := func(b []byte) string {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		w.Write(b)
		w.Close()
		return out.String()
	}
	zs := func(b []byte) string {
		w, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(w.EncodeAll(b, nil))
	}
	bomb := make([]byte, 64<<20)
	send := func(body, encoding string) answer {
		return d.do("POST", "/v1/topics/orders/events", body, "Content-Encoding: "+encoding)
	}
	send(gz([]byte("hello")), "gzip").want(200, `{"partition":0,"offset":0}`)
	send(zs([]byte("hello")), "zstd").want(200, `{"partition":0,"offset":1}`)
	send("hello", "identity").want(200, `{"partition":0,"offset":2}`)
	if got := d.get("/v1/topics/orders/partitions/0/events"); strings.Count(got.body, `"value":"hello"`) != 3 {
		t.Error(got.body)
	}
	send(gz(bomb), "gzip").refused(413, "too_large", `"limit":16777216`)
	send(zs(bomb), "zstd").refused(413, "too_large", `"limit":16777216`)
	send(window(t, 8<<20), "zstd").want(200, `{"partition":0,"offset":3}`)
	send(window(t, 16<<20), "zstd").refused(413, "too_large", `"limit":16777216`) // its first byte would take that much memory
	send("hello", "gzip").refused(400, "invalid_request", "cannot be read")
	send("hello", "zstd").refused(400, "invalid_request", "cannot be read")
	send(gz([]byte("hello"))[:20], "gzip").refused(400, "invalid_request", "cannot be read")
	for _, unknown := range []string{"br", "gzip, gzip", "\"", "deflate"} {
		if got := send("hello", unknown).refused(415, "unsupported_media_type", "Content-Encoding"); got.header.Get("Accept-Encoding") != "gzip, zstd" {
			t.Errorf("%v", got.header)
		}
	}
	if n := d.end("orders", 0); n != 4 {
		t.Errorf("the log holds %d records, want 4", n)
	}
}

// window is a short text in a zstd frame that asks for a window of so many bytes.
func window(t *testing.T, size int) string {
	var out strings.Builder
	w, err := zstd.NewWriter(&out, zstd.WithWindowSize(size))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"hel", "lo"} { // a frame that is written at once has a window of its own size
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// The time in which a body has to arrive is over when it has arrived: what the store takes then is
// not counted.
func TestASlowStoreIsNotASlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Store: memory.New()}
		l := newPipes()
		d := openAt(t, store, httpapi.Config{}, l, l.dial)
		defer d.stop()
		d.topic("orders", 1)
		store.took.Store(int64(15 * time.Second)) // a body has 10 s
		began := time.Now()
		d.do("POST", "/v1/topics/orders/events", window(t, 1<<20), "Content-Encoding: zstd").want(200, `{"partition":0,"offset":0}`)
		if took := time.Since(began); took < 15*time.Second {
			t.Errorf("the store took %v only", took)
		}
	})
}

// Large bodies may take all the memory that there is. Small ones get through all the same, and a
// client that sends nothing is cut off for a large one.
func TestLargeBodiesShareMemory(t *testing.T) {
	bubble(t, httpapi.Config{}.With(httpapi.Limits{BodyBytes: 1 << 20}), func(t *testing.T, d *door) {
		d.topic("orders", 1)
		c, err := d.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		go fmt.Fprintf(c, "POST /v1/topics/orders/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", 2<<20, strings.Repeat("x", 900<<10))
		synctest.Wait()
		d.do("POST", "/v1/topics/orders/events", "small").want(200, `{"partition":0,"offset":0}`)
		for i := range 3 { // the first overdraws
			d.do("POST", "/v1/topics/orders/events", strings.Repeat("x", 500<<10)).want(200, fmt.Sprintf(`{"partition":0,"offset":%d}`, 1+i))
		}
		c.Close()
	})
}

// H6
func TestOddPathsLeadNowhere(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	for _, path := range []string{
		"/v1/topics/%2e%2e%2f", "/v1/topics/..%2forders", "/v1//topics", "//v1/topics", "/v1/topics/orders/../orders", "/v1/./topics",
		"/v1/topics/%00", "/v1/topics/orders%00", "/v1/topics/orders;a=b", "/v1/topics/orders%3Ba", "/v1/topics/orders%2Fevents",
		"/v1/topics/%6frders%0A", "/v1/topics/%EF%BD%8Frders", "/v1/topics/%C0%AF", "/v1/topics/%2e", "/v1/topics/" + strings.Repeat("a", 250),
		"/v1/topics/", "/v1", "/v2/topics", "/openapi.yaml/", "/../../etc/passwd", "/%2e%2e/etc/passwd", "/debug/pprof/", "/admin",
	} {
		got := d.raw("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		if len(got) != 1 || got[0].StatusCode != 404 && got[0].StatusCode != 400 || got[0].Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %v", path, got)
		}
	}
	d.get("/v1/topics/%6frders").want(200, d.get("/v1/topics/orders").body) // the same path, written otherwise
}

// Every name can be written in a path: whatever is percent-encoded is part of it.
func TestEveryNameIsReachedByItsPath(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	d.do("POST", "/v1/categories", `{"name":"c","partitions":1}`, "Content-Type: application/json")
	for _, name := range []string{"/", "//", ".", "..", "...", ";", "a;b", "a/b", "/a", "a/", "./..", "%2F", "%", "+", " ", "?", "#", "~", "\x00", "a\x00", "\n", "ÿ", "é/;"} {
		escaped := pathname.Escape(name)
		head := func(method, path string, length int) string {
			return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", method, path, length)
		}
		send := func(method, path, body string) (int, string) {
			got := d.raw(head(method, path, len(body)) + body)
			if len(got) != 1 {
				t.Fatalf("%s %s: %d answers", method, path, len(got))
			}
			text, _ := io.ReadAll(got[0].Body)
			return got[0].StatusCode, string(text)
		}
		shown, _ := json.Marshal(name)
		if status, text := send("PUT", "/v1/groups/"+escaped+"/offsets", `{"offsets":[{"topic":"orders","partition":0,"offset":0}]}`); status/100 != 2 {
			t.Errorf("reset of group %q: %d %s", name, status, text)
		}
		if status, text := send("GET", "/v1/groups/"+escaped, ""); status != 200 || !strings.Contains(text, `"name":`+string(shown)) {
			t.Errorf("group %q: %d %s", name, status, text)
		}
		if status, text := send("GET", "/v1/groups/"+escaped+"/offsets", ""); status != 200 || !strings.Contains(text, "orders") {
			t.Errorf("offsets of group %q: %d %s", name, status, text)
		}
		if status, _ := send("POST", "/v1/groups/"+escaped, ""); status != 405 {
			t.Errorf("POST of group %q: %d", name, status)
		}
		if status, text := send("DELETE", "/v1/groups/"+escaped, ""); status != 204 {
			t.Errorf("deletion of group %q: %d %s", name, status, text)
		}
		if strings.ContainsAny(name, "\x00\n") { // no stream has control characters
			continue
		}
		if status, text := send("POST", "/v1/categories/c/streams/"+escaped+"/events", `{"events":[{"type":"t","value":1}]}`); status != 201 {
			t.Errorf("append to stream %q: %d %s", name, status, text)
		}
		if status, text := send("GET", "/v1/categories/c/streams/"+escaped+"/events", ""); status != 200 || !strings.Contains(text, `"version":1`) {
			t.Errorf("stream %q: %d %s", name, status, text)
		}
		if status, text := send("POST", "/v1/categories/c/streams/"+escaped+"/archive", ""); status != 204 {
			t.Errorf("archive of stream %q: %d %s", name, status, text)
		}
	}
}

// H7
func TestOddMethodsAndHeaders(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	for _, method := range []string{"TRACE", "PUT", "DELETE", "FOO", "OPTIONS"} {
		got := d.do(method, "/v1/topics/orders/events", "").refused(405, "method_not_allowed", "it supports GET, POST")
		if got.header.Get("Allow") != "GET, POST" {
			t.Errorf("%s: Allow %q", method, got.header.Get("Allow"))
		}
	}
	d.do("POST", "/v1/topics/orders", "", "X-HTTP-Method-Override: DELETE").refused(405, "method_not_allowed")
	d.do("GET", "/v1/topics/orders/batch", "").refused(405, "method_not_allowed")
	d.do("POST", "/v1/topics/orders/batch", `{}`, "Content-Type: text/xml").refused(415, "unsupported_media_type", "application/x-ndjson")
	d.do("POST", "/v1/topics/orders/batch", `{}`).refused(415, "unsupported_media_type")
	d.get("/v1/topics/orders", "Range: bytes=0-3").want(200, d.get("/v1/topics/orders").body)
	if got := d.do("HEAD", "/v1/topics/orders/events", ""); got.status != 200 || got.body != "" {
		t.Errorf("HEAD of a stream: %d %q", got.status, got.body)
	}
	for host, status := range map[string]int{
		"localhost": 200, "LOCALHOST:8080": 200, "127.0.0.1": 200, "127.0.0.1:8080": 200, "[::1]:8080": 200, "localhost.": 200,
		"evil.example": 421, "evil.example:8080": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "": 400,
	} {
		got := d.raw("GET /v1/topics HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")
		if host == "" {
			status = 421
		}
		if len(got) != 1 || got[0].StatusCode != status {
			t.Errorf("Host %q: %v, want %d", host, got, status)
		}
	}
}

// H9
func TestPagesOfOtherSitesAreRefused(t *testing.T) {
	d := open(t, httpapi.Config{})
	d.topic("orders", 1)
	const path = "/v1/topics/orders/events"
	d.do("POST", path, "a", "Content-Type: text/plain", "Origin: http://evil.example").refused(403, "foreign_origin")
	d.do("POST", path, "a", "Sec-Fetch-Site: cross-site").refused(403, "foreign_origin")
	d.do("POST", path, "a", "Sec-Fetch-Site: same-site").refused(403, "foreign_origin")
	d.do("POST", path, "a", "Origin: null").refused(403, "foreign_origin")
	d.do("DELETE", "/v1/topics/orders", "", "Origin: http://localhost:3000").refused(403, "foreign_origin")
	if n := d.end("orders", 0); n != 0 {
		t.Errorf("the log holds %d records, want none", n)
	}
	preflight := d.do("OPTIONS", path, "", "Origin: http://evil.example", "Access-Control-Request-Method: POST")
	reading := d.get("/v1/topics", "Origin: http://evil.example")
	for _, a := range []answer{preflight, reading, d.get("/healthz"), d.get("/nowhere")} {
		for name := range a.header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%d has %s: %v", a.status, name, a.header[name])
			}
		}
		if a.header.Get("X-Content-Type-Options") != "nosniff" || strings.Contains(a.header.Get("Content-Type"), "html") {
			t.Errorf("%d: %v", a.status, a.header)
		}
	}
	if preflight.status != 405 {
		t.Errorf("the preflight: %d", preflight.status)
	}
	d.do("POST", path, "a", "Sec-Fetch-Site: same-origin").want(200, `{"partition":0,"offset":0}`)
}

// H16
func TestClientsDoNotWriteOurLogOrLabels(t *testing.T) {
	registry := prometheus.NewRegistry()
	d := open(t, httpapi.Config{Metrics: registry, Observer: metric.NewHTTP(registry)})
	d.topic("orders", 1)
	for i := range 300 {
		d.get(fmt.Sprintf("/v1/topics/topic-%d", i)).refused(404, "unknown_topic")
		d.get(fmt.Sprintf("/path-%d", i)).refused(404, "not_found")
		d.do(fmt.Sprintf("METHOD%d", i), "/v1/topics", "").refused(405, "method_not_allowed")
	}
	page := d.get("/metrics").body
	if n := strings.Count(page, "weir_http_request_seconds_count"); n > 5 {
		t.Errorf("%d series", n)
	}
	if strings.Contains(page, "topic-1") || strings.Contains(page, "METHOD1") {
		t.Error("a client's words are labels")
	}
	d.get("/v1/topics/a%0Alevel=ERROR%20msg=forged").refused(400, "invalid_request", `\\n`)
	for given, taken := range map[string]bool{"abc-123": true, "a b": false, "\"": true, strings.Repeat("x", 129): false, "é": false} {
		got := d.get("/v1/topics", "X-Request-Id: "+given).header.Get("X-Request-Id")
		if (got == given) != taken || got == "" {
			t.Errorf("X-Request-Id %q became %q", given, got)
		}
	}
	if strings.Contains(d.said.String(), "forged") {
		t.Errorf("the log says\n%s", d.said.String())
	}
}

// knownAs is a listener whose connections come from the addresses that a test names.
type knownAs struct {
	net.Listener
	addresses chan string // one for each connection
}

func (l knownAs) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return comesFrom{c, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(<-l.addresses), 1))}, nil
}

type comesFrom struct {
	net.Conn
	address net.Addr
}

func (c comesFrom) RemoteAddr() net.Addr { return c.address }

// One connection too many is closed, and its client may come back.
func TestOneAddressHasHalfOfTheConnectionsThatOthersLeave(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := knownAs{inner, make(chan string, 1)}
	d := openAt(t, memory.New(), httpapi.Config{}.With(httpapi.Limits{Conns: 9}), l, new(net.Dialer).DialContext)
	connect := func(from string) (c net.Conn, served bool) {
		l.addresses <- from
		c, err := net.Dial("tcp", d.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		_, err = http.ReadResponse(bufio.NewReader(c), nil)
		return c, err == nil
	}
	var first net.Conn
	for _, of := range []struct {
		address string
		has     int // of the 9
	}{{"192.0.2.1", 5}, {"192.0.2.2", 2}, {"2001:db8::1", 1}, {"2001:db8::2", 0}, {"2001:db8:0:1::1", 1}, {"192.0.2.3", 0}} {
		for i := range of.has {
			c, served := connect(of.address)
			if !served {
				t.Fatalf("%s has %d connections, want %d", of.address, i, of.has)
			}
			if first == nil {
				first = c
			}
		}
		if _, served := connect(of.address); served {
			t.Fatalf("%s has more than %d connections", of.address, of.has)
		}
	}
	first.Close()
	for served := false; !served; _, served = connect("192.0.2.3") { // the server sees it in its own time
	}
}
