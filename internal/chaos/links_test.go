package main

import (
	"io"
	"net"
	"testing"
)

// A link that is cut ends its own connections and takes no other one, and the server goes on for
// others, and for the link once it is mended.
func TestALinkIsCutForOneProcessAlone(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); conn.Close() }()
		}
	}()
	dial := func(l *link) net.Conn {
		conn, err := net.Dial("tcp", l.front.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	echoes := func(conn net.Conn) bool {
		_, _ = conn.Write([]byte("x")) // it may be closed
		n, _ := conn.Read(make([]byte, 1))
		return n == 1
	}
	var links [2]*link
	for i := range links {
		if links[i], err = newLink(server.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer links[i].close()
	}
	one, other := dial(links[0]), dial(links[1])
	if !echoes(one) || !echoes(other) {
		t.Fatal("a link does not pass on what is said")
	}
	mend := links[0].cut()
	if echoes(one) || echoes(dial(links[0])) {
		t.Error("a link that is cut passes on what is said")
	}
	if !echoes(other) {
		t.Error("a link is cut, and so is another one")
	}
	mend()
	if !echoes(dial(links[0])) {
		t.Error("a link that was mended does not pass on what is said")
	}
}
