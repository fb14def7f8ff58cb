package s3

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// connections closes the connections of a transport. CloseIdleConnections is not enough: a
// connection that was dialled for a request that took another one, or whose request was given up,
// becomes idle later.
type connections struct {
	transport *http.Transport

	mu     sync.Mutex // guards open, closed
	open   map[net.Conn]struct{}
	closed bool
}

func (c *connections) watch(t *http.Transport) {
	c.transport, c.open = t, map[net.Conn]struct{}{}
	dial := t.DialContext
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		watched := &watchedConn{conn, c}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closed {
			_ = conn.Close()
			return nil, net.ErrClosed
		}
		c.open[watched] = struct{}{}
		return watched, nil
	}
}

// close closes all connections, and those that are dialled later.
func (c *connections) close() {
	c.transport.CloseIdleConnections()
	c.mu.Lock()
	c.closed = true
	left := make([]net.Conn, 0, len(c.open))
	for conn := range c.open {
		left = append(left, conn)
	}
	c.mu.Unlock()
	for _, conn := range left {
		_ = conn.Close()
	}
}

type watchedConn struct {
	net.Conn
	of *connections
}

func (w *watchedConn) Close() error {
	w.of.mu.Lock()
	delete(w.of.open, w)
	w.of.mu.Unlock()
	return w.Conn.Close()
}
