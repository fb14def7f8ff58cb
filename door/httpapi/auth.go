package httpapi

import (
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weir-log/weir/internal/proxy"
	"github.com/weir-log/weir/use/apikey"
)

// access is what a request requires of an API key.
type access = apikey.Access

const (
	public   access = "" // for every client, whoever it is
	mayRead         = apikey.Read
	mayWrite        = apikey.Write
	mayAdmin        = apikey.Admin
)

var (
	kindTokenInURL   = kind{"token_in_url", http.StatusBadRequest, "The URL contains an API key"}
	kindUnauthorized = kind{"unauthorized", http.StatusUnauthorized, "The client must show who it is"}
	kindForbidden    = kind{"forbidden", http.StatusForbidden, "The client may not do this"}
)

// allow finds out who the caller is, and checks what it may do, before a handler runs. It reports
// whether the caller may do what the route does to what the path names; if not, it has answered.
// Topics and queues that the path does not name are left to the handler, which checks each of them.
func (s *Server) allow(c *call, n need) bool {
	c.needs = n
	if n.access == public {
		return true
	}
	who, err := s.identify(c.r)
	if err == nil {
		c.who = who
		err = s.mayPath(c)
	}
	return s.letIn(c, err)
}

// stillMay returns nil if a caller that was allowed before may now do what its route does to what
// its path names: credentials and rights end while its body arrives, or while it waits.
func (s *Server) stillMay(c *call) error {
	if c.needs.access == public {
		return nil
	}
	who, err := s.now(c.r.Context(), c.who)
	if err != nil {
		return err
	}
	c.who = who
	return s.mayPath(c)
}

// still reports whether a caller that was allowed before is allowed now: credentials and rights end
// while streams run.
func (s *Server) still(c *call, n need, topic string) bool { return s.again(c, n, topic) == nil }

// again returns nil if a caller that was allowed before may do this to each of the topics now:
// credentials and rights end while requests wait.
func (s *Server) again(c *call, n need, topics ...string) error {
	who, err := s.now(c.r.Context(), c.who)
	if err != nil {
		return err
	}
	c.who = who
	for _, t := range topics {
		if err := c.may(n, t); err != nil {
			return err
		}
	}
	return nil
}

// stillQueue returns nil if a caller that was allowed before may do this to a queue now.
func (s *Server) stillQueue(c *call, n need, queue string) error {
	who, err := s.now(c.r.Context(), c.who)
	if err != nil {
		return err
	}
	c.who = who
	return s.mayQueue(c.r.Context(), who, n, queue)
}

// operators allows clients that may see what is about the whole program and, if local is set, all
// clients on this machine.
func (s *Server) operators(local bool, may func(*caller) bool, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if local && s.fromHere(r) {
			h.ServeHTTP(w, r)
			return
		}
		c := &call{ResponseWriter: w, r: r, route: r.Pattern, id: w.Header().Get(requestIDHeader), who: stranger}
		who, err := s.identify(r)
		if err == nil {
			if c.who = who; !may(who) {
				err = kindForbidden.because("the %s may not see this: it needs a key with admin access to all topics and groups (for /metrics metrics access is enough), or a user with ALTER on the cluster", who)
			}
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
	if asking(c.r) {
		c.WriteHeader(p.Status)
		return false
	}
	s.tellRefused(c, p)
	s.answerProblem(c, p)
	return false
}

// tellRefused logs why a client was refused.
func (s *Server) tellRefused(c *call, p *problem) {
	client, _, _ := net.SplitHostPort(c.r.RemoteAddr)
	s.turnedAway.log(s.cfg.Logger, "status", p.Status, "reason", reason(p), "route", c.route, "client", client, "who", c.who.ID(), "request", c.id)
}

// reason is the text of a refusal for the log: it has more than the answer.
func reason(p *problem) string {
	if p.cause != nil {
		return p.cause.Error()
	}
	return p.Detail
}

// fromHere reports whether a request comes from a client on this machine: not forwarded by a proxy,
// and not from a web page that reached us by a host name of its own (DNS rebinding).
func (s *Server) fromHere(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil || !net.ParseIP(host).IsLoopback() || !isLocalName(r.Host) {
		return false
	}
	for name := range r.Header {
		if proxy.Header(name) {
			return false
		}
	}
	return true
}

// keyInURL reports whether the URL contains a key: it has a parameter with a usual name for keys,
// or any value that looks like a key, or the path has one.
func keyInURL(r *http.Request) bool {
	if apikey.Looks(r.PathValue("key")) { // where the key's id belongs
		return true
	}
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

// turnedAway logs refused clients: at most one line per second, with the number of clients refused
// since the last line.
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
