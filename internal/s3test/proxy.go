package s3test

import (
	"bytes"
	"context"
	"crypto/md5"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Proxy is an HTTP proxy in front of an S3 server. Faults chooses what happens to each request;
// Requests tells what happened.
//
// It passes the Host header on as it came, because the client's signature covers it.
type Proxy struct {
	address string // of the bucket, without the proxy
	target  string // the server's host and port
	front   net.Listener
	server  *http.Server
	serving chan struct{} // closed when server has ended
	back    *http.Transport
	ctx     context.Context // of requests to the server: a client that goes away does not end them
	cancel  context.CancelFunc

	choosing sync.Mutex // guards choose, and its calls
	choose   func(Request) Fault

	mu       sync.Mutex // guards all below
	requests []*Request
	active   int        // requests that are being handled
	idle     *sync.Cond // active is 0
}

// Request is a request, and what became of it.
type Request struct {
	Method, Key string // the key in the bucket
	IfNoneMatch string
	Range       string
	Fault       Fault
	Statuses    []int // what the server answered: nothing if it did not get the request, two numbers if it got it twice
}

// Fault is what a proxy does to one request. The zero value does nothing. Times and Hold come in
// addition to the others.
type Fault struct {
	Hold   <-chan struct{} // the server gets the request after this is closed
	Before time.Duration   // and this much later
	After  time.Duration   // the client gets the answer this much later

	Drop bool // the server does not get the request; the client's connection is closed
	Busy bool // the server does not get the request; the answer is 503 SlowDown
	Deny bool // the server does not get the request; the answer is 403 AccessDenied
	Late bool // the client's connection is closed at once, and then the server gets the request
	Lose bool // the client's connection is closed when the server has answered

	Lie bool // the server does not get a PUT, and the answer says that it is done: no store survives that

	Twice bool          // the server gets a PUT a second time
	Again time.Duration // this long after its first answer

	Cut  bool // of a GET's body the bytes from At on are missing, and the connection is closed
	Flip bool // one bit of byte At of a GET's body is inverted
	At   int  // modulo the body's length
}

// NewProxy starts a proxy in front of the bucket at an address that URL returned. It ends with the
// test.
func NewProxy(t testing.TB, address string) *Proxy {
	t.Helper()
	p, err := LaunchProxy(address)
	if err != nil {
		t.Fatalf("start a proxy: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}

// LaunchProxy is NewProxy for a program that is not a test. It ends with Close.
func LaunchProxy(address string) (*Proxy, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	endpoint, err := url.Parse(u.Query().Get("endpoint"))
	if err != nil || endpoint.Scheme != "http" || endpoint.Host == "" {
		return nil, fmt.Errorf("the address has the endpoint %q; http://host:port is needed", u.Query().Get("endpoint"))
	}
	p := &Proxy{address: address, target: endpoint.Host, serving: make(chan struct{}), choose: func(Request) Fault { return Fault{} }}
	p.idle = sync.NewCond(&p.mu)
	p.back = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if p.front, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	p.server = &http.Server{Handler: p}
	go func() {
		defer close(p.serving)
		_ = p.server.Serve(p.front) // until Close
	}()
	return p, nil
}

// Close ends the proxy. The server does not get requests that are still delayed.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.server.Close()
	<-p.serving
	p.Wait()
	p.back.CloseIdleConnections()
}

// URL returns the address of the bucket through the proxy.
func (p *Proxy) URL() string {
	u, _ := url.Parse(p.address)
	options := u.Query()
	options.Set("endpoint", "http://"+p.front.Addr().String())
	u.RawQuery = options.Encode()
	return u.String()
}

// Faults sets what chooses the fault of each request from now on. It is called for one request at a
// time. nil: no faults.
func (p *Proxy) Faults(choose func(Request) Fault) {
	if choose == nil {
		choose = func(Request) Fault { return Fault{} }
	}
	p.choosing.Lock()
	defer p.choosing.Unlock()
	p.choose = choose
}

// SlowPuts delays each PUT, as a distant server does.
func SlowPuts(d time.Duration) func(Request) Fault {
	return func(r Request) Fault {
		if r.Method != http.MethodPut {
			return Fault{}
		}
		return Fault{Before: d}
	}
}

// Random chooses faults that a store must survive: one request in rarity has one. No bytes are
// changed.
func Random(random *rand.Rand, rarity int) func(Request) Fault {
	return func(r Request) Fault {
		if random.IntN(rarity) > 0 {
			return Fault{}
		}
		short := func() time.Duration { return time.Duration(random.IntN(20)) * time.Millisecond }
		kinds := []Fault{
			{Before: short()}, {After: short()}, {Drop: true}, {Busy: true}, {Lose: true},
			{Late: true, Before: short()}, {Twice: true, Again: short()}, {Cut: true, At: random.IntN(1 << 16)},
		}
		return kinds[random.IntN(len(kinds))]
	}
}

// Requests returns the requests in the order in which they came.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]Request, len(p.requests))
	for i, r := range p.requests {
		all[i] = *r
		all[i].Statuses = slices.Clone(r.Statuses)
	}
	return all
}

// Wait waits until every request has ended, those that reach the server late, too.
func (p *Proxy) Wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.active > 0 {
		p.idle.Wait()
	}
}

// CreatedTwice returns the keys that the server says were created more than once: several PUTs with
// If-None-Match: * through these proxies succeeded. It is for keys that nobody deletes.
func CreatedTwice(proxies ...*Proxy) []string {
	created := map[string]int{}
	for _, p := range proxies {
		for _, r := range p.Requests() {
			for _, status := range r.Statuses {
				if r.Method == http.MethodPut && r.IfNoneMatch == "*" && status/100 == 2 {
					created[r.Key]++
				}
			}
		}
	}
	maps.DeleteFunc(created, func(_ string, n int) bool { return n < 2 })
	return slices.Sorted(maps.Keys(created))
}

func (p *Proxy) begin(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active += n; p.active == 0 {
		p.idle.Broadcast()
	}
}

// ServeHTTP handles one request. A panic with ErrAbortHandler closes the client's connection.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.begin(1)
	defer p.begin(-1)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	did := p.note(r)
	fault := did.Fault
	f := &forwarded{p, r.Clone(p.ctx), body, did}
	switch {
	case fault.Drop:
		panic(http.ErrAbortHandler)
	case fault.Busy:
		refuse(w, http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.")
		return
	case fault.Deny:
		refuse(w, http.StatusForbidden, "AccessDenied", "Access Denied")
		return
	case fault.Lie && r.Method == http.MethodPut:
		w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprintf("%x", md5.Sum(body))))
		return
	case fault.Late:
		f.later(func() {
			if p.wait(fault.Hold, fault.Before) {
				_, _, _ = f.send()
			}
		})
		panic(http.ErrAbortHandler)
	}
	if !p.wait(fault.Hold, fault.Before) {
		panic(http.ErrAbortHandler)
	}
	got, answer, err := f.send()
	if fault.Twice && r.Method == http.MethodPut {
		f.later(func() {
			if p.wait(nil, fault.Again) {
				_, _, _ = f.send()
			}
		})
	}
	if err != nil || fault.Lose || !p.wait(nil, fault.After) {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), got.Header)
	damages := r.Method == http.MethodGet && len(answer) > 0
	if damages && fault.Flip {
		answer[fault.At%len(answer)] ^= 1
	}
	if damages && fault.Cut {
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		w.WriteHeader(got.StatusCode)
		_, _ = w.Write(answer[:fault.At%len(answer)])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(got.StatusCode)
	_, _ = w.Write(answer)
}

