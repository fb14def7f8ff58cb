package httpapi

import (
	"context"
	"net/http"
	"time"
)

// Bounds of the console's pages being made. Each may hold some answers of the API in memory, which
// the API no longer counts.
const (
	consoleMax  = 32
	consoleWait = 10 * time.Second // how long a page waits for others
)

// Inside is the API for a client in the same process, which is the console: requests are answered
// as those from the network are, with the rights of their credentials.
type Inside struct{ s *Server }

// ServeHTTP answers one request.
func (i *Inside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.s.dispatch(w, r.WithContext(context.WithValue(r.Context(), insideKey{}, true)))
}

// insideKey marks a request of the console.
type insideKey struct{}

// May reports whether a client may do a request, by its method, path and credentials. Nothing is
// done. For what only the request's body names, the answer is yes if the client may do it to
// something.
func (i *Inside) May(r *http.Request) bool {
	w := &verdict{header: http.Header{}}
	i.s.dispatch(w, r.WithContext(context.WithValue(r.Context(), askingKey{}, true)))
	return w.status == http.StatusNoContent
}

// MayOperate reports whether a client may see what is about the whole process: it is on this
// machine, or has the rights that /debug/pprof/ needs.
func (i *Inside) MayOperate(r *http.Request) bool {
	if who, err := i.s.identify(r); err == nil && who.mayOperate() {
		return true
	}
	return r.Header.Get("Authorization") == "" && i.s.fromHere(r)
}

// Known returns nil if a request has valid credentials, whatever they allow; otherwise what an
// answer would say. Nothing is done.
func (i *Inside) Known(r *http.Request) error {
	_, err := i.s.identify(r)
	if err == nil {
		return nil
	}
	p := problemOf(err)
	i.s.tellRefused(&call{r: r, route: "console", who: stranger}, p)
	return p
}

// askingKey marks a request that only asks whether it would be allowed.
type askingKey struct{}

func asking(r *http.Request) bool { return r.Context().Value(askingKey{}) != nil }

// verdict keeps the status of an answer, and nothing else.
type verdict struct {
	header http.Header
	status int
}

func (v *verdict) Header() http.Header { return v.header }

func (v *verdict) WriteHeader(status int) {
	if v.status == 0 {
		v.status = status
	}
}

func (v *verdict) Write(b []byte) (int, error) {
	v.WriteHeader(http.StatusOK)
	return len(b), nil
}

// Page answers a request with a page that render makes of answers of the API. The request as has
// the credentials of the page's client. At most consoleMax pages are made at a time, a quarter of
// them for one client: others wait for up to consoleWait. Clients that are not known count by their
// network. The memory of a page counts as an answer's until the client has read it. Status 0 means
// that render has answered. An error means that nothing was answered.
func (i *Inside) Page(w http.ResponseWriter, as *http.Request, render func() (status int, media string, page []byte)) error {
	c := i.call(w, as, as)
	defer c.built()
	ctx, cancel := context.WithTimeout(as.Context(), consoleWait)
	defer cancel()
	id := c.who.ID()
	if c.who == stranger { // otherwise all of them would be one client, without a limit
		id = networkOf(as).ID()
	}
	if c.buildAs(ctx, i.s.console, id) != nil {
		return kindOverloaded.past(consoleMax, "weir is already making %d pages, the limit, or a quarter of them for this client, the limit for one client. Nothing was changed; try again", consoleMax)
	}
	status, media, page := render()
	if status == 0 {
		return nil
	}
	return c.sendWhole(status, []string{media}, page)
}

// Body reads the body of the request r, and refuses one that has more bytes than most says. Its
// memory, and the memory for what is parsed from it, counts as that of the API's bodies until
// release. If the request as has no valid credentials, the limit is lower.
func (i *Inside) Body(w http.ResponseWriter, r, as *http.Request, most int64) (body []byte, release func(), err error) {
	c := i.call(w, r, as)
	if c.who == stranger {
		most = min(most, bodyFree-1) // a full buffer would grow
	}
	if r.ContentLength > most {
		return nil, nil, kindTooLarge.past(most, "the body has %d bytes; the limit is %d", r.ContentLength, most)
	}
	if r.Header.Get("Content-Encoding") != "" { // most would not bound what it becomes
		return nil, nil, kindMediaType.because("a form must be sent without a Content-Encoding")
	}
	r.Body = http.MaxBytesReader(w, r.Body, most)
	if body, err = i.s.body(c); err == nil && len(body) > bodyFree {
		_, err = c.claimMemory(2 * int64(len(body)))
	}
	if err != nil {
		c.releaseBody()
		return nil, nil, err
	}
	return body, c.releaseBody, nil
}

// call makes a call of the request r, for the client that has the credentials of the request as.
func (i *Inside) call(w http.ResponseWriter, r, as *http.Request) *call {
	who, err := i.s.identify(as)
	if err != nil {
		who = stranger
	}
	return &call{ResponseWriter: w, s: i.s, r: r, route: "console", who: who, until: time.Now().Add(storeTimeout)}
}
