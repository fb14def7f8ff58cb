package httpapi

import (
	"net"

	"github.com/weir-log/weir/internal/conns"
)

// limit bounds the connections of a listener. One network may have half of those that the other
// networks leave, so that no client takes all. A connection above the limit is closed; its client
// retries.
func limit(l net.Listener, most int) net.Listener {
	return &limitedListener{l, conns.NewLimit(most, 0)}
}

type limitedListener struct {
	net.Listener
	open *conns.Limit
}

// Accept is net.Listener's.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if leave, err := l.open.Enter(c.RemoteAddr()); err == nil {
			return &limitedConn{c, leave}, nil
		}
		c.Close()
	}
}

type limitedConn struct {
	net.Conn
	leave func()
}

// Close is net.Conn's.
func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
