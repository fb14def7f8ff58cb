// Package conns counts the connections of a listener, so that no client takes all of them.
package conns

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
)

// Limit bounds open connections, in all and from one network: an IPv4 address, or an IPv6 /64,
// which one client usually has as a whole. Its methods may be called concurrently.
type Limit struct {
	most, mostFrom int

	mu   sync.Mutex // guards open and from
	open int
	from map[netip.Prefix]int
}

// NewLimit returns a limit of most connections, and mostFrom from one network; 0: each network may
// have half of the connections that other networks leave.
func NewLimit(most, mostFrom int) *Limit {
	return &Limit{most: most, mostFrom: mostFrom, from: make(map[netip.Prefix]int)}
}

// FullError refuses a connection.
type FullError struct {
	Open int          // connections
	From netip.Prefix // the network that has them all; the zero value: they are from all networks
}

func (e *FullError) Error() string {
	if e.From.IsValid() {
		return fmt.Sprintf("%d connections from %v are open, the limit for one network", e.Open, e.From)
	}
	return fmt.Sprintf("%d connections are open, the limit", e.Open)
}

// Enter counts a connection from an address until leave is called, or returns a *FullError.
func (l *Limit) Enter(a net.Addr) (leave func(), err error) {
	from := networkOf(a)
	l.mu.Lock()
	defer l.mu.Unlock()
	mostFrom := l.mostFrom
	if mostFrom == 0 {
		mostFrom = l.most - l.open
	}
	switch here := l.from[from]; {
	case l.open >= l.most:
		return nil, &FullError{Open: l.open}
	case here >= mostFrom:
		return nil, &FullError{Open: here, From: from}
	}
	l.open++
	l.from[from]++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open--
		if l.from[from]--; l.from[from] == 0 {
			delete(l.from, from)
		}
	}), nil
}

// networkOf returns the network of an address. Addresses without a network, such as a pipe's, all
// count as one.
func networkOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return Network(tcp.AddrPort().Addr())
}

// Network returns the network of an IP address: what one client usually has as a whole.
func Network(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap()
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	network, _ := ip.Prefix(bits) // it fails only for other numbers of bits
	return network
}
