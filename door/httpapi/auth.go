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
	"github.com/weir-log/weir/use/stream"
)

// access is what a route requires of its caller.
type access = apikey.Access

const (
	public   access = "" // for every client, without a key
	mayRead         = apikey.Read
	mayWrite        = apikey.Write
	mayAdmin        = apikey.Admin
)

var (
	kindTokenInURL   = kind{"token_in_url", http.StatusBadRequest, "The URL contains an API key"}
	kindUnauthorized = kind{"unauthorized", http.StatusUnauthorized, "An API key is needed"}
	kindForbidden    = kind{"forbidden", http.StatusForbidden, "The API key does not allow this"}
)

// allow checks the caller's access before a handler runs. It reports whether the caller has this access to the topic, or to the group, the
// queue or the projection in the path; if not, it has answered. If the path has none of these, the caller needs this access to anything at all, and the
// handler checks each topic or queue that it touches. For the topics of a group the handler calls c.may.
func (s *Server) allow(c *call, a access, topic string) bool {
	if a == public {
		return true
	}
	who, err := s.identify(c.r)
	c.who = who
	group, queue, projection := c.r.PathValue("group"), c.r.PathValue("queue"), c.r.PathValue("projection")
	switch {
	case err != nil:
	case topic != "":
		err = c.may(a, topic)
	case group != "" && !who.MayGroup(a, group):
		err = kindForbidden.because("the key %s does not give %s access to group %s; `weir key list` shows which groups it can access", who, a, shorten(group))
	case queue != "":
		err = c.mayQueue(a, queue)
	case projection != "" && !who.MayGroup(a, stream.GroupsOf(projection)):
		err = kindForbidden.because("the key %s does not give %s access to projection %s, because it gives none to its groups, %s…; `weir key list` shows its groups", who, a, shorten(projection), shorten(stream.GroupsOf(projection)))
	case !who.Has(a):
		err = forbidden(who, a, "")
	}
	return s.letIn(c, err)
}

// still reports whether a caller that was allowed before is allowed now: keys are revoked, and expire, while streams run.
func (s *Server) still(c *call, a access, topic string) bool { return s.again(c, a, topic) == nil }

// again returns nil if a caller that was allowed before has this access to each of the topics now: keys are revoked, and expire,
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

// may returns nil if the caller has this access to a topic; topic "": to all topics.
func (c *call) may(a access, topic string) error {
	if c.who.May(a, topic) {
		return nil
	}
	return forbidden(c.who, a, topic)
}

// mayQueue returns nil if the caller has this access to a queue.
func (c *call) mayQueue(a access, queue string) error {
	if c.who.MayQueue(a, queue) {
		return nil
	}
	return kindForbidden.because("the key %s does not give %s access to queue %s; `weir key list` shows which queues it can access", c.who, a, shorten(queue))
}

// stillQueue returns nil if a caller that was allowed before has this access to a queue now.
func (s *Server) stillQueue(c *call, a access, queue string) error {
	who, err := s.identify(c.r)
	if err == nil && !who.MayQueue(a, queue) {
		err = kindForbidden.because("the key %s no longer gives %s access to queue %s", who, a, shorten(queue))
	}
	return err
}

func forbidden(who apikey.Identity, a access, topic string) error {
	if topic == "" {
		return kindForbidden.because("the key %s does not give %s access, which this request needs; `weir key list` shows what it gives", who, a)
	}
	return kindForbidden.because("the key %s does not give %s access to topic %s; `weir key list` shows which topics it can access", who, a, shorten(topic))
}

// operators allows clients on this machine, and clients with an admin key for everything: the handler's answer is about the whole program.
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

// letIn reports whether err is nil; if not, it answers with err and logs it.
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

// reason is the text of a refusal for the log: it has more than the answer.
func reason(p *problem) string {
	if p.cause != nil {
		return p.cause.Error()
	}
	return p.Detail
}

// secretMax bounds a key in a header, in bytes. Longer ones are refused without a lookup.
const secretMax = 256

// identify returns the caller's identity. The answer to a bad key does not say what is wrong with it; the cause is for the log.
func (s *Server) identify(r *http.Request) (apikey.Identity, error) {
	if s.cfg.Keys == nil {
		return apikey.Everybody, nil
	}
	if keyInURL(r) {
		return apikey.Identity{}, kindTokenInURL.because("proxies and servers write URLs into their logs, so the key is no longer secret. Create another key, revoke this one, and send the new one in the header Authorization: Bearer KEY")
	}
	given := r.Header["Authorization"]
	if len(given) == 0 {
		return s.stranger(r)
	}
	scheme, secret, _ := strings.Cut(given[0], " ")
	switch secret = strings.TrimSpace(secret); {
	case len(given) > 1:
		return apikey.Identity{}, kindUnauthorized.because("the request has %d Authorization headers; send one", len(given))
	case !strings.EqualFold(scheme, "Bearer"):
		return apikey.Identity{}, kindUnauthorized.because("the Authorization header must be Bearer KEY; weir supports no other scheme")
	case len(secret) > secretMax:
		return apikey.Identity{}, badKey(errors.New("the key that was sent is too long"))
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

// known returns nil if the key of a caller that was identified before is still valid. A caller without a key is valid while there are no keys.
func (s *Server) known(ctx context.Context, who apikey.Identity) error {
	if s.cfg.Keys == nil {
		return nil
	}
	return s.cfg.Keys.Still(ctx, who)
}

func badKey(cause error) error {
	p := kindUnauthorized.because("the key does not exist, or is not valid now; `weir key list` shows which keys are valid")
	p.cause = cause
	return p
}

func noKey(detail string) error {
	p := kindUnauthorized.because("%s", detail)
	p.cause = errors.New("the request has no key")
	return p
}

// stranger decides whether a request without a key is allowed.
func (s *Server) stranger(r *http.Request) (apikey.Identity, error) {
	keys, err := s.cfg.Keys.Any(r.Context())
	switch {
	case err != nil:
		return apikey.Identity{}, err
	case keys:
		return apikey.Identity{}, noKey("send the header Authorization: Bearer KEY; `weir key create` creates a key")
	case !s.cfg.Insecure && !s.fromHere(r):
		return apikey.Identity{}, noKey("the store has no API keys yet: until then weir accepts requests only from its own machine, and not through a proxy; create one with `weir key create`")
	}
	return apikey.Everybody, nil
}

// fromHere reports whether a request comes from a client on this machine: not forwarded by a proxy, and not from a web page that
// reached us by a host name of its own (DNS rebinding).
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

// keyInURL reports whether the URL contains a key: it has a parameter with a usual name for keys, or any value that looks like a key.
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

// turnedAwayEvery is the minimum time between two log lines about refused clients.
const turnedAwayEvery = time.Second

// turnedAway logs refused clients: at most one line per second, with the number of clients refused since the last line.
type turnedAway struct {
	mu   sync.Mutex // guards all below
	last time.Time
	more int // refused since then, not logged
}

func (t *turnedAway) log(logger *slog.Logger, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.last) < turnedAwayEvery {
		t.more++
		return
	}
	logger.Warn("http: request refused", append(args, "more_before", t.more)...)
	t.last, t.more = time.Now(), 0
}
