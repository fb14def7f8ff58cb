package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// Listener is an address at which the server accepts clients. Each has its own rules for who may connect.
type Listener struct {
	net.Listener
	Name       string      // for the log; Kafka's tools call it the listener name
	Advertised string      // host:port that clients of this listener are told to use; default: the address at which the client connected
	TLS        *tls.Config // default: without TLS
	SASL       bool        // clients must log in before they do anything else; otherwise whoever can connect may do everything
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
	if err == nil {
		return nil
	}
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		if r := otherProtocol(plain.RecordHeader[:lengthSize], c.s.cfg.HTTPAddr); r != nil && r.reason != "tls" {
			return refuse("tls_handshake", "%s, and this listener asks for TLS", r.text)
		}
		return refuse("tls_handshake", "the client does not use TLS, and listener %s asks for it: set security.protocol=SSL in the client", c.at.Name)
	}
	return refuse("tls_handshake", "the TLS handshake failed: %v", err)
}

// checkListeners refuses listeners whose advertised address no client could use.
func checkListeners(all []Listener) error {
	for _, l := range all {
		if err := checkAdvertised(l.Advertised); err != nil {
			return fmt.Errorf("kafka: advertised address %q: %w", l.Advertised, err)
		}
	}
	return nil
}
