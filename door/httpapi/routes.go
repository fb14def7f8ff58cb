package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weir-log/weir/use/apikey"
)

// route is one path and method of the API.
type route struct {
	pattern string // as http.ServeMux reads it, and behind a ? the parameters that may be in the query
	access  access
	handle  func(*Server, *call) error
}

// api lists all routes. openapi.yaml has the same ones.
var api = []route{
	{"GET /openapi.yaml", nobodyAsks, (*Server).document},

	{"POST /v1/topics/{topic}/events?key&key_b64&partition&timestamp&tombstone", mayWrite, (*Server).publishOne},
	{"POST /v1/topics/{topic}/batch?partial", mayWrite, (*Server).publishMany},
	{"GET /v1/topics/{topic}/partitions/{partition}/events?offset&max&wait_ms", mayRead, (*Server).read},
	{"GET /v1/topics/{topic}/stream?from&partition", mayRead, (*Server).stream},

	{"GET /v1/topics", mayRead, (*Server).listTopics},
	{"POST /v1/topics", mayAdmin, (*Server).createTopic},
	{"GET /v1/topics/{topic}", mayRead, (*Server).describeTopic},
	{"PATCH /v1/topics/{topic}", mayAdmin, (*Server).alterTopic},
	{"DELETE /v1/topics/{topic}", mayAdmin, (*Server).deleteTopic},

	{"GET /v1/groups", mayRead, (*Server).listGroups},
	{"GET /v1/groups/{group}", mayRead, (*Server).describeGroup},
	{"DELETE /v1/groups/{group}", mayAdmin, (*Server).deleteGroup},
	{"GET /v1/groups/{group}/offsets", mayRead, (*Server).groupOffsets},
	{"PUT /v1/groups/{group}/offsets", mayAdmin, (*Server).resetOffsets},

	{"POST /v1/groups/{group}/members", mayRead, (*Server).join},
	{"DELETE /v1/groups/{group}/members/{member}", mayRead, (*Server).leaveGroup},
	{"GET /v1/groups/{group}/members/{member}/events?max&wait_ms&after", mayRead, (*Server).memberEvents},
	{"POST /v1/groups/{group}/members/{member}/commit", mayRead, (*Server).commitOffsets},
}

// routes puts all handlers together.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	s.operatorRoutes(mux)
	for _, r := range api {
		mux.Handle(s.endpoint(r))
	}
	mux.HandleFunc("/", s.nothingHere)
	return mux
}

// call is one request and its answer.
type call struct {
	http.ResponseWriter
	r      *http.Request
	route  string
	id     string
	query  url.Values // the route's params, each at most once
	who    apikey.Identity // once allow has let it in
	status int             // of the answer; 0 while there is none
	held   int64           // bytes of Server.bodies
}

// endpoint makes a route a handler: it lets in whom access lets in, answers errors with problems, and counts.
func (s *Server) endpoint(rt route) (pattern string, h http.Handler) {
	pattern, list, _ := strings.Cut(rt.pattern, "?")
	var params []string
	if list != "" {
		params = strings.Split(list, "&")
	}
	return pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		c := &call{ResponseWriter: w, r: r, route: pattern, id: w.Header().Get(requestIDHeader)}
		defer func() {
			s.bodies.Release(c.held)
			s.cfg.Observer.Answered(pattern, c.status, time.Since(began))
		}()
		if r.ContentLength != 0 {
			c.timeBody()
		}
		if !s.allow(c, rt.access, r.PathValue("topic")) {
			return
		}
		var err error
		if c.query, err = query(r.URL, params); err == nil {
			err = rt.handle(s, c)
		}
		if err != nil {
			s.refuse(c, err)
		}
	})
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

// withPatience is the request's context, ended when the store takes too long.
func (c *call) withPatience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.r.Context(), patience)
}

// query returns a URL's parameters, each given at most once, and none but these.
func query(u *url.URL, names []string) (url.Values, error) {
	if u.RawQuery == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, kindInvalidRequest.because("the query string cannot be read: %v", err)
	}
	for name, all := range values {
		switch {
		case !contains(names, name):
			return nil, kindInvalidRequest.because("the parameter %q is not known here%s", shorten(name), suggest(name, names))
		case len(all) > 1:
			return nil, kindInvalidRequest.because("the parameter %q is given %d times; once is enough", name, len(all))
		}
	}
	return values, nil
}

// number reads a parameter that is a whole number within bounds, or returns what is given for none.
func number(q url.Values, name string, least, most, none int64) (int64, error) {
	if !q.Has(name) {
		return none, nil
	}
	text := q.Get(name)
	n, err := strconv.ParseInt(text, 10, 64)
	if errors.Is(err, strconv.ErrRange) && n > 0 {
		err = nil // and n is the largest there is
	}
	switch {
	case err != nil || n < least:
		return 0, kindInvalidRequest.because("%s=%s: a whole number from %d is needed", name, shorten(text), least)
	case n > most:
		return 0, kindInvalidRequest.because("%s=%s: a whole number from %d to %d is needed", name, shorten(text), least, most)
	}
	return n, nil
}

// nothingHere answers for paths and methods that are no route.
func (s *Server) nothingHere(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	c := &call{ResponseWriter: w, r: r, route: "other", id: w.Header().Get(requestIDHeader)}
	if r.ContentLength != 0 {
		c.timeBody()
	}
	if allowed := s.methods(r); len(allowed) > 0 {
		c.Header().Set("Allow", strings.Join(allowed, ", "))
		s.answerProblem(c, kindMethod.because("%s is not for this path; it takes %s", shorten(r.Method), strings.Join(allowed, ", ")))
	} else {
		s.answerProblem(c, kindNotFound.because("GET /openapi.yaml tells what there is"))
	}
	s.cfg.Observer.Answered("other", c.status, time.Since(began))
}

// methods lists the methods that a path takes.
func (s *Server) methods(r *http.Request) (allowed []string) {
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		probe := http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := s.mux.Handler(&probe); pattern != "" && pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	return allowed
}
