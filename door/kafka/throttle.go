package kafka

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/quota"
)

// A client that exceeds a quota is answered at once, as in Kafka (KIP-219). The answer says for how
// long the client is throttled, and until then its connection is muted: the reader reads no
// request, and the writer executes none that was read already.
//
//	produce     its bytes are counted when it was read
//	fetch       the bytes of its answer are counted before it is sent; an answer that exceeds the quota is not sent, but an empty one
//	request     the time in which the server worked on it is counted when it is done

// usage is what a request used of its client's quotas.
type usage struct {
	worked time.Duration // how long the server worked on the request, without waits; 0 if there are no quotas
	pause  time.Duration // for how long the client is throttled
	by     quota.Kind    // the quota that asks for the longest pause
}

// client is who sent the request, as quotas know it. As in Kafka, a client that has not logged in
// is the user ANONYMOUS.
func (r *request) client() quota.Client {
	return quota.Client{User: strings.TrimPrefix(r.conn.who.Load().principal, "User:"), ID: r.clientID}
}

// uses counts what the request uses.
func (r *request) uses(k quota.Kind, amount float64) {
	if q := r.conn.s.quotas; q.Active() {
		r.throttledFor(k, q.Count(k, r.client(), amount))
	}
}

// mayUse counts what the request is about to use, and reports whether it may.
func (r *request) mayUse(k quota.Kind, amount float64) bool {
	q := r.conn.s.quotas
	if !q.Active() {
		return true
	}
	pause, ok := q.CountWithin(k, r.client(), amount)
	r.throttledFor(k, pause)
	return ok
}

func (r *request) throttledFor(k quota.Kind, pause time.Duration) {
	if pause > r.usage.pause {
		r.usage.pause, r.usage.by = pause, k
	}
}

// mutates counts partitions that a request is about to create or delete, and returns an error if
// the quota forbids it (KIP-599). Old versions of these requests, and other requests that create
// topics (Metadata, FindCoordinator), are never refused: their clients do not know the error. They
// are only throttled.
func (r *request) mutates(partitions int) error {
	q := r.conn.s.quotas
	if !q.Active() {
		return nil
	}
	strict := false
	switch kmsg.Key(r.key) { // versions as in Kafka (ControllerApis)
	case kmsg.CreateTopics:
		strict = r.version >= 6
	case kmsg.DeleteTopics:
		strict = r.version >= 5
	case kmsg.CreatePartitions:
		strict = r.version >= 3
	}
	pause, ok := q.Mutate(r.client(), partitions, strict)
	r.throttledFor(quota.ControllerMutationRate, pause)
	if !ok {
		return deny(kerr.ThrottlingQuotaExceeded, "the client has created and deleted more partitions than its quota, %s, allows; send the request again in %v", quota.ControllerMutationRate, pause)
	}
	return nil
}

// fetchable returns for how many bytes a fetch may ask.
func (r *request) fetchable(asked int) int {
	q := r.conn.s.quotas
	if !q.Active() {
		return asked
	}
	return max(int(min(float64(asked), q.Left(quota.ConsumerByteRate, r.client()))), 1)
}

// works counts the time until done as work on the request. Without quotas it measures nothing.
func (r *request) works() (done func()) { return r.measure(+1) }

// waits is for waits within works: it counts the time until done as no work.
func (r *request) waits() (done func()) { return r.measure(-1) }

func (r *request) measure(sign time.Duration) (done func()) {
	if !r.conn.s.quotas.Active() {
		return func() {}
	}
	began := time.Now()
	return func() { r.usage.worked += sign * time.Since(began) }
}

// throttle counts the time of a request, and throttles its client if it exceeded a quota. Requests
// of a login are exempt, as in Kafka. A produce request without an answer is not measured by its
// time (KafkaApis.handleProduceRequest).
func (c *conn) throttle(call *call, resp kmsg.Response) {
	if login := call.api.key == kmsg.SASLHandshake || call.api.key == kmsg.SASLAuthenticate; login || resp == nil || c.who.Load() == nil {
		return
	}
	if resp != noReply {
		call.uses(quota.RequestPercentage, max(call.usage.worked.Seconds(), 0)*100)
	}
	if call.usage.pause <= 0 {
		return
	}
	c.mute(call.usage.pause)
	c.s.cfg.Observer.Throttled(string(call.usage.by), call.usage.pause)
	if field, ok := resp.(kmsg.SetThrottleResponse); ok && resp != noReply {
		field.SetThrottle(int32(call.usage.pause.Milliseconds()))
	}
}

// mute keeps the connection from reading and executing requests for some time from now on.
func (c *conn) mute(pause time.Duration) {
	until := int64(time.Since(c.opened) + pause)
	for {
		old := c.mutedUntil.Load()
		if until <= old || c.mutedUntil.CompareAndSwap(old, until) {
			return
		}
	}
}

// awaitUnmuted waits while the connection is muted, at most until ctx ends or the process was
// suspended.
func (c *conn) awaitUnmuted(ctx context.Context) {
	for c.mutedUntil.Load() > 0 {
		left := time.Duration(c.mutedUntil.Load()) - time.Since(c.opened)
		if left <= 0 {
			return
		}
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return
		case <-c.awake.Done():
			return
		}
	}
}

// awaitTurn is awaitUnmuted for requests that were read already: while other clients wait for the
// memory that they hold, it does not wait.
func (c *conn) awaitTurn(ctx context.Context) {
	if c.mutedUntil.Load() == 0 {
		return
	}
	wait, done := c.interruptible(ctx)
	defer done()
	c.awaitUnmuted(wait)
}

// clientsConnected reports whether any client is connected.
func (s *Server) clientsConnected() bool { return s.connected.Load() > 0 }

// tooOften counts a new connection against the quota of its address (KIP-612). If there were too
// many, it waits for as long as the address must pause, and reports that the connection must be
// closed: so a client that connects again at once is slowed down, as in Kafka
// (Acceptor.closeThrottledConnections).
func (s *Server) tooOften(ctx context.Context, nc net.Conn) bool {
	if !s.quotas.Active() {
		return false
	}
	host := acl.HostAt(nc.RemoteAddr().String())
	pause, ok := s.quotas.CountWithin(quota.ConnectionCreationRate, quota.Client{IP: host}, 1)
	if ok {
		return false
	}
	err := refuse("connection_rate", "%s has connected more often than its quota, %s, allows", host, quota.ConnectionCreationRate)
	s.cfg.Observer.Refused(err.reason)
	s.cfg.Observer.Throttled(string(quota.ConnectionCreationRate), pause)
	s.cfg.Logger.Debug("kafka: connection refused", "client", nc.RemoteAddr(), "err", err)
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
	return true
}

var errNoQuotas = deny(kerr.UnsupportedVersion, "this server has no quotas")
