// Package httpapi serves HTTP clients: publish, read and stream events, work queues, event-sourced
// streams, administration of topics, groups and queues; for operators health, readiness and
// metrics. openapi.yaml describes the API, and tests compare the description with the code.
package httpapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-log/weir/door/httpapi/member"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/budget"
	"github.com/weir-log/weir/internal/certificate"
	"github.com/weir-log/weir/internal/token"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/projection"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/quota"
	"github.com/weir-log/weir/use/stream"
	"github.com/weir-log/weir/use/user"
)

// Bounds of one request. A slower client is disconnected, so that it holds a connection for a
// bounded time. The bounds of a body are in body.go.
const (
	headerTimeout  = 5 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = time.Minute
	headerBytesMax = 32 << 10 // of a request: enough for the positions of streamPartitions
	scrapesMax     = 4        // concurrent requests for /metrics; more get 503
	http2Streams   = 100

	// What an HTTP/2 client may send before a handler reads it. A connection holds at most
	// http2Buffer unread bytes; 10,000 connections hold 1.22 GiB.
	http2Buffer       = 128 << 10
	http2StreamBuffer = 64 << 10
)

// storeTimeout is how long a request waits for the store.
const storeTimeout = 20 * time.Second

// Config configures a Server. The zero value of every number means its default.
type Config struct {
	Log       *eventlog.Log
	Groups    *group.Coordinator
	Publisher *publish.Publisher
	Queues    *queue.Queues
	// Categories are the event-sourced streams.
	Categories *stream.Streams
	// Projections are read models of these streams.
	Projections *projection.Projections

	// How clients show who they are. While nothing asks for it, because there are no keys and no
	// users, and neither tokens nor certificates are taken, all clients on this machine may do
	// everything.
	Keys       *apikey.Keys       // the API keys; nil: nobody need show who it is
	Users      *user.Users        // those who log in with a password; nil: none
	Tokens     *token.Verifier    // checks OAuth tokens; nil: none are taken
	Names      *certificate.Names // what owners of clients' certificates are called; default: by the certificate's subject. TLS says which certificates are taken
	ACLs       *acl.ACLs          // what users may do; nil: users may do nothing
	Quotas     *quota.Quotas      // what Kafka clients may use, to be listed and changed; nil: none
	SuperUsers []string           // users that may do everything, such as User:admin, however they show who they are
	Insecure   bool               // while nothing asks for credentials, serve all clients, and not only this machine's
	Hosts      []string           // names by which Insecure is served, beside those that public DNS does not have
	TLS        *tls.Config        // nil: no TLS

	Partitions   int           // of a topic created without a number; default 1
	DrainTimeout time.Duration // how long requests in progress may take when Serve's context ends; default 3 s

	Ready   func() error        // nil while the store answers, otherwise why it does not
	Metrics prometheus.Gatherer // for /metrics
	Profile bool                // serve Go's profiles under /debug/pprof/

	// Console makes the pages at / and /console/, of the API in this process; nil: none.
	Console func(*Inside) http.Handler

	Logger   *slog.Logger // default: slog.Default()
	Observer Observer     // default: none

	limits limits
}

// limits are bounds that only tests change; 0: the default.
type limits struct {
	Conns      int           // most connections; one network (conns.Network) may have half of those that the other networks leave. Default 10,000
	Requests   int           // most requests in progress; three quarters of them of one client; default 16,384
	Polls      int           // most requests that wait for events; a quarter of them of one client; default 4,096
	Streams    int           // most streams; a quarter of them of one client; default 4,096
	Members    int           // most members of groups; a quarter of them of one client; default 1,000
	Claims     int           // most claims that wait for messages; a quarter of them of one client; default 4,096
	BodyBytes  int64         // most bytes of bodies above 16 KiB being read or handled, over all connections; default 128 MiB
	FetchBytes int64         // most bytes of answers being sent, decompressed, over all connections; one event may exceed it. Default 64 MiB
	WaitBytes  int64         // most bytes of requests that wait, for events, messages or a member's group, over all connections; a quarter of them of one client. Default 192 MiB
	KeepAlive  time.Duration // an idle stream sends a comment this often; default 15 s
}

