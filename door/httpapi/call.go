package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/weir-log/weir/use/apikey"
)

// call is one request and its answer.
type call struct {
	http.ResponseWriter
	s        *Server
	r        *http.Request
	route    string
	id       string
	query    url.Values      // the route's params, each at most once
	who      apikey.Identity // once allow has let it in
	status   int             // of the answer; 0 while there is none
	held     int64           // bytes of Server.bodies
	until    time.Time       // it waits for the store
	building bool            // it is one of buildersMax
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

// send answers with a whole body. A client that is gone gets none.
func (c *call) send(status int, body []byte) {
	c.WriteHeader(status)
	_, _ = c.Write(body)
}

// withPatience is the request's context, ended when the store takes too long.
func (c *call) withPatience() (context.Context, context.CancelFunc) {
	return context.WithDeadline(c.r.Context(), c.until)
}

// waits gives the call time to wait for events, beside that for the store.
func (c *call) waits(wait time.Duration) {
	c.until = c.until.Add(wait)
	c.answerBy(c.until.Add(writeTimeout - patience))
}

// afresh gives the call its time anew, after it waited for its client.
func (c *call) afresh() {
	c.until = time.Now().Add(patience)
	c.answerBy(time.Now().Add(writeTimeout))
}

func (c *call) answerBy(deadline time.Time) {
	_ = http.NewResponseController(c.ResponseWriter).SetWriteDeadline(deadline) // fails only where a test has no connection
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
