package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/user"
)

// Bounds before a client has logged in. Kafka bounds a message at 512 KiB
// (sasl.server.max.receive.size), and does not bound the time.
const (
	loginFrameMax = 64 << 10         // largest request
	loginTimeout  = 10 * time.Second // from the connection to the login, after the TLS handshake

	// failedLoginDelay is how long the answer to a failed login waits, so that guessing is slow
	// (KIP-306, connection.failed.authentication.delay.ms).
	failedLoginDelay = 100 * time.Millisecond
	// loginAgainEvery is the shortest time between two logins on one connection
	// (KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS).
	loginAgainEvery = time.Second
)

// login is the state of a connection's SASL exchange. Requests of an exchange are executed one
// after the other.
type login struct {
	began     time.Time // when the current exchange, or the last one, began
	mechanism string
	exchange  exchange // nil: none is in progress
	bare      bool     // SaslHandshake had version 0: the client's messages follow without a request around them
}

// exchange is one login by one mechanism.
type exchange interface {
	// step takes the client's next message and returns the answer. who is not nil once the client
	// has shown who it is. errBadLogin: it cannot show that. An answer with errBadLogin is a
	// challenge that says so: the client gets the challenge, sends another message, and then gets
	// the error.
	step(ctx context.Context, message []byte) (answer []byte, who *caller, err error)
}

// errBadLogin is the cause of every failed login. The client learns no more than that: not even
// whether there is such a user.
var errBadLogin = errors.New("the login failed")

const badLoginText = "Authentication failed: the user name, the password or the API key is not valid"

// badLoginTextOf is what a client is told after a failed login.
func badLoginTextOf(mechanism string) string {
	if mechanism == oauthBearer {
		return badTokenText
	}
	return badLoginText
}

// mechanisms are the SASL mechanisms that the server offers, by Kafka's names.
func (s *Server) mechanisms() []string {
	all := []string{"PLAIN"}
	if s.cfg.Users != nil {
		for _, m := range user.Mechanisms {
			all = append(all, string(m))
		}
	}
	if s.cfg.Tokens != nil {
		all = append(all, oauthBearer)
	}
	return all
}

// newExchange begins a login; nil if the server does not offer the mechanism.
func (c *conn) newExchange(mechanism string) exchange {
	switch {
	case mechanism == "PLAIN":
		return plainExchange{c.s.cfg.Keys}
	case c.s.cfg.Users != nil && slices.Contains(user.Mechanisms, user.Mechanism(mechanism)):
		return c.newScram(user.Mechanism(mechanism))
	case c.s.cfg.Tokens != nil && mechanism == oauthBearer:
		return oauthExchange{c}
	}
	return nil
}

// logIn serves a connection until its client has logged in, if its listener asks for that. It reads
// and answers one request at a time.
func (c *conn) logIn(drain context.Context) error {
	if c.who.Load() != nil {
		return nil
	}
	c.deadline = time.Now().Add(loginTimeout)
	ctx, cancel := context.WithDeadline(drain, c.deadline)
	defer cancel()
	for c.who.Load() == nil {
		c.nc.SetReadDeadline(c.deadline)
		if drain.Err() != nil {
			return drain.Err()
		}
		step := c.loginRequest
		if c.login.bare {
			step = c.bareMessage
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// loginRequest reads and answers one request of a client that has not logged in.
func (c *conn) loginRequest(ctx context.Context) error {
	if _, err := c.in.Peek(1); err != nil {
		return c.loginFailed(err)
	}
	h, err := readHeader(c.in, c.s.cfg.HTTPAddr, &c.at)
	if err != nil {
		return c.loginFailed(err)
	}
	switch kmsg.Key(h.key) {
	case kmsg.ApiVersions, kmsg.SASLHandshake, kmsg.SASLAuthenticate:
	default:
		return refuse("not_logged_in", "the client sent %s before it logged in, which listener %s requires: set security.protocol=%s in the client", kmsg.NameForKey(h.key), c.at.Name, c.at.protocol())
	}
	if h.length > loginFrameMax {
		return refuse("too_large", "the %s request has %d bytes; the limit before the login is %d", kmsg.NameForKey(h.key), h.length, loginFrameMax)
	}
	call, err := c.readCall(ctx, h)
	if err != nil {
		return c.loginFailed(err)
	}
	c.inFlight.Add(1)
	c.waiting.Add(1)
	if !c.answer(ctx, ctx, call) {
		return errHungUp
	}
	return nil
}

// bareMessage reads and answers one message of an exchange that began with SaslHandshake version 0:
// only a length precedes the message, and its answer.
func (c *conn) bareMessage(ctx context.Context) error {
	var length [lengthSize]byte
	if _, err := io.ReadFull(c.in, length[:]); err != nil {
		return c.loginFailed(err)
	}
	n := int32(binary.BigEndian.Uint32(length[:]))
	if n < 0 || n > loginFrameMax {
		return refuse("too_large", "a message of the login has %d bytes; the limit is %d", n, loginFrameMax)
	}
	message := make([]byte, n)
	if _, err := io.ReadFull(c.in, message); err != nil {
		return c.loginFailed(err)
	}
	answer, _, err := c.step(ctx, message)
	if err != nil { // the error has no field in the answer: Kafka, too, only closes the connection
		return errHungUp
	}
	c.setWriteDeadline(time.Now())
	_, err = c.nc.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(answer))), answer...))
	return err
}

// loginFailed turns a timeout into a refusal.
func (c *conn) loginFailed(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return refuse("slow_login", "the client did not log in within %v, the limit", loginTimeout)
	}
	return err
}

