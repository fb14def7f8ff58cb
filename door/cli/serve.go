package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/doctor"
	"github.com/weir-log/weir/internal/metric"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/group"
)

// Stopping takes at most the sum of these, and a little for closing the store: below ten seconds. A store that does not answer, not
// even to a goodbye, is left behind after stopMost.
const (
	drainDoors = 3 * time.Second
	drainLog   = 4 * time.Second
	stopMost   = 9 * time.Second
)

type serveCmd struct {
	storeFlag
	Kafka      string `help:"Where to listen for Kafka clients. Default: ${default}." default:"127.0.0.1:9092" placeholder:"HOST:PORT"`
	HTTP       string `help:"Where to listen for HTTP: health, readiness, metrics. Default: ${default}." name:"http" default:"127.0.0.1:8080" placeholder:"HOST:PORT"`
	Advertise  string `help:"The address that Kafka clients are told to use. Default: the one at which they reached us." placeholder:"HOST:PORT"`
	Insecure   bool   `help:"Listen on addresses that other machines can reach, although anybody there can read and write everything."`
	Partitions int    `help:"Partitions of a topic created without a number." default:"1"`
	AutoCreate bool   `help:"Create a topic when a client first asks for it." default:"true" negatable:""`
	Tail       size   `help:"Memory for recent records, from which consumers near the end are served." default:"64MiB"`
	Profile    bool   `help:"Serve Go profiles under /debug/pprof/ on the HTTP address."`
	Log        string `help:"How to log, on standard error: text or json." enum:"text,json" default:"text"`
	LogLevel   string `help:"The least level to log: debug, info, warn or error." enum:"debug,info,warn,error" default:"info"`
}

func (serveCmd) Help() string {
	return `Ctrl-C stops it in order: requests in progress are finished and what was accepted is made durable. A second Ctrl-C stops it at once;
acknowledged records are safe either way.

Examples:

  weir serve
  weir serve --store sqlite:/var/lib/weir/weir.db --http 127.0.0.1:9090
  weir serve --store postgres://weir@db.internal/weir
  weir serve --kafka 0.0.0.0:9092 --advertise broker.example.org:9092 --insecure`
}

func (c *serveCmd) Run(ctx context.Context, t *terminal, version buildVersion) (err error) {
	logger := c.logger(t)
	if err := c.checkAddresses(ctx, logger); err != nil {
		return err
	}
	kafkaListener, err := listen(ctx, "--kafka", c.Kafka)
	if err != nil {
		return err
	}
	defer kafkaListener.Close()
	httpListener, err := listen(ctx, "--http", c.HTTP)
	if err != nil {
		return err
	}
	defer httpListener.Close()

	slow := time.AfterFunc(time.Second, func() { logger.Info("the store takes its time to open", "store", store.Redact(c.Store)) })
	stopped := make(chan struct{})
	defer close(stopped)
	context.AfterFunc(ctx, func() { cutOff(logger, stopped) })
	opened, err := c.open(ctx, logger)
	slow.Stop()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	c.warnOfLoss(ctx, logger)
	registry := prometheus.NewRegistry()
	metrics := metric.New(registry, string(version))
	log, err := eventlog.Open(ctx, opened, eventlog.Config{
		TailBytes: int64(c.Tail), DrainTimeout: drainLog, Logger: logger, Observer: metrics,
	})
	if err != nil {
		return c.explain(ctx, err, "")
	}
	groups := group.New(log, group.Config{Logger: logger})
	metric.WatchGroups(registry, groupsSeen(groups))
	program := parts{
		log: log, groups: groups,
		kafka: kafka.New(log, groups, kafka.Config{
			Advertised: c.Advertise, HTTPAddr: httpListener.Addr().String(), Partitions: c.Partitions, NoAutoCreate: !c.AutoCreate,
			DrainTimeout: drainDoors, Logger: logger, Observer: kafkaMetrics{metrics},
		}),
		http:          httpapi.New(httpapi.Config{Ready: log.Healthy, Metrics: registry, Profile: c.Profile, Logger: logger}),
		kafkaListener: kafkaListener, httpListener: httpListener,
	}
	c.welcome(t, logger, kafkaListener.Addr(), httpListener.Addr())
	if err := program.run(ctx); err != nil {
		return err
	}
	logger.Info("stopped", "cause", context.Cause(ctx))
	return nil
}

