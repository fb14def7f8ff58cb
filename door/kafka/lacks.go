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

// lacks remembers which clients used which features that weir does not have. Each client id and
// kind is logged once.
type lacks struct {
	mu     sync.Mutex // guards the fields below
	logged map[lack]bool
	since  time.Time // when the first lack in logged was logged
}

// lack is a kind of feature that weir does not have, and the client that used it.
type lack struct{ clientID, kind string }

// Client ids and kinds come from clients, so their number is bounded: within lacksAgain, at most
// lacksMax are logged and remembered.
const (
	lacksMax   = 1000
	lacksAgain = time.Hour
)

// first reports whether a lack is to be logged.
func (l *lacks) first(of lack) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.logged[of] {
		return false
	}
	if len(l.logged) >= lacksMax {
		if time.Since(l.since) < lacksAgain {
			return false
		}
		l.logged = nil
	}
	if len(l.logged) == 0 {
		l.logged, l.since = make(map[lack]bool), time.Now()
	}
	l.logged[of] = true
	return true
}

// lacking is a denial for a feature of Kafka that weir does not have.
func lacking(kind string, kafka *kerr.Error, format string, args ...any) error {
	d := deny(kafka, format, args...).(*denial)
	d.lacks = kind
	return d
}

// refuseLacking is refuse for a feature of Kafka that weir does not have.
func refuseLacking(reason, kind, format string, args ...any) *refusal {
	r := refuse(reason, format, args...)
	r.lacks = kind
	return r
}

// clientIDAhead peeks at the first bytes of the client id of a request that will not be read.
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
	b, err = c.in.Peek(at + 2 + min(n, shortenedMax+1)) // one byte more than shorten keeps, so that it marks the text as cut
	if err != nil {
		return ""
	}
	return string(b[at+2:])
}

// refused logs an error that a request is answered with, if operators need to know it.
func (s *Server) refused(r *request, err error) {
	name := kmsg.NameForKey(r.key)
	s.trouble(name, err)
	if kind := lackOf(err); kind != "" {
		s.logLack(r.conn, r.clientID, kind, name, err)
	}
}

// lackOf returns the feature that weir does not have, if the error says so; otherwise "".
func lackOf(err error) string {
	if d, ok := errors.AsType[*denial](err); ok {
		return d.lacks
	}
	switch invalid, ok := errors.AsType[*eventlog.InvalidError](err); {
	case !ok || kafkaInvalid(invalid) != kerr.InvalidConfig:
		return ""
	case invalid.What == "setting":
		return "setting " + invalid.Value
	default:
		return "setting " + invalid.What
	}
}

// logLack logs, once per client id and kind, that a client uses a feature that weir does not have.
func (s *Server) logLack(c *conn, clientID, kind, request string, err error) {
	clientID = shorten(clientID)
	if s.lacks.first(lack{clientID, kind}) {
		s.cfg.Logger.Warn("kafka: a client uses an unsupported feature; logged once for each client id and kind",
			"client_id", clientID, "client", c.nc.RemoteAddr().String(), "kind", kind, "request", request, "err", err)
	}
}
