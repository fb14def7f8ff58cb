package cli

import (
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A process that stops does not let records wait: their producers get their answers before the
// connections are closed.
func TestRecordsThatWaitAreAnsweredWhenWeirStops(t *testing.T) {
	s := serve(t, "--store", "sqlite:"+filepath.Join(t.TempDir(), "weir.db"))
	weir(t, "", "topic", "create", "lazy", "--linger", "5s").want(t, exitOK)
	reading, answered := make(chan struct{}), make(chan error, 1)
	trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(reading) }})
	r, err := http.NewRequestWithContext(trace, http.MethodPost, "http://"+s.http+"/v1/topics/lazy/events", strings.NewReader("an event"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Expect", "100-continue")
	go func() {
		transport := &http.Transport{ExpectContinueTimeout: time.Minute}
		defer transport.CloseIdleConnections()
		answer, err := transport.RoundTrip(r)
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode/100 != 2 {
				t.Errorf("the answer is %s", answer.Status)
			}
		}
		answered <- err
	}()
	<-reading
	if code := s.stop(); code != exitOK {
		t.Errorf("exit code %d: %s", code, s.out.String())
	}
	if err := <-answered; err != nil {
		t.Errorf("the producer has no answer: %v", err)
	}
}
