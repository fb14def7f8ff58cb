package console_test

import (
	"html"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-log/weir/use/apikey"
)

// links are the addresses of a page's links that contain a text.
func (p page) links(has string) (all []string) {
	for _, m := range regexp.MustCompile(`href="([^"]+)"`).FindAllStringSubmatch(p.text, -1) {
		if href := html.UnescapeString(m[1]); strings.Contains(href, has) {
			all = append(all, href)
		}
	}
	return all
}

func TestLinksAskForWhatTheyShow(t *testing.T) {
	s := serve(t)
	s.fill()
	b := s.browser()
	tags := b.get("/console/streams/accounts/acc-1").links("/console/tagged/accounts?tag=")
	if len(tags) == 0 {
		t.Fatal("the stream shows no tag")
	}
	for _, at := range tags {
		if p := b.get(at); p.status != http.StatusOK || !strings.Contains(p.text, "Opened") {
			t.Errorf("%s: %d, lacks the event", at, p.status)
		}
	}
	const key, text = "a b/c:d", "50% + x"
	for range 1001 { // more than one search reads
		s.api("POST", "/v1/topics/orders/events", `"none"`)
	}
	for _, at := range b.get("/console/topics/orders/messages?key=" + url.QueryEscape(key) + "&text=" + url.QueryEscape(text)).links("from=") {
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		if q := u.Query(); u.Query().Has("key") && (q.Get("key") != key || q.Get("text") != text) {
			t.Errorf("%s asks for the key %q and the text %q", at, q.Get("key"), q.Get("text"))
		}
	}
}

func TestATopicsPageLeadsToItsMessages(t *testing.T) {
	s := serve(t)
	s.fill()
	if all := s.browser().get("/console/topics/orders").links("/console/topics/orders/messages#live"); len(all) == 0 {
		t.Error("there is no link to the messages")
	}
}

// A link of another site comes without the cookie (SameSite=Strict), and must not end the login.
func TestALinkOfAnotherSiteDoesNotLogOut(t *testing.T) {
	s := serve(t)
	_, reader := s.key(apikey.Read)
	b := s.browser()
	b.login(reader)
	r, err := http.NewRequest("GET", s.at+"/console/topics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || len(resp.Cookies()) > 0 {
		t.Errorf("%s, with the cookies %v", resp.Status, resp.Cookies())
	}
	if p := b.get("/console/topics"); p.status != http.StatusOK {
		t.Errorf("afterwards: %d", p.status)
	}
}

func TestADownloadIsAFileOnlyIfThereIsOne(t *testing.T) {
	s := serve(t)
	s.fill()
	b := s.browser()
	p := b.get("/console/topics/orders/download")
	if kind, with, err := mime.ParseMediaType(p.header.Get("Content-Disposition")); err != nil || kind != "attachment" || with["filename"] != "orders.ndjson" || p.status != http.StatusOK {
		t.Errorf("%d, Content-Disposition %q", p.status, p.header.Get("Content-Disposition"))
	}
	if p := b.get("/console/topics/orders/download?from=120"); p.status != http.StatusOK || p.text != "" || p.header.Get("Content-Disposition") == "" {
		t.Errorf("a file without events: %d %q, Content-Disposition %q", p.status, p.text, p.header.Get("Content-Disposition"))
	}
	for at, says := range map[string]string{"no/download": "does not exist", "x%22%3B%20a=%22/download": "invalid topic name", "orders/download?from=x": "offset", "orders/download?partition=9": "has no partition 9"} {
		p := b.get("/console/topics/" + at)
		if p.status < http.StatusBadRequest || p.header.Get("Content-Disposition") != "" {
			t.Errorf("%s: %d, Content-Disposition %q", at, p.status, p.header.Get("Content-Disposition"))
		}
		if kind := p.header.Get("Content-Type"); kind != "text/html; charset=utf-8" || !strings.Contains(p.text, "<h1>") || !strings.Contains(p.text, says) {
			t.Errorf("%s: a browser shows an answer of type %s, which lacks %q:\n%s", at, kind, says, p.text)
		}
	}
}
