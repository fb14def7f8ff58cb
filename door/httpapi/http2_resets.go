package httpapi

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// A client may reset HTTP/2 streams as fast as it opens them. A reset stream costs as much work as
// a request, but does not count as open (CVE-2023-44487; net/http only bounds the handlers of a
// connection that run at the same time, to http2Streams). So a connection is closed if its client
// resets more than resetsBurst requests before their answers, and more than resetsPerSecond a
// second from then on. Clients that end long polls stay far below.
const (
	resetsBurst     = 200
	resetsPerSecond = 50
)

// resets counts the requests of a connection that its client gave up.
type resets struct {
	conn net.Conn

	mu   sync.Mutex
	left float64 // how many more there may be
	at   time.Time
}

type resetsKey struct{}

// countResets is http.Server.ConnContext.
func countResets(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, resetsKey{}, &resets{conn: conn, left: resetsBurst, at: time.Now()})
}

// answeredOrReset is called when a request's handler has ended.
func answeredOrReset(r *http.Request) {
	of, counted := r.Context().Value(resetsKey{}).(*resets)
	if !counted || r.ProtoMajor < 2 || r.Context().Err() == nil {
		return
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	now := time.Now()
	of.left = min(resetsBurst, of.left+resetsPerSecond*now.Sub(of.at).Seconds()) - 1
	if of.at = now; of.left < 0 {
		_ = of.conn.Close()
	}
}
