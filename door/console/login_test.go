package console

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// crowded is an API that refuses every request, because of load.
type crowded struct {
	asked []string // paths
	known error    // of a client's credentials
}

func (c *crowded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.asked = append(c.asked, r.URL.Path)
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = io.WriteString(w, `{"status":429,"title":"The client has too many requests in progress"}`)
}

func (c *crowded) Known(*http.Request) error     { return c.known }
func (c *crowded) May(*http.Request) bool        { return false }
func (c *crowded) MayOperate(*http.Request) bool { return false }

func (c *crowded) Page(w http.ResponseWriter, _ *http.Request, render func() (int, string, []byte)) error {
	if status, media, page := render(); status != 0 {
		w.Header().Set("Content-Type", media)
		w.WriteHeader(status)
		_, _ = w.Write(page)
	}
	return nil
}

func (c *crowded) Body(_ http.ResponseWriter, r, _ *http.Request, _ int64) ([]byte, func(), error) {
	body, err := io.ReadAll(r.Body)
	return body, func() {}, err
}

// tooMany is an error that says what an answer would say.
type tooMany struct{ error }

func (tooMany) HTTP() (status int, title, detail string) {
	return http.StatusServiceUnavailable, "The server is overloaded", "too many passwords are being checked"
}

func TestALoginListsNothingAndALoadSaysWhenToTryAgain(t *testing.T) {
	api := &crowded{}
	c := New(Config{API: api, History: NewHistory(prometheus.NewRegistry(), prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler)})
	var cookies []*http.Cookie
	send := func(method, path string, form url.Values) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:8080"+path, strings.NewReader(form.Encode()))
		for _, cookie := range cookies {
			r.AddCookie(cookie)
		}
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		return w
	}
	first := send("GET", "/console/login", nil)
	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(first.Body.String())
	if cookies = first.Result().Cookies(); first.Code != http.StatusOK || token == nil || len(cookies) == 0 {
		t.Fatalf("the login page: %d %s", first.Code, first.Body)
	}
	if w := send("GET", "/console/topics", nil); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
		t.Errorf("a page of a client that asks too much: %d %s", w.Code, w.Header())
	}
	api.asked = nil
	form := url.Values{"token": {token[1]}, "key": {"weir_aaaaaaaa_" + strings.Repeat("a", 52)}}
	api.known = tooMany{errors.New("no turn")}
	if w := send("POST", "/console/login", form); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "too many passwords") {
		t.Errorf("a login that finds no turn: %d %s %s", w.Code, w.Header(), w.Body)
	}
	api.known = nil
	if w := send("POST", "/console/login", form); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/" {
		t.Errorf("a login: %d %s %s", w.Code, w.Header(), w.Body)
	}
	if len(api.asked) > 0 {
		t.Errorf("a login asks for %q", api.asked)
	}
}
