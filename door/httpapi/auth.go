package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/apikey"
)

// access is what a route asks of its caller.
type access = apikey.Access

const (
	nobodyAsks access = "" // open to all
	mayRead           = apikey.Read
	mayWrite          = apikey.Write
	mayAdmin          = apikey.Admin
)

var (
	kindTokenInURL   = kind{"token_in_url", http.StatusBadRequest, "A key does not belong in a URL"}
	kindUnauthorized = kind{"unauthorized", http.StatusUnauthorized, "An API key is needed"}
	kindForbidden    = kind{"forbidden", http.StatusForbidden, "The API key is not good for this"}
)

// allow is the one place that decides who may do what. It reports whether the caller has this access to the topic, or to the group or the
// queue that the path names; if not, it has answered. Where the path names neither, the caller has the access to some at least, and the handler
// asks about those that it touches. About the topics that a group reads it asks c.may.
func (s *Server) allow(c *call, a access, topic string) bool {
	if a == nobodyAsks {
		return true
	}
	who, err := s.identify(c.r)
	c.who = who
	group, queue := c.r.PathValue("group"), c.r.PathValue("queue")
	switch {
	case err != nil:
	case topic != "":
		err = c.may(a, topic)
	case group != "" && !who.MayGroup(a, group):
		err = kindForbidden.because("the key %s does not give %s access to group %s; `weir key list` shows which groups it reaches", who, a, shorten(group))
	case queue != "":
		err = c.mayQueue(a, queue)
	case !who.Has(a):
		err = forbidden(who, a, "")
	}
	return s.letIn(c, err)
}

// still reports whether a caller that was let in a while ago would be let in now: keys are revoked, and expire, while streams run.
func (s *Server) still(c *call, a access, topic string) bool { return s.again(c, a, topic) == nil }

// again is nil where a caller that was let in a while ago would be let in now, to all of some topics: keys are revoked, and expire,
// while requests wait.
func (s *Server) again(c *call, a access, topics ...string) error {
	who, err := s.identify(c.r)
	if err != nil {
		return err
	}
	for _, t := range topics {
		if !who.May(a, t) {
			return forbidden(who, a, t)
		}
	}
	return nil
}

// may is nil where the caller has this access to a topic; with topic "", to all of them.
func (c *call) may(a access, topic string) error {
	if c.who.May(a, topic) {
		return nil
	}
	return forbidden(c.who, a, topic)
}

// mayQueue is nil where the caller has this access to a queue.
func (c *call) mayQueue(a access, queue string) error {
	if c.who.MayQueue(a, queue) {
		return nil
	}
	return kindForbidden.because("the key %s does not give %s access to queue %s; `weir key list` shows which queues it reaches", c.who, a, shorten(queue))
}

// stillQueue is nil where a caller that was let in a while ago would be let in now.
func (s *Server) stillQueue(c *call, a access, queue string) error {
	who, err := s.identify(c.r)
	if err == nil && !who.MayQueue(a, queue) {
		err = kindForbidden.because("the key %s does not give %s access to queue %s any more", who, a, shorten(queue))
	}
	return err
}

func forbidden(who apikey.Identity, a access, topic string) error {
	if topic == "" {
		return kindForbidden.because("the key %s does not give %s access here", who, a)
	}
	return kindForbidden.because("the key %s does not give %s access to topic %s", who, a, shorten(topic))
}

// operators lets in who asks from this machine, or shows an admin's key: what a handler tells is about the whole program.
func (s *Server) operators(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.fromHere(r) {
			h.ServeHTTP(w, r)
			return
		}
		c := &call{ResponseWriter: w, r: r, route: r.Pattern, id: w.Header().Get(requestIDHeader)}
		who, err := s.identify(r)
		if err == nil && !who.May(mayAdmin, "") {
			err = forbidden(who, mayAdmin, "")
		}
		if s.letIn(c, err) {
			h.ServeHTTP(w, r)
		}
	})
}

// letIn reports whether err is nil; if not, it answers and leaves a line in the log.
func (s *Server) letIn(c *call, err error) bool {
	if err == nil {
		return true
	}
	p := problemOf(err)
	if p.Status == http.StatusUnauthorized {
		c.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
	}
	client, _, _ := net.SplitHostPort(c.r.RemoteAddr)
	s.turnedAway.log(s.cfg.Logger, "status", p.Status, "reason", reason(p), "route", c.route, "client", client, "key", c.who.ID(), "request", c.id)
	s.answerProblem(c, p)
	return false
}

