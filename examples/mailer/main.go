// Command mailer takes orders over HTTP and sends a mail for each. The order, its mail and the
// message that has the mail sent are written in one transaction of PostgreSQL. Workers send by
// SMTP, and write what became of a mail into its row.
//
//	go run ./examples/mailer --database postgres://localhost/postgres --smtp localhost:25
package main

import (
	"context"
	_ "embed" // the schema
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	netmail "net/mail"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/weirotel"
)

//go:embed schema.sql
var schema string

// closeWithin is how long the log may take to close once nobody works with it.
const closeWithin = 5 * time.Second

// settings are what the command line says, and what tests want otherwise.
type settings struct {
	database string
	relay    relay
	queue    weir.QueueSettings
	session  time.Duration // of the consumer of dead letters; 0: weir's default
	drain    time.Duration // how long to wait at a stop for mails that are being sent
	spans    trace.TracerProvider
}

func defaults() settings {
	return settings{
		// Without a limit on attempts, a mail that the server defers is tried until its time is
		// over.
		queue: weir.QueueSettings{Attempts: -1, Backoff: 2 * time.Second, BackoffMax: time.Minute, TTL: 24 * time.Hour},
		drain: 30 * time.Second,
		spans: noop.NewTracerProvider(),
	}
}

func main() {
	s := defaults()
	flag.StringVar(&s.database, "database", "", "PostgreSQL: postgres://USER:PASSWORD@HOST:PORT/DATABASE")
	flag.StringVar(&s.relay.address, "smtp", "", "the SMTP server to send the mails to: HOST:PORT")
	flag.StringVar(&s.relay.from, "from", "shop@localhost", "the sender's address")
	flag.DurationVar(&s.queue.TTL, "ttl", s.queue.TTL, "how long to try a mail before it expires")
	flag.DurationVar(&s.drain, "drain", s.drain, "how long to wait at a stop for mails that are being sent")
	listen := flag.String("listen", "127.0.0.1:8025", "address for HTTP")
	flag.Parse()
	if err := start(s, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "mailer:", err)
		os.Exit(1)
	}
}

// start runs the mailer until a signal comes. A second signal ends the process at once.
func start(s settings, listen string) error {
	if s.database == "" || s.relay.address == "" || flag.NArg() > 0 {
		return errors.New("usage: mailer --database postgres://HOST/DATABASE --smtp HOST:PORT; mailer --help lists the other flags")
	}
	if _, err := netmail.ParseAddress(s.relay.from); err != nil {
		return fmt.Errorf("--from %s: %w", s.relay.from, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" {
		provider, err := collector(ctx)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		defer func() {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if err := provider.Shutdown(last); err != nil {
				slog.Warn("the last spans are lost", "err", err)
			}
		}()
		s.spans = provider
	}
	return run(ctx, listener, s)
}

// collector sends spans where the variables of OpenTelemetry say.
func collector(ctx context.Context) (*sdktrace.TracerProvider, error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("send spans: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "mailer")), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("send spans: %w", err)
	}
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about)), nil
}

// mailer is what requests and workers share.
type mailer struct {
	log    *weir.Log
	pool   *pgxpool.Pool
	relay  relay
	tracer trace.Tracer
}

// run takes orders and sends mails until ctx ends. Then it takes no more orders, lets the mails
// that are being sent finish, and closes the log.
func run(ctx context.Context, listener net.Listener, s settings) error {
	defer listener.Close()
	pool, err := pgxpool.New(ctx, s.database)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, schema); err != nil {
		return fmt.Errorf("prepare the database: %w", err)
	}
	log, err := weir.Open(ctx, s.database, weir.Options{Tracer: weirotel.New(s.spans)})
	if err != nil {
		return err
	}
	m := &mailer{log: log, pool: pool, relay: s.relay, tracer: s.spans.Tracer("mailer")}
	server := &http.Server{Handler: m.routes(), ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	served := make(chan error, 1)
	stopWork, err := m.work(ctx, s)
	if err == nil {
		go func() { served <- server.Serve(listener) }()
		slog.Info("taking orders", "at", listener.Addr().String())
		select {
		case <-ctx.Done():
			slog.Info("stopping: mails that are being sent may finish", "within", s.drain)
		case err = <-served:
		}
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drain)
	defer cancel()
	err = errors.Join(err, server.Shutdown(drain), stopWork(drain))
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin) // with what is left of drain, which may be nothing, the log could not be closed
	defer cancel()
	return errors.Join(err, log.Close(last))
}
