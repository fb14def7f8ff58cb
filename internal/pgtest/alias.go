package pgtest

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Alias is an address that leads to one server at a time, like a host name or a virtual address
// that fails over.
type Alias struct {
	t     testing.TB
	l     net.Listener
	mu    sync.Mutex // guards below
	to    string
	conns map[net.Conn]bool
}

// NewAlias makes an alias of the server of a URL. It is closed when the test ends.
func NewAlias(t testing.TB, address string) *Alias {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &Alias{t: t, l: l, conns: map[net.Conn]bool{}}
	a.Point(address)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { a.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); a.cut(); all.Wait() })
	return a
}

// At returns a URL with the alias in place of its server.
func (a *Alias) At(address string) string {
	u, _ := url.Parse(address)
	u.Host = a.l.Addr().String()
	return u.String()
}

// Point makes the alias lead to the server of a URL. Connections to the previous server are closed.
func (a *Alias) Point(address string) {
	a.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		a.t.Fatal(err)
	}
	a.mu.Lock()
	a.to = u.Host
	a.mu.Unlock()
	a.cut()
}

func (a *Alias) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.conns {
		c.Close()
	}
}

func (a *Alias) serve(c net.Conn) {
	defer c.Close()
	a.mu.Lock()
	to := a.to
	a.mu.Unlock()
	up, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer up.Close()
	a.mu.Lock()
	a.conns[c], a.conns[up] = true, true
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.conns, c)
		delete(a.conns, up)
	}()
	done := make(chan struct{})
	go func() { io.Copy(up, c); up.Close(); close(done) }()
	io.Copy(c, up)
	c.Close()
	<-done
}
