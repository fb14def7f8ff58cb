package cli

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/smalldisk"
)

// A disk that another program fills: an operator sees it in the readiness, the log and a metric;
// reading and deleting go on, before and after a restart, and publishing when there is space again.
func TestAFullDiskIsSeenAndReadingAndDeletingGoOn(t *testing.T) {
	smalldisk.Run(t, 32<<20, func(t *testing.T, dir string) {
		url := "sqlite:" + filepath.Join(dir, "data", "weir.db")
		s := serve(t, "--store", url)
		for _, topic := range []string{"one", "two", "three"} {
			weir(t, "", "topic", "create", topic).want(t, exitOK)
			weir(t, strings.Repeat("hello\n", 1000), "produce", topic).want(t, exitOK)
		}
		s.metric(t, "weir_store_writable 1")
		free := smalldisk.Fill(t, dir)
		s.seesAFullDisk(t)
		weir(t, "", "topic", "delete", "one", "--yes").want(t, exitOK)
		weir(t, "", "topic", "alter", "two", "--retention", "1h").want(t, exitOK)
		s.stop()

		smalldisk.Fill(t, dir) // what was free for a moment is gone again
		s = serve(t, "--store", url)
		s.seesAFullDisk(t)
		weir(t, "", "topic", "delete", "two", "--yes").want(t, exitOK)

		free()
		s.waitReady(t, http.StatusOK)
		s.metric(t, "weir_store_writable 1")
		s.out.waitFor(t, "the store accepts records again")
		weir(t, "again\n", "produce", "three").want(t, exitOK, "1 record acknowledged")
	})
}

// seesAFullDisk checks what an operator and clients see of one.
func (s *server) seesAFullDisk(t *testing.T) {
	t.Helper()
	s.waitReady(t, http.StatusServiceUnavailable)
	if _, body := s.get(t, "/readyz"); !strings.Contains(body, "no space left on device") {
		t.Errorf("/readyz does not name ENOSPC: %s", body)
	}
	if code, _ := s.get(t, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d, want 200: a restart would not help", code)
	}
	s.metric(t, "weir_store_writable 0")
	s.out.waitFor(t, "the store accepts no records")
	response, err := http.Post("http://"+s.http+"/v1/topics/three/events", "text/plain", strings.NewReader("more"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "disk of the store is full") {
		t.Errorf("publish over HTTP: %d %s", response.StatusCode, body)
	}
	if r := weir(t, "more\n", "produce", "three", "--timeout", "1s"); r.code == exitOK {
		t.Errorf("acknowledged on a full disk: %+v", r)
	}
	if r := weir(t, "", "consume", "three"); r.out != strings.Repeat("hello\n", 1000) {
		t.Errorf("read on a full disk: %d bytes %s", len(r.out), r.err)
	}
	s.metric(t, `weir_store_errors_total{op="commit"}`)
}

// metric checks that a line of /metrics begins so.
func (s *server) metric(t *testing.T, line string) {
	t.Helper()
	if _, body := s.get(t, "/metrics"); !strings.Contains(body, "\n"+line) {
		t.Errorf("/metrics lacks %q", line)
	}
}
