package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/weirotel"
)

// lastSpans is how long stopping waits for a collector to take the last spans.
const lastSpans = 500 * time.Millisecond

// tracing sends spans to the collector that OpenTelemetry's own variables name:
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, or else OTEL_EXPORTER_OTLP_ENDPOINT. Without either of them,
// or with OTEL_SDK_DISABLED=true, tracer is nil, and spans cost nothing. stop sends what is left.
func tracing(ctx context.Context, version buildVersion, logger *slog.Logger) (tracer eventlog.Tracer, stop func(), err error) {
	endpoint := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if endpoint == "" || os.Getenv("OTEL_SDK_DISABLED") == "true" {
		return nil, func() {}, nil
	}
	protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf")
	if protocol != "http/protobuf" {
		return nil, nil, config(fmt.Errorf("the variable OTEL_EXPORTER_OTLP_PROTOCOL is %q, but weir supports only http/protobuf", protocol),
			"unset it, and set the endpoint to the HTTP port of the collector, usually 4318")
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("cannot send spans to the collector; they are lost", "err", err) }))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nil, config(fmt.Errorf("send spans to %s: %w", store.Redact(endpoint), err), "check the variables that begin with OTEL_EXPORTER_OTLP")
	}
	about, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName("weir"), semconv.ServiceVersion(string(version))),
		resource.WithTelemetrySDK(), resource.WithFromEnv()) // OTEL_SERVICE_NAME takes precedence over our name
	if err != nil {
		logger.Warn("cannot read all OpenTelemetry resource attributes; spans will not have all of them", "err", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	logger.Info("sending spans to the collector", "to", store.Redact(endpoint))
	stop = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSpans)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			logger.Warn("cannot send spans before the end; they are lost", "err", err)
		}
	}
	return weirotel.New(provider), stop, nil
}
