package token

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Bounds of a fetch.
const (
	jwksMax   = 1 << 20         // bytes of a JWKS
	headerMax = 64 << 10        // bytes of the answer's header
	fetchMax  = 5 * time.Second // from the connection to the answer's last byte
)

// source is where a JWKS is.
type source interface {
	fetch(ctx context.Context) ([]byte, error)
	String() string
}

// newSource takes a URL, or the name of a file.
func newSource(jwks string) (source, error) {
	scheme, _, is := strings.Cut(jwks, "://")
	switch strings.ToLower(scheme) {
	case "http", "https":
	case "file":
		return file(strings.TrimPrefix(jwks[len(scheme):], "://")), nil
	default:
		if is {
			return nil, fmt.Errorf("the JWKS %q has the scheme %q; https, http and file are allowed", jwks, scheme)
		}
		return file(jwks), nil
	}
	u, err := url.Parse(jwks)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the JWKS is not at a URL: %w", err)
	case u.Host == "" || u.User != nil:
		return nil, errors.New("the URL of the JWKS must have a host, and no user or password")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // the next fetch is minutes away
	transport.MaxResponseHeaderBytes = headerMax
	return &endpoint{u, transport}, nil
}

// endpoint is a JWKS at a URL.
type endpoint struct {
	url       *url.URL
	transport http.RoundTripper
}

func (e *endpoint) String() string { return e.url.String() }

// fetch follows no redirect: whoever can redirect it says who may log in.
func (e *endpoint) fetch(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchMax)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	resp, err := e.transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", e.url, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: the status is %s, Location %q; 200 is needed", e.url, resp.Status, short(resp.Header.Get("Location")))
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, jwksMax+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("GET %s: %w", e.url, err)
	case len(text) > jwksMax:
		return nil, fmt.Errorf("GET %s: the answer has more than %d bytes, the limit", e.url, jwksMax)
	}
	return text, nil
}

// file is a JWKS in a file.
type file string

func (f file) String() string { return string(f) }

func (f file) fetch(context.Context) ([]byte, error) {
	if info, err := os.Stat(string(f)); err == nil && (info.Size() > jwksMax || !info.Mode().IsRegular()) {
		return nil, fmt.Errorf("%s is not a file with a JWKS: it has %d bytes, mode %s; %d bytes are allowed", f, info.Size(), info.Mode(), jwksMax)
	}
	return os.ReadFile(string(f))
}
