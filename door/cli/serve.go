package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/door/console"
	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/certificate"
	"github.com/weir-log/weir/internal/closing"
	"github.com/weir-log/weir/internal/doctor"
	"github.com/weir-log/weir/internal/metric"
	"github.com/weir-log/weir/internal/node"
	"github.com/weir-log/weir/internal/token"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/store/cache"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/store/s3"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/broker"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/projection"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/quota"
	"github.com/weir-log/weir/use/stream"
	"github.com/weir-log/weir/use/user"
)

// Stopping takes at most leaveBrokers, drainUses, drainLog and lastSpans, one after the other, and
// a little for closing the store. If the store does not answer even then, the process exits after
// stopMost, because docker stop kills after ten seconds.
const (
	leaveBrokers = 2 * time.Second                   // to tell the other brokers, and to serve until they have taken over
	drainDoors   = 3 * time.Second                   // for requests in progress
	drainUses    = drainDoors + 500*time.Millisecond // then members leave their groups, and the last acks are answered
	drainLog     = 2 * time.Second
	stopMost     = 9 * time.Second
)

type serveCmd struct {
	storeFlag
	Kafka                []string `help:"The address on which to listen for Kafka clients, off: do not listen. May be given again. PROTOCOL is plaintext, which is the default, or ssl, or sasl_plaintext or sasl_ssl, where clients log in with API keys, as users or with OAuth tokens; the others ask for none. Default: ${default}." default:"127.0.0.1:9092" placeholder:"[NAME=][PROTOCOL://]HOST:PORT"`
	HTTP                 string   `help:"The address on which to listen for HTTP: the console, the API, health, readiness, metrics. Default: ${default}." name:"http" default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	Advertise            []string `help:"The address that Kafka clients get to connect to. Default: the address to which they connected first. With several --kafka addresses, NAME is that of one of them; its default is the protocol." placeholder:"[NAME=]HOST:PORT"`
	HTTPHosts            []string `name:"http-host" placeholder:"NAME" help:"With --insecure, while nobody needs credentials: a name of public DNS by which browsers and programs reach this HTTP API. Others are refused, because a web page could have given itself such a name (DNS rebinding); IP addresses, localhost and names without a dot need no flag. May be repeated."`
	Insecure             bool     `help:"Allow addresses that other machines can reach, although anybody on these can then read and write everything: over Kafka unless the address has SASL or asks for client certificates, over HTTP until there are API keys or users, or --oauth-jwks or --tls-client-ca is given. And allow an --oauth-jwks at an http URL of another machine."`
	TLSCert              string   `help:"Serve HTTP over TLS with the certificate in this PEM file, and use it for Kafka addresses with ssl. The file is read again when it changes." name:"tls-cert" placeholder:"FILE"`
	TLSKey               string   `help:"The certificate's private key." name:"tls-key" placeholder:"FILE"`
	TLSClientCA          string   `help:"Kafka clients that connect to an address with ssl must show a certificate that one of those in this PEM file has signed, and HTTP clients may. It makes them users, such as User:CN=billing,O=Example. The file is read again when it changes." name:"tls-client-ca" placeholder:"FILE"`
	TLSPrincipalRule     []string `help:"How the name of a user is made of its certificate's subject (ssl.principal.mapping.rules): DEFAULT, which is the subject, or RULE:PATTERN/REPLACEMENT/, with L or U at the end for small or capital letters. May be given again: the first that matches counts." name:"tls-principal-rule" placeholder:"RULE" sep:"none"`
	BrokerID             *int32   `help:"This broker's id among those on the store, from 0. Default: the lowest from 1 that is free." name:"broker-id" placeholder:"N"`
	Rack                 string   `help:"Where this broker is (broker.rack). Consumers with this client.rack read from it." placeholder:"NAME"`
	Reauth               duration `help:"Kafka clients that logged in with SASL must do so again within this time (connections.max.reauth.ms): 1h. Default: never." placeholder:"TIME"`
	SuperUsers           []string `help:"A user that may do everything (super.users), over Kafka and HTTP, however it shows who it is: User:admin. May be given again. weir user create makes users." name:"super-users" placeholder:"User:NAME" sep:";"`
	Partitions           int      `help:"Number of partitions of a topic, if the request that creates it gives none." default:"1"`
	PartitionsMax        int      `help:"How many partitions all topics together may have: beyond it no topic is created and none gets more." name:"partitions-max" default:"200000"`
	AutoCreate           bool     `help:"Create a topic when a Kafka client asks for it and it does not exist. HTTP clients create topics with POST /v1/topics." default:"true" negatable:""`
	AnyReplicationFactor bool     `help:"Accept requests of Kafka clients to create topics with a replication factor above 1, and report it as 1: the store keeps the records safe."`
	Tail                 size     `help:"Memory for the newest records. Consumers that are near the end of a partition read from it." default:"64MiB"`
	ReadOnly             bool     `help:"Follow the log that other processes write, serve consumers, and never write: what would change something is refused. For a store in a bucket (s3://), with credentials that may only read it." name:"read-only"`
	CacheDir             string   `help:"Keep batches that were read from the store in files in this directory, so that consumers of older records are served from them. No other process may use it. Default: no cache." name:"cache-dir" placeholder:"DIR"`
	CacheBytes           size     `help:"Space for the files in --cache-dir. Default: ${default}." name:"cache-bytes" default:"1GiB"`
	Console              string   `help:"The console, pages for a browser at / of the HTTP address: on or off." enum:"on,off" default:"on"`
	Audit                string   `help:"Whether it is recorded, in the topic weir.audit, what clients change: on or off." enum:"on,off" default:"on"`
	Profile              bool     `help:"Serve Go profiles under /debug/pprof/ on the HTTP address."`
	Log                  string   `help:"Format of the log, on standard error: text or json." enum:"text,json" default:"text"`
	LogLevel             string   `help:"The lowest level to log: debug, info, warn or error." enum:"debug,info,warn,error" default:"info"`
	groupFlags
	oauthFlags
}

func (serveCmd) Help() string {
	return `Ctrl-C stops the server in order: it finishes the requests in progress and makes all accepted records durable. A second Ctrl-C stops it immediately.
In both cases acknowledged records are safe.

Examples:

  weir serve
  weir serve --store sqlite:/var/lib/weir/weir.db --http 127.0.0.1:9090
  weir serve --store postgres://weir@db.internal/weir
  weir serve --http 0.0.0.0:8443 --tls-cert weir.crt --tls-key weir.key --kafka off
  weir serve --store s3://my-bucket/weir --read-only
  weir serve --kafka 127.0.0.1:9092 --kafka sasl_ssl://0.0.0.0:9093 --advertise sasl_ssl=broker.example.org:9093 --tls-cert weir.crt --tls-key weir.key
  weir serve --kafka sasl_ssl://0.0.0.0:9093 --tls-cert weir.crt --tls-key weir.key --oauth-jwks https://id.example.org/jwks --oauth-issuer https://id.example.org --oauth-audience weir
  weir serve --kafka 0.0.0.0:9092 --advertise broker.example.org:9092 --insecure`
}

// A broker may use twice its live memory, and heapFloor bytes more, before Go collects garbage. A
// broker whose consumers read old records has 5 MiB of live memory. Without a floor it collects
// fifty times for each 350 MB that it reads, which takes 15 % of its processor time.
const heapFloor = 16 << 20

// floor returns memory that Go counts as in use, so that Go collects later. Nothing writes to it,
// so it takes none of the machine's memory. Go has no setting for this: GOGC is relative, and
// GOMEMLIMIT is an upper bound.
func floor() []byte { return make([]byte, heapFloor) }

func (c *serveCmd) Run(ctx context.Context, t *terminal, version buildVersion) (err error) {
	defer runtime.KeepAlive(floor())
	logger := c.logger(t)
	if c.BrokerID != nil && *c.BrokerID < 0 {
		return usage(fmt.Errorf("--broker-id is %d; ids begin at 0", *c.BrokerID), "")
	}
	groups, err := c.groupFlags.config()
	if err != nil {
		return usage(err, "")
	}
	if err := checkSuperUsers(c.SuperUsers); err != nil {
		return err
	}
	if c.ReadOnly {
		if c.Store, err = store.ReadOnly(c.Store); err != nil {
			return config(err, "leave --read-only out, or name the bucket of the processes that write with --store")
		}
	}
	names, err := certificate.NewNames(c.TLSPrincipalRule)
	if err != nil {
		return usage(fmt.Errorf("--tls-principal-rule: %w", err), "")
	}
	addresses, err := c.checkAddresses(ctx, logger)
	if err != nil {
		return err
	}
	tokens, err := c.verifier(c.Insecure, logger)
	if err != nil {
		return err
	}
	secured, err := c.encryption(logger)
	if err != nil {
		return err
	}
	kafkaListeners, err := listenKafka(ctx, addresses, secured)
	if err != nil {
		return err
	}
	defer closeKafka(kafkaListeners)
	httpListener, err := listen(ctx, "--http", c.HTTP)
	if err != nil {
		return err
	}
	defer httpListener.Close()

	slow := time.AfterFunc(time.Second, func() { logger.Info("opening the store takes longer than a second", "store", store.Redact(c.Store)) })
	stopped := make(chan struct{})
	defer close(stopped)
	context.AfterFunc(ctx, func() { cutOff(logger, stopped, os.Exit) })
	opened, err := c.open(ctx, logger)
	slow.Stop()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	registry := prometheus.NewRegistry()
	if bucket, is := eventlog.As[*s3.Store](opened); is {
		metric.WatchS3(registry, func() metric.S3 { return metric.S3(bucket.Stats()) })
	}
	if server, is := eventlog.As[*postgres.Store](opened); is {
		metric.WatchNotifications(registry, server.NotificationQueueUsage)
	}
	cached, err := c.cache(opened, registry, logger)
	if err != nil {
		return err
	}
	opened = cached
	findings := c.warnOfLoss(ctx, logger)
	tracer, lastSpans, err := tracing(ctx, version, logger)
	if err != nil {
		return err
	}
	defer lastSpans()
	metrics := metric.New(registry, string(version))
	n, err := node.Open(ctx, opened, node.Config{
		TailBytes: int64(c.Tail), TotalPartitions: c.PartitionsMax, DrainTimeout: drainLog, DrainClaims: drainDoors, Groups: groups, NoAudit: c.Audit == "off", Logger: logger, Observer: metrics, Tracer: tracer,
	})
	if err != nil {
		return c.explain(ctx, err, "")
	}
	keys, users := apikey.New(n.Audit, logger), user.New(n.Audit, logger)
	locked, err := c.checkHTTP(ctx, keys, users, logger)
	if err != nil {
		return err
	}
	program, err := c.wire(ctx, n, wiring{
		logger: logger, version: version, registry: registry, metrics: metrics, keys: keys, users: users, tokens: tokens, names: names, tls: secured.http, kafka: kafkaListeners, http: httpListener,
		addresses: advertised(addresses, kafkaListeners), findings: findings,
	})
	if err != nil {
		return err
	}
	c.welcome(t, logger, where{kafka: c.kafkaDoors(addresses, kafkaListeners), http: httpListener.Addr().String(), locked: locked, readOnly: program.node.Log.ReadOnly()})
	if err := program.run(ctx); err != nil {
		return err
	}
	logger.Info("stopped", "cause", context.Cause(ctx))
	return nil
}

// cache puts a cache in front of the store if there is a directory for it.
func (c *serveCmd) cache(opened eventlog.Store, registry *prometheus.Registry, logger *slog.Logger) (eventlog.Store, error) {
	if c.CacheDir == "" {
		return opened, nil
	}
	cached, err := store.Cached(opened, c.Store, cache.Options{Dir: c.CacheDir, Bytes: int64(c.CacheBytes), Logger: logger})
	if err != nil {
		return nil, config(err, "--cache-dir names the directory, --cache-bytes the space that it may take")
	}
	metric.WatchCache(registry, func() metric.Cache { return metric.Cache(cached.Stats()) })
	return cached, nil
}

// wiring is what the parts of the program share.
type wiring struct {
	logger  *slog.Logger
	version buildVersion

	registry *prometheus.Registry

	metrics *metric.Set
	keys    *apikey.Keys
	users   *user.Users
	tokens  *token.Verifier // nil: tokens are not taken
	names   *certificate.Names
	tls     *tls.Config // of HTTP
	kafka   []kafka.Listener
	http    net.Listener

	addresses map[string]string // of kafka, as other brokers tell clients, by listener name
	findings  []doctor.Finding  // of the store, at the start
}

// wire makes the parts of the program, each from the parts below it.
func (c *serveCmd) wire(ctx context.Context, n *node.Node, w wiring) (*parts, error) {
	registry, stored := w.registry, prometheus.NewRegistry() // stored has what is read from the store
	if n.Log.ReadOnly() {
		metric.WatchBehind(registry, n.Log.Behind)
	} else {
		metric.WatchWritable(registry, n.Log.Refusing)
	}
	metric.WatchGroups(stored, groupsSeen(n.Groups))
	metric.WatchQueues(stored, queuesSeen(n.Queues))
	metric.WatchCategories(registry, categoriesSeen(n.Streams))
	metric.WatchProjections(stored, projectionsSeen(n.Projections))
	acls, quotas := acl.New(n.Audit, w.logger), quota.New(n.Audit, w.logger)
	c.warnOfNoRights(ctx, acls, w.logger)
	p := &parts{node: n, kafkaListeners: w.kafka, httpListener: w.http}
	if len(w.kafka) > 0 && store.Shared(c.Store) && !store.Alone(c.Store) && !n.Log.ReadOnly() { // nobody hears of a process that only reads: it leads everything for its own clients
		host, err := os.Hostname()
		if err != nil {
			return nil, config(fmt.Errorf("find the name of this machine: %w", err), "")
		}
		p.brokers = broker.New(n.Log, broker.Config{ID: c.BrokerID, Host: host, Addresses: w.addresses, Rack: c.Rack, Counters: func() *broker.Counters { return p.history.Counters() }, Logger: w.logger})
	}
	c.keepHistory(p, registry, stored)
	p.http = httpapi.New(httpapi.Config{
		Log: n.Log, Groups: n.Groups, Publisher: n.Publisher, Queues: n.Queues, Categories: n.Streams,
		Projections: n.Projections, Partitions: c.Partitions,
		Keys: w.keys, Users: w.users, Tokens: w.tokens, Names: w.names, ACLs: acls, Quotas: quotas, SuperUsers: c.SuperUsers, Insecure: c.Insecure, Hosts: c.HTTPHosts, TLS: w.tls,
		DrainTimeout: drainDoors, Ready: p.healthy, Metrics: prometheus.Gatherers{registry, stored}, Profile: c.Profile, Logger: w.logger, Observer: metric.NewHTTP(registry),
		Console: c.console(p, w),
	})
	if p.tokens = w.tokens; p.tokens != nil {
		metric.WatchOAuthKeys(registry, p.tokens.Fetched)
	}
	if len(w.kafka) > 0 {
		p.kafka = kafka.New(n.Log, n.Groups, kafka.Config{
			Brokers: p.brokers, NodeID: c.BrokerID,
			HTTPAddr: w.http.Addr().String(), Partitions: c.Partitions, NoAutoCreate: !c.AutoCreate,
			AnyReplicationFactor: c.AnyReplicationFactor, Keys: w.keys, Tokens: w.tokens, LoginLasts: time.Duration(c.Reauth),
			Users: w.users, ACLs: acls, Quotas: quotas, Audit: n.Audit, Names: w.names, SuperUsers: c.SuperUsers,
			DrainTimeout: drainDoors, Logger: w.logger, Observer: kafkaMetrics{w.metrics},
		})
	}
	return p, nil
}

// warnOfLoss warns of settings and states of the store that can lose acknowledged records, or keep
// it from serving. It does not refuse them: a full disk, for example, must not keep anybody from
// reading.
func (c *serveCmd) warnOfLoss(ctx context.Context, logger *slog.Logger) []doctor.Finding {
	findings, err := store.Examine(ctx, c.Store)
	if err != nil {
		logger.Warn("cannot examine the store", "err", err)
	}
	for _, f := range findings {
		if f.Level == doctor.Bad {
			logger.Warn("the store may lose acknowledged records, or cannot serve", "check", f.Name, "value", f.Value, "do", f.Advice)
		}
	}
	return findings
}

// cutOff ends the process when it has not stopped in time. What was acknowledged is on disk.
func cutOff(logger *slog.Logger, stopped <-chan struct{}, exit func(code int)) {
	select {
	case <-stopped:
	case <-time.After(stopMost):
		logger.Error("the store did not close in time; the process ends anyway. Acknowledged records are safe", "waited", stopMost)
		exit(exitUnreachable)
	}
}

// parts are what lives as long as the program.
type parts struct {
	node    *node.Node
	kafka   *kafka.Server   // nil: no Kafka clients
	tokens  *token.Verifier // nil: tokens are not taken
	http    *httpapi.Server
	history *console.History // of the plots
	brokers *broker.Registry // nil if no other process can serve Kafka clients on the store

	kafkaListeners []kafka.Listener
	httpListener   net.Listener
}

// healthy returns nil while the store answers and accepts records, and clients find this process;
// otherwise why not.
func (p *parts) healthy() error {
	err := p.node.Log.Healthy()
	if err == nil && p.brokers != nil {
		err = p.brokers.Healthy()
	}
	return err
}

// run runs until ctx ends or a part fails. First the doors and the mover drain, then the log
// flushes what they handed to it. The log stops drainUses after the doors began to drain, even if
// something still waits for it: what is not in the store within drainLog then is refused, or its
// outcome is unknown.
func (p *parts) run(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	logCtx, stopLog := context.WithCancel(context.WithoutCancel(ctx))
	all.Go(func() error { return p.node.Log.Run(logCtx) })
	all.Go(func() error {
		defer stopLog()
		ctx, leave, err := p.joinBrokers(ctx)
		if err != nil {
			return err
		}
		defer leave()
		doors, ctx := errgroup.WithContext(ctx)
		defer context.AfterFunc(ctx, func() {
			p.node.Log.EndLinger()
			time.AfterFunc(drainUses, stopLog)
		})()
		if p.kafka != nil {
			doors.Go(func() error { return p.kafka.Serve(ctx, p.kafkaListeners...) })
		}
		if p.tokens != nil {
			doors.Go(func() error { return p.tokens.Run(ctx) })
		}
		doors.Go(func() error { return p.http.Serve(ctx, p.httpListener) })
		doors.Go(func() error { return p.history.Run(ctx) })
		for _, use := range p.node.Uses() {
			doors.Go(func() error { return use.Run(ctx) })
		}
		queuesCtx, stopQueues := context.WithCancel(context.WithoutCancel(ctx))
		queues := errgroup.Group{}
		queues.Go(func() error { return p.node.Queues.Run(queuesCtx) })
		err = doors.Wait()
		stopQueues() // acks that came at the last moment are answered
		return errors.Join(err, queues.Wait())
	})
	return all.Wait()
}

// joinBrokers makes this process known to the others on the store. The context that it returns ends
// after ctx has ended and the others have taken over, and leave waits for all that it started.
func (p *parts) joinBrokers(ctx context.Context) (serving context.Context, leave func(), err error) {
	if p.brokers == nil {
		return ctx, func() {}, nil
	}
	if err := p.brokers.Join(ctx); err != nil {
		if errors.Is(err, broker.ErrIDInUse) {
			err = config(err, "")
		}
		return nil, nil, err
	}
	serving, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	known, stopKnown := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		leaving, cancel := closing.Outlive(known, leaveBrokers)
		defer cancel()
		_ = p.brokers.Run(known) // it returns nil
		if p.brokers.Leave(leaving) && ctx.Err() != nil {
			select {
			case <-time.After(broker.HandOver):
			case <-leaving.Done():
			case <-serving.Done():
			}
		}
		stop(context.Cause(ctx))
	})
	return serving, func() { stop(nil); stopKnown(); running.Wait() }, nil
}

func (c *serveCmd) logger(t *terminal) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		panic(err) // the flag's enum allows levels only
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Log == "json" {
		return slog.New(slog.NewJSONHandler(t.err, options))
	}
	return slog.New(slog.NewTextHandler(t.err, options))
}

// where is what welcome shows.
type where struct {
	kafka    []kafkaDoor // none: no Kafka clients
	http     string      // its address
	locked   bool        // HTTP clients must show who they are
	readOnly bool        // nobody can write
}

// withoutKey returns who may use each door without a key.
func (c *serveCmd) withoutKey(at where) (kafka, http string) {
	const nobody, here, everybody = "nobody", "this machine", "everybody"
	kafka, http = nobody, here
	for _, d := range at.kafka {
		if kafka == nobody || d.open == everybody {
			kafka = d.open
		}
	}
	switch {
	case at.locked:
		http = nobody
	case c.Insecure:
		http = everybody
	}
	return kafka, http
}

// welcome shows a person where the doors are and who may use them; for a log collector, it logs the
// same in one line.
func (c *serveCmd) welcome(t *terminal, logger *slog.Logger, at where) {
	kafkaOpen, httpOpen := c.withoutKey(at)
	scheme := "http"
	if c.TLSCert != "" {
		scheme = "https"
	}
	if c.Log == "json" {
		logger.Info("listening", "kafka", at.kafkaAddresses(), "http", at.http, "tls", c.TLSCert != "", "api_keys", at.locked,
			"kafka_without_key", kafkaOpen, "http_without_key", httpOpen, "store", store.Redact(c.Store), "read_only", at.readOnly)
		return
	}
	var doors strings.Builder
	for _, d := range at.kafka {
		fmt.Fprintf(&doors, "  Kafka  %s  %s\n", d.at, d.forWhom(at.locked))
	}
	if len(at.kafka) == 0 {
		doors.WriteString("  Kafka  off  for nobody\n")
	}
	httpFor, header := "for "+httpOpen+", until there is an API key or a user", ""
	if at.locked {
		httpFor, header = "with an API key or as a user", ` -H "Authorization: Bearer $KEY"`
	}
	url, overKafka := scheme+"://"+at.http, ""
	if i := slices.IndexFunc(at.kafka, func(d kafkaDoor) bool { return d.protocol == protocolPlaintext }); i >= 0 {
		program, bootstrap := cmp.Or(t.program, "weir"), ""
		if at.kafka[i].at != "127.0.0.1:9092" {
			bootstrap = " --bootstrap " + at.kafka[i].at
		}
		overKafka = fmt.Sprintf("  echo hello | %[1]s produce greetings%[2]s\n  %[1]s consume greetings%[2]s\nor, over HTTP:\n", program, bootstrap)
	}
	try := url
	if host, port, err := net.SplitHostPort(at.http); err == nil && unspecified(host) {
		try = scheme + "://localhost:" + port
	}
	if at.readOnly {
		fmt.Fprintf(t.out, `weir is ready, and only reads.
%s  HTTP   %s  %s
  data   %s

Try:
  curl%s %s/v1/topics

`, &doors, url, httpFor, store.Redact(c.Store), header, try)
		return
	}
	fmt.Fprintf(t.out, `weir is ready.
%s  HTTP   %s  %s
  data   %s

Try:
%s  curl%s -H 'Content-Type: application/json' -d '{"name": "greetings"}' %s/v1/topics
  curl%s -d hello %s/v1/topics/greetings/events

`, &doors, url, httpFor, store.Redact(c.Store), overKafka, header, try, header, try)
}

// kafkaAddresses lists the addresses for Kafka clients, for the log.
func (at where) kafkaAddresses() string {
	var all []string
	for _, d := range at.kafka {
		all = append(all, d.at)
	}
	return cmp.Or(strings.Join(all, ","), kafkaOff)
}

// kafkaMetrics passes what the Kafka door reports to the metrics.
type kafkaMetrics struct{ *metric.Set }

func (m kafkaMetrics) Answered(e kafka.Exchange) { m.Set.Answered(e.Key, e.In, e.Out, e.Took) }

// groupsSeen returns a function that reads the groups for the metrics. With an error it returns the
// groups without their lag, if the lag alone could not be read.
func groupsSeen(groups *group.Coordinator) func(context.Context) ([]metric.Group, error) {
	return func(ctx context.Context) ([]metric.Group, error) {
		stats, lags, err := groups.Stats(ctx)
		seen := make([]metric.Group, len(stats))
		index := map[string]int{}
		for i, s := range stats {
			seen[i] = metric.Group{Name: s.Group, Members: s.Members, Lag: map[string]int64{}}
			index[s.Group] = i
		}
		for _, l := range lags {
			if i, ok := index[l.Group]; ok {
				seen[i].Lag[l.Name] += l.Records
			}
		}
		return seen, err
	}
}

// queuesSeen returns a function that reads the work queues for the metrics.
func queuesSeen(queues *queue.Queues) func(context.Context) ([]metric.Queue, int64, error) {
	return func(ctx context.Context) ([]metric.Queue, int64, error) {
		counts, delayed, err := queues.Counts(ctx)
		if err != nil {
			return nil, 0, err
		}
		seen := make([]metric.Queue, len(counts))
		for i, c := range counts {
			seen[i] = metric.Queue{Name: c.Name, Oldest: c.Oldest, Messages: map[string]int64{"ready": c.Ready, "claimed": c.Claimed, "waiting": c.Waiting, "dead": c.Dead}}
			if c.Delayed >= 0 {
				seen[i].Messages["delayed"] = c.Delayed
			}
		}
		return seen, delayed, nil
	}
}

// categoriesSeen returns a function that reads for the metrics what was appended to streams.
func categoriesSeen(categories *stream.Streams) func() []metric.Category {
	return func() []metric.Category {
		var seen []metric.Category
		for _, n := range categories.Counts() {
			seen = append(seen, metric.Category{Name: n.Category, Appends: map[string]int64{"appended": n.Appended, "duplicate": n.Duplicates, "conflict": n.Conflicts, "boundary": n.Boundaries}})
		}
		return seen
	}
}

// projectionsSeen returns a function that reads the projections for the metrics.
func projectionsSeen(projections *projection.Projections) func(context.Context) ([]metric.Projection, error) {
	return func(ctx context.Context) ([]metric.Projection, error) {
		all, err := projections.All(ctx)
		if err != nil {
			return nil, err
		}
		var seen []metric.Projection
		for _, p := range all {
			seen = append(seen, metric.Projection{Name: p.Name, Run: "now", Lag: p.Run.Lag, Behind: p.Run.Behind})
			if p.Next != nil {
				seen = append(seen, metric.Projection{Name: p.Name, Run: "next", Lag: p.Next.Lag, Behind: p.Next.Behind})
			}
		}
		return seen, nil
	}
}