// Observer receives what the server did, for metrics. Calls may come from many goroutines and must
// be short.
type Observer interface {
	// Answered reports a request of the API. The route is one of the patterns in routes.go, or
	// "other" for a request that was turned down before it reached one of them; it is never a
	// client's own text.
	Answered(route string, status int, took time.Duration)
	// Streaming reports a stream opened (+1) or closed (-1).
	Streaming(change int)
}

type nobody struct{}

func (nobody) Answered(string, int, time.Duration) {}
func (nobody) Streaming(int)                       {}

func (c Config) withDefaults() Config {
	c.Partitions = cmp.Or(c.Partitions, 1)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 3*time.Second)
	c.limits.Conns = cmp.Or(c.limits.Conns, 10_000)
	c.limits.Streams = cmp.Or(c.limits.Streams, 4096)
	c.limits.Members = cmp.Or(c.limits.Members, 1000)
	c.limits.Requests = cmp.Or(c.limits.Requests, 16_384)
	c.limits.Polls = cmp.Or(c.limits.Polls, 4096)
	c.limits.Claims = cmp.Or(c.limits.Claims, 4096)
	c.limits.BodyBytes = cmp.Or(c.limits.BodyBytes, 128<<20)
	c.limits.FetchBytes = cmp.Or(c.limits.FetchBytes, 64<<20)
	c.limits.WaitBytes = cmp.Or(c.limits.WaitBytes, 192<<20)
	c.limits.KeepAlive = cmp.Or(c.limits.KeepAlive, 15*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Names == nil {
		c.Names, _ = certificate.NewNames(nil) // it fails only for rules
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	return c
}

// Server answers HTTP clients.
type Server struct {
	cfg         Config
	mux         *http.ServeMux
	ids         requestIDs
	bodies      *budget.Budget // bytes of bodies being read or handled
	keyBodies   *keyShares     // bytes of request bodies, by caller
	answers     *budget.Budget // bytes of answers being sent
	waits       *budget.Budget // bytes of requests that wait
	builders    *slots         // answers being built as a whole
	streams     *streams
	bounds      *boundsReads // for streams that begin
	members     *member.Members
	memberships *limiter     // members, and clients about to join
	claims      *limiter     // claims waiting for messages
	polls       *limiter     // requests waiting for events
	requests    *limiter     // requests in progress, of authorized clients
	inProgress  atomic.Int64 // requests in progress, of all clients
	strangers   *limiter     // those of them that need no credentials, by network: the console's pages, and public paths
	console     *slots       // pages of the console being made
	searches    *slots       // searches for a message
	pages       *slots       // pages of messages or dead letters, until they are sent
	tagged      *slots       // reads by tags
	decoders    *slots       // batches being decoded: a decoder's memory is not claimed

	superUsers map[string]bool
	passwords  *user.Passwords // of users, if there are some
	logins     *limiter        // passwords that wait to be checked, by network
	checks     *slots          // passwords being checked, by network

	turnedAway turnedAway
}

// New makes a server.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{
		cfg:       cfg,
		ids:       newRequestIDs(),
		bodies:    budget.New(cfg.limits.BodyBytes),
		keyBodies: &keyShares{most: max(1, 3*cfg.limits.BodyBytes/4), ofKey: make(map[string]int64)},
		answers:   budget.New(cfg.limits.FetchBytes),
		waits:     budget.New(cfg.limits.WaitBytes),
		builders:  newSlots(buildersMax),
	}
	s.bounds = &boundsReads{log: cfg.Log, ask: s.askBounds, of: make(map[boundsKey]*boundsRead)}
	s.streams = newStreams(cfg.limits.Streams, cfg.Log, s.known, cfg.Logger)
	s.memberships = newLimiter(cfg.limits.Members, quarter(cfg.limits.Members), "members of groups", "let some members leave, or join through another weir process", kindTooManyMembers)
	s.members = member.New(member.Config{
		Valid: func(ctx context.Context, who member.Caller) error { return s.known(ctx, who.(*caller)) },
		Move:  func(from, to member.Caller) bool { return s.memberships.move(from, to) },
		End:   func(who member.Caller) { s.memberships.end(who) }, CheckEvery: keyCheckEvery, StoreTimeout: storeTimeout, Logger: cfg.Logger,
	})
	s.claims = newLimiter(cfg.limits.Claims, quarter(cfg.limits.Claims), "waiting claims", "claim more messages with one request, or claim without wait_ms", kindTooManyClaims)
	s.polls = newLimiter(cfg.limits.Polls, quarter(cfg.limits.Polls), "requests that wait for events", "read several partitions as one member of a group, or use a stream, or read without wait_ms", kindTooManyPolls)
	s.requests = newLimiter(cfg.limits.Requests, max(1, 3*cfg.limits.Requests/4), "requests in progress", "wait until some of them end", kindTooManyCalls)
	s.strangers = newLimiter(quarter(cfg.limits.Requests), max(1, cfg.limits.Requests/16), "requests for the console and for paths that need no credentials", "wait until some of them end", kindTooManyCalls)
	s.console = newSlots(consoleMax)
	s.searches = newSlots(searchesMax)
	s.pages = newSlots(pagesMax)
	s.tagged = newSlots(taggedReads)
	s.decoders = newSlots(runtime.GOMAXPROCS(0))
	s.superUsers = make(map[string]bool)
	for _, name := range cfg.SuperUsers {
		s.superUsers[name] = true
	}
	if cfg.Users != nil {
		s.passwords = user.NewPasswords(cfg.Users)
	}
	s.logins = newLimiter(loginsMax, loginsFromMax, "passwords that wait to be checked", "wait for an answer before you send more", kindTooManyLogins)
	s.checks = newSlots(max(1, runtime.GOMAXPROCS(0)/2))
	s.mux = s.routes()
	return s
}

