package kafka

import (
	"context"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/budget"
)

// What the tests hold the server to.
const (
	SmallFrameMax    = smallFrameMax
	HandshakeTimeout = handshakeTimeout
	FetchMax         = fetchMax
	SilentMax        = budget.SilentMax
	DecompressedMax  = decompressedMax
	LoginTimeout     = loginTimeout
	MentionDepth     = mentionDepth
	ArrayCopies      = arrayCopies
)

// Collides is how a server finds a topic with the same name in metrics.
func Collides() func(topics []eventlog.Topic, name string) (string, bool) {
	return new(metricNames).find
}

// Limits are the bounds that tests change.
type Limits = limits

// With returns the configuration with other limits.
func (c Config) With(l Limits) Config {
	c.limits = l
	return c
}

// Pulse is how a server notices that its process was suspended.
type Pulse struct{ p pulse }

func (p *Pulse) Beats() time.Duration           { return p.p.beats() }
func (p *Pulse) Until() (context.Context, bool) { return p.p.until() }