// warnOfLoss tells of settings of the store that can lose what it acknowledged, or keep it from serving. It does not refuse them: a full
// disk, for one, must not keep anybody from reading.
func (c *serveCmd) warnOfLoss(ctx context.Context, logger *slog.Logger) {
	findings, err := store.Examine(ctx, c.Store)
	if err != nil {
		logger.Warn("the store could not be examined", "error", err)
	}
	for _, f := range findings {
		if f.Level == doctor.Bad {
			logger.Warn("the store may lose acknowledged records", "check", f.Name, "value", f.Value, "do", f.Advice)
		}
	}
}

// cutOff ends the process when it has not stopped in time. What was acknowledged is on disk.
func cutOff(logger *slog.Logger, stopped <-chan struct{}) {
	select {
	case <-stopped:
	case <-time.After(stopMost):
		logger.Error("the store does not answer; leaving it behind. Acknowledged records are safe", "waited", stopMost)
		os.Exit(exitUnreachable)
	}
}

// parts are what lives as long as the program.
type parts struct {
	log    *eventlog.Log
	groups *group.Coordinator
	kafka  *kafka.Server
	http   *httpapi.Server

	kafkaListener, httpListener net.Listener
}

// run runs until ctx ends or a part fails. First the doors drain, then the log flushes what they handed to it.
func (p *parts) run(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	logCtx, stopLog := context.WithCancel(context.WithoutCancel(ctx))
	all.Go(func() error { return p.log.Run(logCtx) })
	all.Go(func() error {
		defer stopLog()
		doors, ctx := errgroup.WithContext(ctx)
		doors.Go(func() error { return p.kafka.Serve(ctx, p.kafkaListener) })
		doors.Go(func() error { return p.http.Serve(ctx, p.httpListener) })
		doors.Go(func() error { return p.groups.Run(ctx) })
		return doors.Wait()
	})
	return all.Wait()
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

// welcome tells a person where everything is, and a log collector the same in one line.
func (c *serveCmd) welcome(t *terminal, logger *slog.Logger, kafkaAddr, httpAddr net.Addr) {
	if c.Log == "json" {
		logger.Info("listening", "kafka", kafkaAddr.String(), "http", httpAddr.String(), "store", store.Redact(c.Store))
		return
	}
	bootstrap := ""
	if kafkaAddr.String() != "127.0.0.1:9092" {
		bootstrap = " --bootstrap " + kafkaAddr.String()
	}
	program := cmp.Or(t.program, "weir")
	fmt.Fprintf(t.out, `weir is ready.
  Kafka  %s
  HTTP   http://%s  /healthz /readyz /metrics
  data   %s

Try:
  echo hello | %s produce greetings%s
  %s consume greetings%s

`, kafkaAddr, httpAddr, store.Redact(c.Store), program, bootstrap, program, bootstrap)
}

// kafkaMetrics lets the metrics listen to the Kafka door.
type kafkaMetrics struct{ *metric.Set }

func (m kafkaMetrics) Answered(e kafka.Exchange) { m.Set.Answered(e.Key, e.In, e.Out, e.Took) }

// groupsSeen lets the metrics look at the groups.
func groupsSeen(groups *group.Coordinator) func(context.Context) ([]metric.Group, error) {
	return func(ctx context.Context) ([]metric.Group, error) {
		stats, lags, err := groups.Stats(ctx)
		if err != nil {
			return nil, err
		}
		seen := make([]metric.Group, len(stats))
		index := map[string]int{}
		for i, s := range stats {
			seen[i] = metric.Group{Name: s.Group, Members: s.Members, Lag: map[string]int64{}}
			index[s.Group] = i
		}
		for _, l := range lags {
			if i, ok := index[l.Group]; ok {
				seen[i].Lag[l.Topic] += l.Records
			}
		}
		return seen, nil
	}
}