// reason is what the log says of a refusal: more than strangers are told.
func reason(p *problem) string {
	if p.cause != nil {
		return p.cause.Error()
	}
	return p.Detail
}

// secretMax bounds a key in a header, in bytes. Longer ones are not even looked at.
const secretMax = 256

// identify finds out who asks. What it answers to a bad key is the same whatever is wrong with it; the cause is for our log.
func (s *Server) identify(r *http.Request) (apikey.Identity, error) {
	if s.cfg.Keys == nil {
		return apikey.Everybody, nil
	}
	if keyInURL(r) {
		return apikey.Identity{}, kindTokenInURL.because("URLs land in the logs of proxies and servers, and this one holds a key. Send it as Authorization: Bearer KEY; make another one, and revoke this")
	}
	given := r.Header["Authorization"]
	if len(given) == 0 {
		return s.stranger(r)
	}
	scheme, secret, _ := strings.Cut(given[0], " ")
	switch secret = strings.TrimSpace(secret); {
	case len(given) > 1:
		return apikey.Identity{}, kindUnauthorized.because("there are %d Authorization headers; send one", len(given))
	case !strings.EqualFold(scheme, "Bearer"):
		return apikey.Identity{}, kindUnauthorized.because("send Authorization: Bearer KEY; other schemes are not known here")
	case len(secret) > secretMax:
		return apikey.Identity{}, badKey(errors.New("what was shown is too long for a key"))
	}
	who, err := s.cfg.Keys.Check(r.Context(), secret)
	switch {
	case errors.Is(err, eventlog.ErrUnavailable):
		return who, err
	case err != nil:
		return who, badKey(err)
	}
	return who, nil
}

// known is nil where who asked a while ago would still be known. Until there are keys, that is everybody.
func (s *Server) known(ctx context.Context, who apikey.Identity) error {
	if s.cfg.Keys == nil {
		return nil
	}
	return s.cfg.Keys.Still(ctx, who)
}

func badKey(cause error) error {
	p := kindUnauthorized.because("the key is not known, or not valid now; `weir key list` shows which are")
	p.cause = cause
	return p
}

func noKey(detail string) error {
	p := kindUnauthorized.because("%s", detail)
	p.cause = errors.New("no key was shown")
	return p
}

// stranger decides about a request without a key.
func (s *Server) stranger(r *http.Request) (apikey.Identity, error) {
	keys, err := s.cfg.Keys.Any(r.Context())
	switch {
	case err != nil:
		return apikey.Identity{}, err
	case keys:
		return apikey.Identity{}, noKey("send Authorization: Bearer KEY; `weir key create` makes one")
	case !s.cfg.Insecure && !s.fromHere(r):
		return apikey.Identity{}, noKey("until there are API keys only clients on the same machine are served, and not through a proxy; `weir key create` makes one")
	}
	return apikey.Everybody, nil
}

// fromHere reports whether a request comes from this machine, and from a program that means to speak to us: not handed on by a proxy, and
// not by a page in a browser under a name of its own.
func (s *Server) fromHere(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil || !net.ParseIP(host).IsLoopback() || !isLocalName(r.Host) {
		return false
	}
	for _, proxied := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if len(r.Header[proxied]) > 0 {
			return false
		}
	}
	return true
}

// keyInURL finds keys where people put them for want of a header: under the usual names, or under any.
func keyInURL(r *http.Request) bool {
	if r.URL.RawQuery == "" {
		return false
	}
	for name, values := range r.URL.Query() {
		switch strings.ToLower(name) {
		case "access_token", "token", "api_key", "apikey", "api-key", "authorization", "bearer":
			return true
		}
		for _, v := range values {
			if apikey.Looks(strings.TrimSpace(v)) {
				return true
			}
		}
	}
	return false
}

// turnedAwayEvery is the least time between two log lines about clients that were turned away.
const turnedAwayEvery = time.Second

// turnedAway logs those who are turned away. However many come, the log has a line a second, which counts the others.
type turnedAway struct {
	mu   sync.Mutex // guards all below
	last time.Time
	more int // since then, without a line
}

func (t *turnedAway) log(logger *slog.Logger, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.last) < turnedAwayEvery {
		t.more++
		return
	}
	logger.Warn("http: turned away", append(args, "more_before", t.more)...)
	t.last, t.more = time.Now(), 0
}