// refuse answers with an error of S3.
func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, message)
}

// note records a request, and chooses its fault.
func (p *Proxy) note(r *http.Request) *Request {
	u, _ := url.Parse(p.address)
	key := r.URL.Path
	if base := "/" + u.Host + "/"; len(key) >= len(base) && key[:len(base)] == base {
		key = key[len(base):]
	}
	did := &Request{Method: r.Method, Key: key, IfNoneMatch: r.Header.Get("If-None-Match"), Range: r.Header.Get("Range")}
	p.choosing.Lock()
	defer p.choosing.Unlock()
	did.Fault = p.choose(*did)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, did)
	return did
}

// wait reports false if the proxy ends first.
func (p *Proxy) wait(hold <-chan struct{}, d time.Duration) bool {
	if hold != nil {
		select {
		case <-hold:
		case <-p.ctx.Done():
			return false
		}
	}
	if d > 0 {
		select {
		case <-time.After(d):
		case <-p.ctx.Done():
			return false
		}
	}
	return p.ctx.Err() == nil
}

// forwarded is a request for the server.
type forwarded struct {
	proxy   *Proxy
	request *http.Request
	body    []byte
	did     *Request
}

// later does something that Wait waits for.
func (f *forwarded) later(do func()) {
	f.proxy.begin(1)
	go func() {
		defer f.proxy.begin(-1)
		do()
	}()
}

// send sends the request to the server, and returns all of its answer.
func (f *forwarded) send() (*http.Response, []byte, error) {
	out := f.request.Clone(f.proxy.ctx)
	out.RequestURI, out.URL.Scheme, out.URL.Host = "", "http", f.proxy.target // Host stays
	out.Body, out.ContentLength, out.TransferEncoding = http.NoBody, int64(len(f.body)), nil
	if len(f.body) > 0 {
		out.Body = io.NopCloser(bytes.NewReader(f.body))
	}
	got, err := f.proxy.back.RoundTrip(out)
	if err != nil {
		return nil, nil, err
	}
	defer got.Body.Close()
	f.proxy.mu.Lock()
	f.did.Statuses = append(f.did.Statuses, got.StatusCode)
	f.proxy.mu.Unlock()
	answer, err := io.ReadAll(got.Body)
	return got, answer, err
}
