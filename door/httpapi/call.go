package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/weir-log/weir/internal/budget"
)

// call is one request and its answer.
type call struct {
	http.ResponseWriter
	s        *Server
	r        *http.Request
	route    string
	id       string
	query    url.Values    // the route's parameters, each at most once, except repeatable
	needs    need          // of the route; set by allow
	who      *caller       // set by allow; never nil
	status   int           // of the answer; 0: none yet
	memory   *budget.Claim // on Server.bodies; nil: none
	until    time.Time     // deadline for the store
	building func()        // gives back the slot that it has to build its answer; nil: it has none
	changed  string        // what a change of rights was about, if the path does not say it
}

// WriteHeader remembers the answer's status.
func (c *call) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write is http.ResponseWriter's.
func (c *call) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	return c.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController through.
func (c *call) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// send answers with a whole body. Errors are ignored: the client has disconnected.
func (c *call) send(status int, body []byte) {
	c.WriteHeader(status)
	_, _ = c.Write(body)
}

// withTimeout is the request's context with the deadline for the store.
func (c *call) withTimeout() (context.Context, context.CancelFunc) {
	return context.WithDeadline(c.r.Context(), c.until)
}

// waits adds the time to wait for events to the deadlines.
func (c *call) waits(wait time.Duration) {
	c.until = c.until.Add(wait)
	c.setWriteDeadline(c.until.Add(writeTimeout - storeTimeout))
}

// restartTimeout restarts the deadlines, after the call waited for its client.
func (c *call) restartTimeout() {
	c.until = time.Now().Add(storeTimeout)
	c.setWriteDeadline(time.Now().Add(writeTimeout))
}

func (c *call) setWriteDeadline(deadline time.Time) {
	_ = http.NewResponseController(c.ResponseWriter).SetWriteDeadline(deadline) // fails only if a test has no connection
}

// The values of headers that never change.
var (
	jsonType    = []string{"application/json"}
	ndjsonType  = []string{"application/x-ndjson"}
	sseType     = []string{"text/event-stream"}
	problemType = []string{"application/problem+json"}
	textType    = []string{"text/plain; charset=utf-8"}
	yamlType    = []string{"application/yaml"}
	noStore     = []string{"no-store"}
	noSniff     = []string{"nosniff"}
)
