package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/weir-log/weir/internal/certificate"
	"github.com/weir-log/weir/use/acl"
)

// Listener is an address at which the server accepts clients. Each has its own rules for who may
// connect.
type Listener struct {
	net.Listener
	Name       string      // for the log; Kafka's tools call it the listener name
	Advertised string      // host:port that clients of this listener are told to use; default: the address at which the client connected
	TLS        *tls.Config // default: without TLS
	SASL       bool        // clients must log in before they do anything else

	// Clients are known by their certificates, which TLS asks for. They are users, such as
	// User:CN=billing,O=Example. Without this and SASL whoever can connect may do everything.
	Certified bool
}

// protocol is what clients of the listener set security.protocol to.
func (l *Listener) protocol() string {
	switch {
	case l.SASL && l.TLS != nil:
		return "SASL_SSL"
	case l.SASL:
		return "SASL_PLAINTEXT"
	case l.TLS != nil:
		return "SSL"
	}
	return "PLAINTEXT"
}

// handshakeTimeout is how long a client may take for the TLS handshake.
const handshakeTimeout = 10 * time.Second

// handshake secures the connection if its listener asks for that.
func (c *conn) handshake(ctx context.Context) error {
	if c.at.TLS == nil {
		return nil
	}
	secured := c.nc.(*tls.Conn)
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	err := secured.HandshakeContext(ctx)
	if err == nil && c.at.Certified {
		return c.certified(secured.ConnectionState())
	}
	if err == nil {
		return nil
	}
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		if r := otherProtocol(plain.RecordHeader[:lengthSize], c.s.cfg.HTTPAddr, &c.at); r != nil && r.reason != "tls" {
			return refuse("tls_handshake", "%s, and this listener asks for TLS", r.text)
		}
		return refuse("tls_handshake", "the client does not use TLS, and listener %s asks for it: set security.protocol=%s in the client", c.at.Name, c.at.protocol())
	}
	return refuse("tls_handshake", "the TLS handshake failed: %v", err)
}

// certified makes the client the user whom its certificate names (KIP-371).
func (c *conn) certified(state tls.ConnectionState) error {
	if len(state.VerifiedChains) == 0 { // the listener's TLS does not ask for a certificate
		return refuse("certificate", "listener %s must know its clients by their certificates, and this one has shown none that was verified", c.at.Name)
	}
	name, err := c.s.cfg.Names.Of(state.PeerCertificates[0])
	if err != nil {
		return refuse("certificate", "the client's certificate has no name for it: %v", err)
	}
	principal, err := acl.PrincipalOf(name)
	if err != nil {
		return refuse("certificate", "the client's certificate has a name that no ACL can have: %v", err)
	}
	c.s.cfg.Logger.Debug("kafka: a client is known by its certificate", "client", c.nc.RemoteAddr().String(), "principal", principal)
	who := c.userCaller(principal)
	who.still = func(context.Context) error { return certificate.Ended(state.PeerCertificates[0]) }
	c.who.Store(who)
	return nil
}

// checkListeners refuses listeners that nobody could use: their rules contradict each other, or
// clients cannot connect to their advertised address.
func checkListeners(all []Listener) error {
	for _, l := range all {
		if l.Certified && (l.SASL || l.TLS == nil) {
			return fmt.Errorf("kafka: listener %s knows its clients by their certificates: it must have TLS, and no SASL", l.Name)
		}
		if err := checkAdvertised(l.Advertised); err != nil {
			return fmt.Errorf("kafka: advertised address %q: %w", l.Advertised, err)
		}
	}
	return nil
}