// errHungUp ends a connection before its client has logged in: after an answer that says why, or
// without one if the answer could not be sent or its form has no place for an error.
var errHungUp = errors.New("weir closed the connection because of the client's last request")

// step passes a message to the exchange, which ends with success or an error. A failed login is
// answered late.
func (c *conn) step(ctx context.Context, message []byte) (answer []byte, done bool, err error) {
	answer, who, err := c.login.exchange.step(ctx, message)
	before := c.who.Load()
	if err == nil && who != nil && before != nil && who.principal != before.principal {
		// As in Kafka (SaslServerAuthenticator.ReauthInfo.ensurePrincipalUnchanged).
		answer, err = nil, fmt.Errorf("%w: %s logged in again as %s", errBadLogin, before.principal, who.principal)
	}
	switch {
	case errors.Is(err, errChallenged):
		c.login.exchange = nil
		return nil, false, err
	case err != nil:
		c.login.exchange = nil
		c.s.badLogins.log(c, c.login.mechanism, err)
		c.s.cfg.Observer.Refused("bad_login")
		select {
		case <-ctx.Done():
		case <-time.After(failedLoginDelay):
		}
		if answer != nil && errors.Is(err, errBadLogin) {
			c.login.exchange = challenged{}
			return answer, false, nil
		}
		return nil, false, err
	case who == nil:
		return answer, false, nil
	}
	who.mechanism = c.login.mechanism
	who.lasts(time.Now(), c.s.cfg.LoginLasts)
	c.login.exchange, c.login.bare = nil, false
	c.who.Store(who)
	return answer, true, nil
}

// admit returns an error if the client may not use the connection for a request of this key: its
// credentials are not valid any more, it must log in again first, or the rules that say what it may
// do cannot be read. Otherwise admit renews what the client may do.
func (c *conn) admit(ctx context.Context, key kmsg.Key) error {
	who := c.who.Load()
	if who == nil {
		return nil // the client is logging in
	}
	login := key == kmsg.SASLHandshake || key == kmsg.SASLAuthenticate
	if !who.until.IsZero() && !login && time.Now().After(who.until) { // as in Kafka (KafkaChannel.serverAuthenticationSessionExpired)
		return refuse("login_ended", "the client %s did not log in again before its login ended, at %s", shorten(who.principal), who.until.UTC().Format(time.RFC3339))
	}
	if who.still != nil {
		if err := who.still(ctx); err != nil {
			return refuse("login_ended", "the client %s may no longer connect: %v", shorten(who.principal), err)
		}
	}
	next, err := who.renewed(ctx, c.s.cfg.ACLs)
	if err != nil {
		return refuse("login_ended", "what the client %s may do is not known: %v", shorten(who.principal), err)
	}
	c.who.CompareAndSwap(who, next)
	return nil
}

// badLogins logs failed logins: at most one line a second, with the number of failed logins since
// the last line.
type badLogins struct {
	mu   sync.Mutex // guards all below
	last time.Time
	more int // failed logins since then that were not logged
}

func (b *badLogins) log(c *conn, mechanism string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.last) < time.Second {
		b.more++
		return
	}
	c.s.cfg.Logger.Warn("kafka: a client could not log in", "client", c.nc.RemoteAddr().String(), "listener", c.at.Name, "mechanism", mechanism, "err", err, "more_before", b.more)
	b.last, b.more = time.Now(), 0
}

// saslHandshake begins a login, or another one on the same connection (KIP-368).
func (s *Server) saslHandshake(_ context.Context, r *request, in *kmsg.SASLHandshakeRequest) *kmsg.SASLHandshakeResponse {
	out := in.ResponseKind().(*kmsg.SASLHandshakeResponse)
	c, who := r.conn, r.conn.who.Load()
	switch {
	case !c.at.SASL, c.login.exchange != nil,
		who != nil && (who.until.IsZero() || in.Version == 0 || in.Mechanism != who.mechanism || time.Since(c.login.began) < loginAgainEvery):
		// As in Kafka, where such a request reaches KafkaApis.handleSaslHandshakeRequest.
		out.ErrorCode = kerr.IllegalSaslState.Code
		return out
	}
	out.SupportedMechanisms = s.mechanisms()
	next := c.newExchange(in.Mechanism)
	if next == nil {
		out.ErrorCode = kerr.UnsupportedSaslMechanism.Code
		r.hangUp = true
		return out
	}
	c.login = login{began: time.Now(), mechanism: in.Mechanism, exchange: next, bare: in.Version == 0}
	return out
}

// saslAuthenticate takes a message of the login that SaslHandshake began.
func (s *Server) saslAuthenticate(ctx context.Context, r *request, in *kmsg.SASLAuthenticateRequest) *kmsg.SASLAuthenticateResponse {
	out := in.ResponseKind().(*kmsg.SASLAuthenticateResponse)
	c := r.conn
	if c.login.exchange == nil {
		out.ErrorCode, out.ErrorMessage = codeOf(deny(kerr.IllegalSaslState, "no login is in progress on this connection; send SaslHandshake first, to a listener with SASL"))
		return out
	}
	answer, done, err := c.step(ctx, in.SASLAuthBytes)
	switch {
	case errors.Is(err, eventlog.ErrUnavailable): // clients do not try again after an error; they do after a closed connection
		return nil
	case err != nil:
		out.ErrorCode, out.ErrorMessage = codeOf(deny(kerr.SaslAuthenticationFailed, "%s", badLoginTextOf(c.login.mechanism)))
		r.hangUp = true
		return out
	}
	out.SASLAuthBytes = answer
	if done {
		out.SessionLifetimeMillis = c.who.Load().told.Milliseconds()
	}
	return out
}
