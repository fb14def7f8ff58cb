package httpapi

import (
	"crypto/rand"
	"encoding/hex"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// guard runs before all routes: it gives the request an id, and refuses what no legitimate client
// sends.
//
// A browser sends requests for any web page. Pages of other sites may not change anything
// (Sec-Fetch-Site, Origin), may not read anything (no answer has a CORS header), and cannot reach a
// loopback address by a host name of their own (Host; DNS rebinding).
func (s *Server) guard(at net.Addr) http.Handler {
	var foreign http.CrossOriginProtection
	local := isLoopback(at)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer answeredOrReset(r)
		h := w.Header()
		h["X-Content-Type-Options"] = noSniff
		h["Cache-Control"] = noStore
		h[requestIDHeader] = []string{s.ids.of(r)}
		if r.TransferEncoding != nil {
			// The request may also have had a Content-Length, which net/http drops silently. By RFC
			// 9112, 6.1 the connection must then be closed.
			h.Set("Connection", "close")
		}
		timeBody(w, r)
		switch {
		case local && !isLocalName(r.Host):
			s.turnDown(w, r, kindMisdirected.because("the request has the Host %q, but this address answers only for localhost; if a proxy forwards requests to weir, let it send Host: localhost",
				shorten(r.Host)))
		case !cleanPath(r):
			s.turnDown(w, r, kindNotFound.because("the path is not in its canonical form, such as with // or ..; GET /openapi.yaml lists all paths"))
		case foreign.Check(r) != nil:
			s.turnDown(w, r, kindForeignOrigin.because("weir refuses requests that change something when a web page of another site sends them"))
		default:
			s.dispatch(w, r)
		}
	})
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// isLocalName reports whether a Host header is one that a client on this machine sends. DNS
// rebinding does not work with an IP address.
func isLocalName(host string) bool {
	name := nameOf(host)
	return name == "localhost" || net.ParseIP(name) != nil
}

// nameOf returns the name or address in a Host header, without a port, in lower case.
func nameOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// cleanPath reports whether the path is plain: no dot segments, no empty segments, no parameters.
// What is percent-encoded is part of a name, whatever it is.
func cleanPath(r *http.Request) bool {
	p := r.URL.EscapedPath()
	return strings.HasPrefix(p, "/") && !strings.Contains(p, ";") &&
		(p == path.Clean(p) || strings.HasSuffix(p, "/") && p == path.Clean(p)+"/")
}

// dispatch calls the route of a request.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request) {
	if !utf8.ValidString(r.URL.Path) {
		s.turnDown(w, r, kindInvalidRequest.because("the path is not valid UTF-8; all names are UTF-8"))
		return
	}
	s.mux.ServeHTTP(w, withLoneSlashes(r))
}

// loneSlash stands for a name that is only a slash while http.ServeMux looks for the route: it
// takes a segment %2F for the end of a path that ends with a slash. No name is loneSlash: it is not
// UTF-8.
const loneSlash = "\xff"

// withLoneSlashes returns the request with loneSlash for each segment %2F. restoreSlashes undoes
// it.
func withLoneSlashes(r *http.Request) *http.Request {
	segments := strings.Split(r.URL.EscapedPath(), "/")
	found := false
	for i, segment := range segments {
		if strings.EqualFold(segment, "%2F") {
			segments[i], found = url.PathEscape(loneSlash), true
		}
	}
	if !found {
		return r
	}
	u := *r.URL
	u.RawPath = strings.Join(segments, "/")
	u.Path, _ = url.PathUnescape(u.RawPath) // its other segments are those of a valid path
	through := r.WithContext(r.Context())
	through.URL = &u
	return through
}

// restoreSlashes gives the names of a route's path their slashes back.
func restoreSlashes(r *http.Request, names []string) {
	for _, name := range names {
		if r.PathValue(name) == loneSlash {
			r.SetPathValue(name, "/")
		}
	}
}

const requestIDHeader = "X-Request-Id"

// requestIDs gives requests an id, for our log and the client's: the client's own, or a random
// prefix and a count.
type requestIDs struct {
	prefix string
	count  *atomic.Uint64
}

func newRequestIDs() requestIDs {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return requestIDs{hex.EncodeToString(b[:]) + "-", new(atomic.Uint64)}
}

const requestIDMax = 128

func (ids requestIDs) of(r *http.Request) string {
	if given := r.Header[requestIDHeader]; len(given) == 1 && len(given[0]) <= requestIDMax && isToken(given[0]) {
		return given[0]
	}
	return ids.prefix + strconv.FormatUint(ids.count.Add(1), 36)
}

// isToken reports whether a text is printable ASCII without spaces: safe in a header, a log line
// and JSON.
func isToken(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] >= 0x7f {
			return false
		}
	}
	return text != ""
}
