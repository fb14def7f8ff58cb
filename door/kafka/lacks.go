package kafka

import (
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
)

// lacks remembers who asked for what weir does not have. Each client id and kind leaves one line in the log, however often it asks.
type lacks struct {
	mu    sync.Mutex // guards the others
	told  map[lack]bool
	since time.Time // when the first of told was told
}

// lack is one kind of thing that weir does not have, and who asked for it.
type lack struct{ clientID, kind string }

// Client ids and kinds come from clients: at most lacksMax are remembered, and told in lacksAgain.
const (
	lacksMax   = 1000
	lacksAgain = time.Hour
)

// first tells whether a lack is to be logged.
func (l *lacks) first(of lack) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told[of] {
		return false
	}
	if len(l.told) >= lacksMax {
		if time.Since(l.since) < lacksAgain {
			return false
		}
		l.told = nil
	}
	if len(l.told) == 0 {
		l.told, l.since = make(map[lack]bool), time.Now()
	}
	l.told[of] = true
	return true
}

// lacking is a denial of something that Kafka has and weir has not.
func lacking(kind string, kafka *kerr.Error, format string, args ...any) error {
	d := deny(kafka, format, args...).(*denial)
	d.lacks = kind
	return d
}

// refuseLacking is refuse for something that Kafka has and weir has not.
func refuseLacking(reason, kind, format string, args ...any) *refusal {
	r := refuse(reason, format, args...)
	r.lacks = kind
	return r
}

// clientIDAhead peeks at the beginning of the client id of a request that is not taken.
func (c *conn) clientIDAhead(h header) string {
	const at = lengthSize + headerMin
	if h.length < headerMin+2 {
		return ""
	}
	b, err := c.in.Peek(at + 2)
	if err != nil {
		return ""
	}
	n := int(int16(binary.BigEndian.Uint16(b[at:])))
	if n <= 0 || n > h.length-headerMin-2 {
		return ""
	}
	b, err = c.in.Peek(at + 2 + min(n, shortenedMax+1)) // and shorten shows that there is more
	if err != nil {
		return ""
	}
	return string(b[at+2:])
}

// refused logs what an operator must know of an error that a request is answered with.
func (s *Server) refused(r *request, err error) {
	name := kmsg.NameForKey(r.key)
	s.trouble(name, err)
	if kind := lackOf(err); kind != "" {
		s.tellLack(r.conn, r.clientID, kind, name, err)
	}
}

// lackOf is what the error says that weir does not have, or "".
func lackOf(err error) string {
	var (
		d       *denial
		invalid *eventlog.InvalidError
	)
	switch {
	case errors.As(err, &d):
		return d.lacks
	case !errors.As(err, &invalid) || kafkaInvalid(invalid) != kerr.InvalidConfig:
		return ""
	case invalid.What == "setting":
		return "setting " + invalid.Value
	default:
		return "setting " + invalid.What
	}
}

// tellLack logs once what a client asks for that weir does not have.
func (s *Server) tellLack(c *conn, clientID, kind, request string, err error) {
	clientID = shorten(clientID)
	if s.lacks.first(lack{clientID, kind}) {
		s.cfg.Logger.Warn("kafka: a client asks for what is not supported; told once for each client id and kind",
			"client_id", clientID, "client", c.nc.RemoteAddr().String(), "kind", kind, "request", request, "error", err)
	}
}
