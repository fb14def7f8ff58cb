package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/budget"
	"github.com/weir-log/weir/internal/certificate"
	"github.com/weir-log/weir/internal/conns"
	"github.com/weir-log/weir/internal/token"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/broker"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/quota"
	"github.com/weir-log/weir/use/user"
)

// frameTimeout bounds the time from a frame's first byte to its last.
const frameTimeout = 30 * time.Second

// Config configures a Server. A field's zero value means its default.
type Config struct {
	Brokers      *broker.Registry // this process among the brokers on the store; default: it is the only one
	NodeID       *int32           // this broker's id, without Brokers; default 1
	HTTPAddr     string           // address of the HTTP door, for the answer to HTTP clients that connect here by mistake; default: the answer names none
	Partitions   int              // how many partitions a topic gets that is created without a number (num.partitions); default 1
	NoAutoCreate bool             // Metadata does not create unknown topics (auto.create.topics.enable=false)

	AnyReplicationFactor bool // CreateTopics accepts a replication factor above 1, and answers that it is 1

	LoginLasts   time.Duration // clients that logged in must do so again within this time (connections.max.reauth.ms); default: for ever
	DrainTimeout time.Duration // how long requests in progress may take when Serve's context ends; default 5 s

	Keys *apikey.Keys // the keys with which clients log in by PLAIN at listeners with SASL; default: none, so nobody can by PLAIN

	Tokens *token.Verifier // checks the tokens with which clients log in by OAUTHBEARER at listeners with SASL; default: OAUTHBEARER is not offered

	Names *certificate.Names // what clients that are known by their certificates are called; default: the subjects of the certificates

	Users      *user.Users   // the users who log in with SCRAM at listeners with SASL; default: SCRAM is not offered
	ACLs       *acl.ACLs     // what users may do; default: users may do nothing
	Quotas     *quota.Quotas // how much clients may use; default: there are no quotas
	SuperUsers []string      // users that may do everything, such as User:admin (super.users), however they log in; API keys with such a name may not

	Audit *audit.Log // records who deletes records; default: it is not recorded

	Logger   *slog.Logger // default: slog.Default()
	Observer Observer     // default: none

	limits limits
}

const (
	idleTimeout  = 10 * time.Minute // a connection with nothing to do is closed (connections.max.idle.ms)
	writeTimeout = 2 * time.Minute  // how long a client may take to read one answer
)

// limits are bounds that only tests change; 0: the default.
type limits struct {
	Conns         int   // most connections; default 10,000
	ConnsPerIP    int   // most connections from one address, or from one IPv6 /64; default 1,000
	FrameBytes    int   // largest produce request (socket.request.max.bytes); default 100 MiB, as in Kafka
	InFlightBytes int64 // most bytes of requests being read or handled, over all connections; one request may exceed it. Default 128 MiB, never less than one frame
	FetchBytes    int64 // most bytes of records being read and sent for fetches, over all connections; one batch may exceed it. Default 64 MiB
}

// Observer receives what the server did, for metrics. Calls may come from many goroutines and must
// be short.
type Observer interface {
	// Connected reports a connection opened (+1) or closed (-1).
	Connected(change int)
	// Answered reports every request that was executed.
	Answered(Exchange)
	// Refused reports why the server closed a connection: reason is one of a few fixed words.
	Refused(reason string)
	// Throttled reports that a client must pause, because it exceeded a quota of this kind.
	Throttled(quota string, pause time.Duration)
}

// Exchange is one request and its answer.
type Exchange struct {
	Key     string // Kafka's name of the API
	Version int16
	In, Out int           // bytes, framing included; Out is 0 if no answer is sent
	Took    time.Duration // from the request's last byte to the answer's
}

type nobody struct{}

func (nobody) Connected(int)                   {}
func (nobody) Answered(Exchange)               {}
func (nobody) Refused(string)                  {}
func (nobody) Throttled(string, time.Duration) {}

func (c Config) withDefaults() Config {
	if c.NodeID == nil {
		c.NodeID = new(int32(1))
	}
	c.Partitions = cmp.Or(c.Partitions, 1)
	c.limits.Conns = cmp.Or(c.limits.Conns, 10_000)
	c.limits.ConnsPerIP = cmp.Or(c.limits.ConnsPerIP, 1_000)
	c.limits.FrameBytes = cmp.Or(c.limits.FrameBytes, 100<<20)
	c.limits.InFlightBytes = cmp.Or(c.limits.InFlightBytes, 128<<20)
	c.limits.InFlightBytes = max(c.limits.InFlightBytes, int64(c.limits.FrameBytes), smallFrameMax)
	c.limits.FetchBytes = cmp.Or(c.limits.FetchBytes, 64<<20)
	c.limits.FetchBytes = max(c.limits.FetchBytes, fetchMax)
	if c.Names == nil {
		c.Names, _ = certificate.NewNames(nil) // no rule, no error
	}
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 5*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	return c
}

