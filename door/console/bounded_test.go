package console_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/weir-log/weir/use/apikey"
)

// raw sends a request, or a part of one, with a browser's cookies, over a connection of its own.
func (b *browser) raw(request string) *net.TCPConn {
	b.t.Helper()
	at, err := url.Parse(b.at)
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := net.Dial("tcp", at.Host)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	conn := c.(*net.TCPConn)
	if err := conn.SetReadBuffer(4096); err != nil {
		b.t.Fatal(err)
	}
	var cookies string
	for _, cookie := range b.client.Jar.Cookies(at) {
		cookies += "Cookie: " + cookie.String() + "\r\n"
	}
	head, body, _ := strings.Cut(request, "\r\n\r\n")
	if _, err := fmt.Fprintf(conn, "%s\r\nHost: localhost\r\n%s\r\n%s", head, cookies, body); err != nil {
		b.t.Fatal(err)
	}
	return conn
}

func TestBrowsersThatTakeNoPageDelayOnlyThemselves(t *testing.T) {
	s := serve(t)
	s.api("POST", "/v1/topics", `{"name": "large"}`)
	for range 60 {
		s.api("POST", "/v1/topics/large/events", strings.Repeat(`"`, 64<<10))
	}
	_, secret := s.key(apikey.Read)
	silent := s.browser()
	silent.login(secret)
	_, secret = s.key(apikey.Read)
	other := s.browser()
	other.login(secret)
	for range 80 {
		silent.raw("GET /console/topics/large/messages?from=0 HTTP/1.1\r\n\r\n")
	}
	for range 10 {
		if p := other.get("/console/topics"); p.status != http.StatusOK {
			t.Fatalf("%d %s", p.status, p.text)
		}
	}
}

// Whoever has not logged in may send a name and a password, and nothing that needs memory.
func TestAFormOfAStrangerIsSmall(t *testing.T) {
	s := serve(t)
	s.api("POST", "/v1/topics", `{"name": "orders"}`)
	_, secret := s.key(apikey.Write)
	for what, request := range map[string]string{
		"a length that is announced": fmt.Sprintf("Content-Length: %d\r\n\r\n", 1<<20),
		"chunks that do not end":     "Transfer-Encoding: chunked\r\n\r\n8000\r\n" + strings.Repeat("x", 0x8000),
	} {
		c := s.browser().raw("POST /console/topics/orders/publish HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n" + request)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != http.StatusRequestEntityTooLarge {
			text, _ := io.ReadAll(answer.Body)
			t.Errorf("%s: %d %s", what, answer.StatusCode, text)
		}
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(make([]byte, 10<<20)); err != nil {
		t.Fatal(err)
	}
	z.Close()
	c := s.browser().raw(fmt.Sprintf("POST /console/login HTTP/1.1\r\nContent-Encoding: gzip\r\n"+
		"Content-Length: %d\r\n\r\n%s", packed.Len(), packed.Bytes()))
	if answer, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
		t.Fatal(err)
	} else if answer.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("a form that is compressed: %d", answer.StatusCode)
	}
	writer := s.browser()
	writer.login(secret)
	if p := writer.post("/console/topics/orders/publish", "value", strings.Repeat("x", 500<<10)); p.status != http.StatusSeeOther {
		t.Errorf("a writer's form: %d %s", p.status, p.text)
	}
}
