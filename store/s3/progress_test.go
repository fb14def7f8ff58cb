package s3

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A slow line takes a request and its answer, however long they take. One that does not move is
// given up.
func TestARequestMayTakeAsLongAsItMoves(t *testing.T) {
	const size, piece = 1 << 20, 64 << 10
	for name, c := range map[string]struct {
		pause time.Duration // between two pieces
		want  error
	}{
		"slow":    {requestMax / 4, nil},
		"stalled": {requestMax * 2, errStalled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}
				defer transport.CloseIdleConnections()
				var server sync.WaitGroup
				server.Go(func() {
					r, err := http.ReadRequest(bufio.NewReader(far))
					for err == nil {
						<-time.After(c.pause)
						_, err = io.CopyN(io.Discard, r.Body, piece)
					}
					_, _ = fmt.Fprintf(far, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
					for err = nil; err == nil; {
						<-time.After(c.pause)
						_, err = far.Write(make([]byte, piece))
					}
				})
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://bucket/key", bytes.NewReader(make([]byte, size)))
				began := time.Now()
				answer, err := progress{transport, requestMax}.RoundTrip(r)
				if err == nil {
					var n int64
					n, err = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
					if n != size {
						t.Errorf("the answer has %d bytes, want %d", n, size)
					}
				}
				if !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
				if took := time.Since(began); c.want == nil && took < 5*requestMax {
					t.Errorf("it took %v: the test tests little", took)
				}
				_, _ = near.Close(), far.Close()
				server.Wait()
			})
		})
	}
}
