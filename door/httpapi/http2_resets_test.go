package httpapi

import (
	"bytes"
	"crypto/tls"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Each stream waits for an event, and is reset before it comes.
func TestAConnectionThatResetsItsStreamsIsClosed(t *testing.T) {
	address, trusted := listenTLS(t)
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: trusted, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", address}, {":path", "/v1/topics/none/events?wait=20"}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			t.Fatal(err)
		}
	}
	closed, seen := make(chan struct{}), make(chan struct{}, 1)
	go func() {
		defer close(closed)
		for {
			frame, err := framer.ReadFrame()
			if err != nil {
				return
			}
			if ping, is := frame.(*http2.PingFrame); is && ping.IsAck() {
				seen <- struct{}{}
			}
		}
	}()
	const most = 10_000
	for n := range uint32(most) {
		id := 2*n + 1
		err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers.Bytes(), EndStream: true, EndHeaders: true})
		if err == nil {
			err = framer.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		if n%50 == 49 && err == nil { // the server is not to fall behind
			err = framer.WritePing(false, [8]byte{})
			select {
			case <-seen:
			case <-closed:
			}
		}
		if err != nil {
			<-closed
		}
		select {
		case <-closed:
			return
		default:
		}
	}
	t.Errorf("%d streams were opened and reset, and the connection is open", most)
}
