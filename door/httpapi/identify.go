package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/certificate"
	"github.com/weir-log/weir/internal/conns"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/apikey"
)

// Bounds of finding out who a client is. A longer secret is refused without a lookup; the bounds of
// a token and of a password are those of their packages.
const (
	secretMax = 256             // bytes of an API key
	loginWait = 5 * time.Second // longest that a password waits for its turn to be checked

	// Passwords wait for their turn to be checked, because a check takes milliseconds of processor
	// time. Those of one network take turns with those of others.
	loginsMax     = 4096
	loginsFromMax = 64 // of one network
)

// identify returns who makes a request. The answer to bad credentials does not say what is wrong
// with them; the cause is for the log.
func (s *Server) identify(r *http.Request) (*caller, error) {
	if s.cfg.Keys == nil {
		return &caller{key: apikey.Everybody}, nil
	}
	if keyInURL(r) {
		return nil, kindTokenInURL.because("proxies and servers write URLs into their logs, so the key is no longer secret. Create another key, revoke this one, and send the new one in the header Authorization: Bearer KEY")
	}
	given := r.Header["Authorization"]
	if len(given) == 0 {
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			return s.byCertificate(r)
		}
		return s.anybody(r)
	}
	if len(given) > 1 {
		return nil, kindUnauthorized.because("the request has %d Authorization headers; send one", len(given))
	}
	scheme, secret, _ := strings.Cut(given[0], " ")
	secret = strings.TrimSpace(secret)
	switch {
	case strings.EqualFold(scheme, "Basic") && s.cfg.Users != nil:
		return s.byPassword(r)
	case !strings.EqualFold(scheme, "Bearer"):
		return nil, kindUnauthorized.because("the Authorization header must be Bearer KEY, with an API key, Bearer TOKEN, with an OAuth token, or Basic, with a user's name and password; weir supports no other scheme")
	case s.cfg.Tokens != nil && !strings.HasPrefix(secret, apikey.Prefix):
		return s.byToken(r, secret)
	}
	return s.byKey(r, secret)
}

// byKey takes an API key.
func (s *Server) byKey(r *http.Request, secret string) (*caller, error) {
	if len(secret) > secretMax {
		return nil, unauthorized(errors.New("the key that was sent is too long"))
	}
	key, err := s.cfg.Keys.Check(r.Context(), secret)
	if err != nil {
		return nil, unauthorized(err)
	}
	return &caller{key: key, still: func(ctx context.Context) error { return s.cfg.Keys.Still(ctx, key) }}, nil
}

// byToken takes an OAuth token (RFC 6750).
func (s *Server) byToken(r *http.Request, text string) (*caller, error) {
	valid, err := s.cfg.Tokens.Check(r.Context(), text)
	if err != nil {
		return nil, unauthorized(err)
	}
	return s.user(r, valid.Name, func(context.Context) error {
		if time.Now().After(valid.Ends) {
			return fmt.Errorf("the token expired at %s", valid.Expires.UTC().Format(time.RFC3339))
		}
		return nil
	})
}

// byCertificate takes the certificate that the client showed when it connected.
func (s *Server) byCertificate(r *http.Request) (*caller, error) {
	shown := r.TLS.PeerCertificates[0]
	valid := func(context.Context) error { return certificate.Ended(shown) } // it was valid when the client connected
	if err := valid(r.Context()); err != nil {
		return nil, unauthorized(err)
	}
	name, err := s.cfg.Names.Of(shown)
	if err != nil {
		return nil, unauthorized(fmt.Errorf("the client's certificate has no name for it: %w", err))
	}
	return s.user(r, name, valid)
}

// byPassword takes a user's name and password (RFC 7617). A password that was right within the last
// minute is known; another one waits for its turn.
func (s *Server) byPassword(r *http.Request) (*caller, error) {
	name, password, ok := r.BasicAuth()
	if !ok {
		return nil, unauthorized(errors.New("the Authorization header has no name and password in base64"))
	}
	ctx, cancel := context.WithTimeout(r.Context(), loginWait)
	defer cancel()
	found, ok, err := s.passwords.Recall(ctx, name, password)
	if err == nil && !ok {
		from := networkOf(r)
		if err := s.logins.begin(from); err != nil {
			return nil, err
		}
		defer s.logins.end(from)
		if s.checks.acquire(ctx, from.ID()) != nil {
			return nil, kindOverloaded.past(loginsMax, "the password could not be checked within %v, because too many others are being checked; try again", loginWait)
		}
		defer s.checks.release(from.ID())
		if found, ok, err = s.passwords.Recall(ctx, name, password); err == nil && !ok { // a request of the same client may have waited before this one
			found, err = s.passwords.Check(ctx, name, password)
		}
	}
	if err != nil {
		return nil, unauthorized(err)
	}
	return s.user(r, name, func(ctx context.Context) error { return s.cfg.Users.Still(ctx, found) })
}