// Server answers Kafka clients.
type Server struct {
	log    *eventlog.Log
	groups *group.Coordinator
	cfg    Config
	apis   map[int16]*api

	superUsers map[string]bool // Config.SuperUsers

	alone     *broker.View                     // the view without Config.Brokers
	versions  []kmsg.ApiVersionsResponseApiKey // what ApiVersions answers
	clusterID string                           // set by Serve before the first connection

	lacks       lacks // uses of features that weir does not have, each logged once
	badLogins   badLogins
	metricNames metricNames
	pulse       pulse

	frames  *budget.Budget // bytes of requests being read or handled
	fetches *budget.Budget // bytes of records being read and sent
	conns   *conns.Limit

	quotas    *quota.Enforcer // nil without Config.Quotas
	connected atomic.Int64    // open connections
}

// New makes a server on log. Consumer groups work while the coordinator runs.
func New(log *eventlog.Log, groups *group.Coordinator, cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{
		log:     log,
		groups:  groups,
		cfg:     cfg,
		apis:    make(map[int16]*api),
		frames:  budget.New(cfg.limits.InFlightBytes),
		fetches: budget.New(cfg.limits.FetchBytes),
		conns:   conns.NewLimit(cfg.limits.Conns, cfg.limits.ConnsPerIP),
	}
	s.alone = broker.Alone(*cfg.NodeID)
	if cfg.Quotas != nil {
		s.quotas = quota.NewEnforcer(cfg.Quotas)
	}
	s.superUsers = make(map[string]bool)
	for _, principal := range cfg.SuperUsers {
		s.superUsers[principal] = true
	}
	for _, a := range apis() {
		a.prepare()
		s.apis[a.key.Int16()] = &a
	}
	s.versions = versionsOf(s.apis)
	return s
}

// Serve accepts and serves connections at all listeners until ctx ends. Then it drains: it stops
// reading, ends long polls, finishes the requests in progress for at most Config.DrainTimeout, and
// returns nil. It ends with an error when a listener fails.
func (s *Server) Serve(ctx context.Context, listeners ...Listener) error {
	closeAll := func() {
		for _, l := range listeners {
			l.Close()
		}
	}
	defer closeAll()
	if err := checkListeners(listeners); err != nil {
		return err
	}
	id, err := s.awaitClusterID(ctx)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("kafka: cluster id: %w", err)
	}
	s.clusterID = id

	// serving ends when all connections are closed, at the latest DrainTimeout after accepting
	// ends.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var open sync.WaitGroup
	defer open.Wait()
	accepting, ctx := errgroup.WithContext(ctx) // ctx also ends when one of several listeners fails
	defer context.AfterFunc(ctx, func() {
		closeAll()
		select {
		case <-time.After(s.cfg.DrainTimeout):
			stop()
		case <-serving.Done():
		}
	})()
	beating, endBeats := context.WithCancel(serving)
	defer endBeats()
	go s.pulse.run(beating, func(lasted time.Duration) {
		s.cfg.Logger.Warn("kafka: this process was suspended; the connections of before are closed", "for", lasted)
	})
	if s.quotas != nil {
		s.quotas.Refresh(ctx)
		accepting.Go(func() error { return s.quotas.Run(ctx, s.clientsConnected) })
	}
	for _, l := range listeners {
		accepting.Go(func() error {
			return s.accept(ctx, l, func(nc net.Conn, leave func()) {
				open.Go(func() {
					defer leave()
					if s.tooOften(ctx, nc) {
						nc.Close()
						return
					}
					newConn(s, l, nc).serve(serving, ctx)
				})
			})
		})
	}
	if err = accepting.Wait(); err != nil {
		stop() // a listener was closed by others
	}
	return err
}

// accept hands every connection within the limits to serve, until ctx ends.
func (s *Server) accept(ctx context.Context, l Listener, serve func(nc net.Conn, leave func())) error {
	const firstPause, lastPause = 5 * time.Millisecond, time.Second
	pause := firstPause
	for {
		nc, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				reset(nc) // as conn.interrupt
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("kafka: accept: %w", err)
		case err != nil: // out of file descriptors, most likely: other connections close in time
			s.cfg.Logger.Error("kafka: cannot accept a connection", "err", err, "retry_in", pause)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, lastPause)
			continue
		}
		pause = firstPause
		leave, reason, err := s.enter(nc.RemoteAddr())
		if err != nil {
			s.cfg.Observer.Refused(reason)
			s.cfg.Logger.Debug("kafka: connection refused", "client", nc.RemoteAddr(), "err", err)
			nc.Close()
			continue
		}
		serve(nc, leave)
	}
}

// enter counts a new connection until leave is called, or refuses it at a limit.
func (s *Server) enter(a net.Addr) (leave func(), reason string, err error) {
	uncount, err := s.conns.Enter(a)
	if err == nil {
		s.connected.Add(1)
		s.cfg.Observer.Connected(+1)
		return func() { uncount(); s.connected.Add(-1); s.cfg.Observer.Connected(-1) }, "", nil
	}
	var full *conns.FullError
	if errors.As(err, &full) && full.From.IsValid() {
		return nil, "connections_per_ip", err
	}
	return nil, "connections", err
}

// hostPort splits an address. An address without a port, such as a pipe's, is only a host.
func hostPort(a net.Addr) (host string, port int32) {
	host, digits, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String(), 0
	}
	n, _ := strconv.ParseUint(digits, 10, 16)
	return host, int32(n)
}
