package weirotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weir-log/weir/eventlog"
)

// Option is an option of New.
type Option func(*Tracer)

// WithMetrics also measures what spans tell of one operation, by OpenTelemetry's metrics for
// messaging (semantic conventions 1.45, which calls them "in development"):
//
//	metric                               of                    attributes
//	messaging.client.operation.duration  publish               destination
//	messaging.client.sent.messages       publish               destination
//	messaging.process.duration           handle, work          destination, consumer group
//	messaging.client.consumed.messages   handle, work          destination, consumer group
//
// Durations are in seconds. All have messaging.system, which is weir, messaging.operation.name and
// messaging.operation.type, and error.type if the operation failed. A message that is delivered
// again is counted again. The time until records are on disk is in publish's duration.
func WithMetrics(provider metric.MeterProvider) Option {
	return func(t *Tracer) {
		m := provider.Meter(scope)
		t.metrics = &metrics{
			operation: histogram(m, "messaging.client.operation.duration", "Duration of messaging operation initiated by a producer or consumer client."),
			process:   histogram(m, "messaging.process.duration", "Duration of processing operation."),
			sent:      counter(m, "messaging.client.sent.messages", "Number of messages producer attempted to send to the broker."),
			consumed:  counter(m, "messaging.client.consumed.messages", "Number of messages that were delivered to the application."),
		}
	}
}

type metrics struct {
	operation, process metric.Float64Histogram
	sent, consumed     metric.Int64Counter
}

// boundaries are those that the conventions ask for.
var boundaries = metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

func histogram(m metric.Meter, name, about string) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about), boundaries)
	if err != nil {
		otel.Handle(err) // h measures nothing then
	}
	return h
}

func counter(m metric.Meter, name, about string) metric.Int64Counter {
	c, err := m.Int64Counter(name, metric.WithUnit("{message}"), metric.WithDescription(about))
	if err != nil {
		otel.Handle(err) // c counts nothing then
	}
	return c
}

// ended measures an operation that has ended.
func (m *metrics) ended(ctx context.Context, name string, s eventlog.SpanInfo, took time.Duration, err error) {
	duration, messages := m.process, m.consumed
	switch operationType(name) {
	case sending:
		duration, messages = m.operation, m.sent
	case processing:
	default:
		return
	}
	all := of(name, s)
	if err != nil {
		all = append(all, attribute.String("error.type", errorType(err)))
	}
	with := metric.WithAttributes(all...)
	duration.Record(ctx, took.Seconds(), with)
	messages.Add(ctx, int64(max(s.Records, 1)), with)
}

// errorType is an error in one of a few words, as the conventions want it.
func errorType(err error) string {
	for _, known := range []struct {
		err  error
		name string
	}{
		{eventlog.ErrUnsure, "unknown_outcome"}, {eventlog.ErrNoSpace, "no_space"}, {eventlog.ErrUnavailable, "unavailable"},
		{context.DeadlineExceeded, "timeout"}, {context.Canceled, "canceled"},
	} {
		if errors.Is(err, known.err) {
			return known.name
		}
	}
	return "_OTHER"
}
