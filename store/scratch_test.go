package store_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/s3test"
	"github.com/weir-log/weir/internal/verify"
	"github.com/weir-log/weir/store"
)

// raced lets callers race in a storage.
func raced(t *testing.T, addresses ...string) verify.Raced {
	t.Helper()
	s, err := store.Scratch(t.Context(), addresses...)
	if err != nil {
		t.Fatal(err)
	}
	r, err := verify.Race(t.Context(), s, 30)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAStorageThatWeirCanUsePassesTheRace(t *testing.T) {
	for name, address := range map[string]func(testing.TB) string{"PostgreSQL": pgtest.URL, "MariaDB": mytest.URL, "S3": s3test.URL} {
		t.Run(name, func(t *testing.T) {
			at := address(t)
			if r := raced(t, at, at); len(r.Wrong) > 0 || r.Won != 30 || r.Puts == r.Won {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A proxy says that a conditional write succeeded which the server refused.
func TestAStorageThatLetsTwoConditionalWritesWinIsCaught(t *testing.T) {
	address := s3test.URL(t)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	options := u.Query()
	server, err := url.Parse(options.Get("endpoint"))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(server)
	proxy.ModifyResponse = func(r *http.Response) error {
		if r.StatusCode == http.StatusPreconditionFailed {
			r.StatusCode, r.Status, r.Body, r.ContentLength = http.StatusOK, "200 OK", http.NoBody, 0
			r.Header.Set("Content-Length", "0")
			r.Header.Set("ETag", `"d41d8cd98f00b204e9800998ecf8427e"`)
		}
		return nil
	}
	liar := httptest.NewServer(proxy)
	defer liar.Close()
	options.Set("endpoint", liar.URL)
	u.RawQuery = options.Encode()
	if r := raced(t, address, u.String()); !strings.Contains(strings.Join(r.Wrong, "\n"), "both succeeded") {
		t.Errorf("a lie was not found: %+v", r)
	}
}