// Serve answers requests on l until ctx ends. Then it ends streams and long polls, finishes the
// requests in progress for at most Config.DrainTimeout, makes the group members leave, and
// returns nil.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	defer s.members.Close()
	var watching sync.WaitGroup
	defer watching.Wait()
	watched, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	watching.Go(func() { s.streams.watch(watched) })
	server := &http.Server{
		Handler:           s.guard(l.Addr()),
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerBytesMax,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: http2Streams, MaxReceiveBufferPerConnection: http2Buffer, MaxReceiveBufferPerStream: http2StreamBuffer},
		BaseContext:       func(net.Listener) context.Context { return carryServing(ctx) },
		ConnContext:       countResets,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DrainTimeout)
		defer cancel()
		if server.Shutdown(drain) != nil {
			server.Close()
		}
	})
	l = limit(l, s.cfg.limits.Conns)
	var err error
	if s.cfg.TLS == nil {
		err = server.Serve(l)
	} else {
		server.TLSConfig = s.cfg.TLS.Clone()
		err = server.ServeTLS(l, "", "")
	}
	if stop() {
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	}
	<-drained
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
	}
	return nil
}

// servingKey finds the context of Serve in that of a request.
type servingKey struct{}

// carryServing returns the base context of requests. It outlives Serve's context, so that requests
// can finish, and carries it as a value.
func carryServing(serving context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(serving), servingKey{}, serving)
}

// untilDraining returns a request's context that also ends when the server starts to drain: for
// long polls and streams.
func untilDraining(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	serving, ok := ctx.Value(servingKey{}).(context.Context)
	if !ok {
		return ctx, cancel
	}
	stop := context.AfterFunc(serving, cancel)
	return ctx, func() { stop(); cancel() }
}
