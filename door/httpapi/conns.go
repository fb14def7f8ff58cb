package httpapi

import (
	"net"
	"sync"
)

// limit bounds the connections of a listener. A connection above the limit is closed; its client retries.
func limit(l net.Listener, most int) net.Listener {
	return &limitedListener{Listener: l, free: make(chan struct{}, most)}
}

type limitedListener struct {
	net.Listener
	free chan struct{} // one element for each open connection
}

// Accept is net.Listener's.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &limitedConn{Conn: c, leave: sync.OnceFunc(func() { <-l.free })}, nil
		default:
			c.Close()
		}
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
