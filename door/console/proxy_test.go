package console_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/weir-log/weir/use/apikey"
)

// formOf sends what a browser says of a form: the site of its page and, to a site with TLS, that it
// is the same site.
type formOf struct {
	site    string
	through http.RoundTripper
}

func (f formOf) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost {
		r = r.Clone(r.Context())
		r.Header.Set("Origin", f.site)
		if strings.HasPrefix(f.site, "https:") {
			r.Header.Set("Sec-Fetch-Site", "same-origin")
		}
	}
	return f.through.RoundTrip(r)
}

// docs/http.md, "Behind a proxy".
func TestTheLoginWorksBehindAProxyThatHasTLS(t *testing.T) {
	s := serve(t)
	_, key := s.key(apikey.Read)
	to, err := url.Parse(s.at)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.SetXForwarded()
		r.Out.Host = "localhost"
	}}
	for _, c := range []struct {
		name, site string
		start      func(http.Handler) *httptest.Server
		status     int
	}{
		{"with TLS", "https://events.example.org", httptest.NewTLSServer, http.StatusSeeOther},
		{"without", "http://events.example.org", httptest.NewServer, http.StatusForbidden},
	} {
		t.Run(c.name, func(t *testing.T) {
			front := c.start(proxy)
			defer front.Close()
			b := s.browser()
			b.at, b.client.Transport = front.URL, formOf{c.site, front.Client().Transport}
			p := b.post("/console/login", "key", key)
			if p.status != c.status {
				t.Fatalf("the login: %d %s", p.status, p.text)
			}
			if c.status != http.StatusSeeOther {
				return
			}
			if cookie := p.header.Get("Set-Cookie"); !strings.Contains(cookie, "; Secure") {
				t.Errorf("the cookie is not for https only: %s", cookie)
			}
			if p := b.get("/console/topics"); p.status != http.StatusOK {
				t.Errorf("after the login: %d", p.status)
			}
		})
	}
}

// Without credentials only this machine is served, and a proxy that says anything is another one.
func TestAProxyThatSaysAnythingIsNotThisMachine(t *testing.T) {
	s := serve(t)
	b := s.browser()
	for header, want := range map[string]int{
		"Accept-Language": http.StatusOK, "Forwarded": http.StatusSeeOther, "Via": http.StatusSeeOther, "X-Real-Ip": http.StatusSeeOther,
		"X-Forwarded-For": http.StatusSeeOther, "X-Forwarded-Proto": http.StatusSeeOther, "X-Forwarded-Host": http.StatusSeeOther,
		"Cf-Connecting-Ip": http.StatusSeeOther, "True-Client-Ip": http.StatusSeeOther,
	} {
		r, err := http.NewRequest(http.MethodGet, b.at+"/console/topics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(header, "x")
		if p := b.send(r); p.status != want {
			t.Errorf("%s: %d, want %d", header, p.status, want)
		}
	}
}