// user returns the caller that is a user, with the rights that it has now.
func (s *Server) user(r *http.Request, name string, still func(context.Context) error) (*caller, error) {
	principal, err := acl.PrincipalOf(name)
	if err != nil {
		return nil, unauthorized(err)
	}
	rights, err := acl.RightsOf(principal, r.RemoteAddr, s.superUsers[principal]).Now(r.Context(), s.cfg.ACLs)
	if err != nil {
		return nil, err
	}
	return &caller{user: principal, rights: rights, still: still}, nil
}

// anybody decides whether a request without credentials is allowed.
func (s *Server) anybody(r *http.Request) (*caller, error) {
	asks, err := s.asks(r.Context())
	switch {
	case err != nil:
		return nil, err
	case asks:
		return nil, noCredentials("send the header Authorization: Bearer KEY, with an API key, which `weir key create` creates; or show who you are in another way: docs/security.md")
	case !s.cfg.Insecure && !s.fromHere(r):
		return nil, noCredentials("the store has no API keys and no users yet: until then weir accepts requests only from its own machine, and not through a proxy; create a key with `weir key create`")
	case !s.notRebound(r.Host):
		return nil, kindMisdirected.because("the request has the Host %q. While nobody needs credentials, weir answers only for IP addresses and for names that no public DNS server has: localhost, "+
			"names without a dot, and those below %s. Start it with --http-host %[1]s, or create an API key", shorten(nameOf(r.Host)), strings.Join(privateZones, ", "))
	}
	return &caller{key: apikey.Everybody, still: s.stillOpen}, nil
}

// privateZones are those that public DNS does not have: reserved by RFC 6761, RFC 6762, RFC 8375
// and ICANN (.internal), and Kubernetes' .svc, which is no top-level domain.
var privateZones = []string{".local", ".internal", ".home.arpa", ".localhost", ".test", ".svc"}

// notRebound reports whether a Host header is an address, or a name that the owner of a web page
// cannot make point at us (DNS rebinding). A browser would take us for the server of such a page,
// and let its scripts read our answers.
func (s *Server) notRebound(host string) bool {
	if isLocalName(host) {
		return true
	}
	name := nameOf(host)
	return !strings.Contains(name, ".") || slices.ContainsFunc(privateZones, func(zone string) bool { return strings.HasSuffix(name, zone) }) ||
		slices.ContainsFunc(s.cfg.Hosts, func(own string) bool { return strings.EqualFold(own, name) })
}

// asks reports whether clients must show who they are: there are API keys or users, or there once
// were some, or the server takes tokens or certificates.
func (s *Server) asks(ctx context.Context) (bool, error) {
	if s.cfg.Tokens != nil || s.cfg.TLS != nil && s.cfg.TLS.ClientAuth != 0 {
		return true, nil
	}
	asks, err := s.cfg.Keys.Any(ctx)
	if err == nil && !asks && s.cfg.Users != nil {
		asks, err = s.cfg.Users.Any(ctx)
	}
	return asks, err
}

// stillOpen returns an error once clients must show who they are.
func (s *Server) stillOpen(ctx context.Context) error {
	asks, err := s.asks(ctx)
	if err == nil && asks {
		err = errors.New("the client has shown no credentials, because none were needed then")
	}
	return err
}

// known returns nil if the credentials of a caller that was identified before are still valid.
func (s *Server) known(ctx context.Context, who *caller) error {
	if who.still == nil {
		return nil
	}
	return who.still(ctx)
}

// now returns a caller that was identified before with the rights that it has now, or an error if
// its credentials are no longer valid.
func (s *Server) now(ctx context.Context, who *caller) (*caller, error) {
	if err := s.known(ctx, who); err != nil {
		return nil, unauthorized(err)
	}
	if who.user == "" {
		return who, nil
	}
	rights, err := who.rights.Now(ctx, s.cfg.ACLs)
	if err != nil || rights == who.rights {
		return who, err
	}
	next := *who
	next.rights = rights
	return &next, nil
}

// unauthorized refuses credentials. The answer is the same, whatever is wrong with them. Trouble of
// the store, or of who signs tokens, is passed on.
func unauthorized(cause error) error {
	if errors.Is(cause, eventlog.ErrUnavailable) {
		return cause
	}
	p := kindUnauthorized.because("the API key, the token, or the name and password, is not valid, or not now; the server's log says why. `weir key list` shows which keys are valid")
	p.cause = cause
	return p
}

func noCredentials(detail string) error {
	p := kindUnauthorized.because("%s", detail)
	p.cause = errors.New("the request has no credentials")
	return p
}

// network is where a request comes from. Limiters and slots count requests by network before they
// know the caller.
type network netip.Prefix

func networkOf(r *http.Request) network {
	at, _ := netip.ParseAddrPort(r.RemoteAddr) // it is not valid in tests only
	return network(conns.Network(at.Addr()))
}

// ID tells networks apart.
func (n network) ID() string { return netip.Prefix(n).String() }

func (n network) String() string { return "network " + n.ID() }
