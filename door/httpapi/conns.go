package httpapi

import (
	"net"
	"net/netip"
	"sync"
)

// limit bounds the connections of a listener, and lets one address have half of what the others leave, so that no client takes all.
// A connection above the limit is closed; its client retries.
func limit(l net.Listener, most int) net.Listener {
	return &limitedListener{Listener: l, free: most, open: make(map[netip.Prefix]int)}
}

type limitedListener struct {
	net.Listener

	mu   sync.Mutex // guards the rest
	free int
	open map[netip.Prefix]int // connections, by the client's network
}

// Accept is net.Listener's.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := networkOf(c.RemoteAddr())
		if l.enter(from) {
			return &limitedConn{Conn: c, leave: sync.OnceFunc(func() { l.leave(from) })}, nil
		}
		c.Close()
	}
}

// enter counts a connection, or refuses it. An address that has as many as are free has half of what the others leave.
func (l *limitedListener) enter(from netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from] >= l.free {
		return false
	}
	l.free--
	l.open[from]++
	return true
}

func (l *limitedListener) leave(from netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free++
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
}

// networkOf returns what counts as one address: of IPv6 a /64, which one client usually has as a whole.
func networkOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip, bits := tcp.AddrPort().Addr().Unmap(), 32
	if ip.Is6() {
		bits = 64
	}
	network, _ := ip.Prefix(bits) // it fails for other numbers of bits only
	return network
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
