package s3

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storetest"
)

// calls are those of a store's methods that ask the server, with errors of which the log has to
// know what they mean.
var calls = map[string]func(t *testing.T, s *Store) error{
	"commit": func(t *testing.T, s *Store) error { _, err := publish(t, s, "x"); return err },
	"trim":   func(t *testing.T, s *Store) error { return storetest.Trim(t.Context(), s, 1, 1) },
	"read": func(t *testing.T, s *Store) error {
		_, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 1000}}, 1000)
		return err
	},
	"moved": func(t *testing.T, s *Store) error { _, _, err := s.Changes(t.Context(), eventlog.Mark{}); return err },
	"seek": func(t *testing.T, s *Store) error {
		_, err := s.Seek(t.Context(), []eventlog.Goal{{Partition: 1}})
		return err
	},
	"list": func(t *testing.T, s *Store) error { _, err := s.List(t.Context(), "", "", 10); return err },
	"get":  func(t *testing.T, s *Store) error { _, err := s.Get(t.Context(), []string{"key"}, 10); return err },
}

// Whatever the server answers, the log knows what it means: nothing happened, or that is unknown.
func TestEveryErrorIsOfAKindThatTheLogKnows(t *testing.T) {
	for _, answer := range []refusal{
		{http.StatusNotFound, "NoSuchBucket"}, {http.StatusNotFound, "NotFound"}, {http.StatusForbidden, "AccessDenied"},
		{http.StatusBadRequest, "ExpiredToken"}, {http.StatusMethodNotAllowed, "MethodNotAllowed"}, {http.StatusConflict, "OperationAborted"},
	} {
		for name, call := range calls {
			t.Run(answer.code+"/"+name, func(t *testing.T) {
				server, address := serve(t)
				s := openAt(t, address)
				mustPublish(t, s, "a", "b")
				server.refuses.Store(&answer)
				if err := call(t, s); !errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure) {
					t.Errorf("%v; it must be ErrUnavailable", err)
				}
			})
		}
	}
}

// So it is with a commit that is damaged, and with an object that is gone though it was listed.
func TestADamagedCommitMakesTheStoreUnavailable(t *testing.T) {
	for name, call := range calls {
		if name == "commit" { // it waits for its put's answer, which stays unknown
			continue
		}
		t.Run(name, func(t *testing.T) {
			f := newFake()
			s, other := opened(t, f), opened(t, f)
			mustPublish(t, other, "a")
			f.change(commitKey(1), func(b []byte) []byte { b[len(b)-10] ^= 1; return b[:20] })
			if err := call(t, s); !errors.Is(err, eventlog.ErrUnavailable) || !errors.Is(err, errDamaged) {
				t.Errorf("%v; it must be ErrUnavailable", err)
			}
		})
	}
	if err := failed(errMissing); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Error(err)
	}
}

// A commit that is too large for the server, or for somebody on the way, is told as that.
func TestWhatIsTooLargeForTheServer(t *testing.T) {
	server, address := serve(t)
	s := openAt(t, address)
	server.refuses.Store(&refusal{http.StatusRequestEntityTooLarge, "EntityTooLarge"})
	if _, err := publish(t, s, "large"); !errors.Is(err, eventlog.ErrTooLarge) || errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure) {
		t.Errorf("%v; it must be ErrTooLarge", err)
	}
}

// A proxy answers 404 to everything. That is not the absence of a commit: the log is not ready, and
// says why.
func TestALogIsNotReadyWhileAProxyAnswers(t *testing.T) {
	server, address := serve(t)
	s := openAt(t, strings.Replace(address, "verify=0s", "verify=1h", 1))
	mustPublish(t, s, "a")
	if _, mark, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Fatal(err)
	} else {
		server.refuses.Store(&refusal{status: http.StatusNotFound})
		_, _, err = s.Changes(t.Context(), mark) // what the log's health is
		if !errors.Is(err, eventlog.ErrUnavailable) || !strings.Contains(err.Error(), "404") {
			t.Errorf("the log's poll is told %v", err)
		}
	}
	if _, err := Open(t.Context(), address, Options{}); err == nil || strings.Contains(err.Error(), "restore") {
		t.Errorf("a process that starts is told %v", err)
	}
	server.refuses.Store(nil)
	expect(t, openAt(t, address), "a")
}

// A snapshot is deleted between the list that names it and its get: the start goes on with the next
// list.
func TestASnapshotThatVanishesWhileAProcessStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		writer, err := f.open(t.Context(), quick)
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		mustPublish(t, writer, "a")
		if err := writer.snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		old := f.Keys("snapshot/")[0]
		vanished := false
		f.answerGets(func(key string) {
			if key != old || vanished {
				return
			}
			vanished = true
			tended(t, writer, f, "b", "c")
			if len(f.Keys(old)) > 0 {
				t.Error("the snapshot was not deleted: the test tests nothing")
			}
		})
		fresh, err := f.open(t.Context(), quick)
		if err != nil || !vanished {
			t.Fatalf("%v; the snapshot vanished: %v", err, vanished)
		}
		defer fresh.Close()
		f.answerGets(nil)
		expect(t, fresh, "a", "b", "c")
	})
}

// Without credentials weir says so, and where it looked, in its log's format alone.
func TestWithoutCredentialsWeirSaysWhereItLooked(t *testing.T) {
	nobody := httptest.NewServer(http.NotFoundHandler())
	defer nobody.Close()
	_, address := serve(t)
	nowhere := filepath.Join(t.TempDir(), "no-such-file")
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_PROFILE": "", "AWS_SHARED_CREDENTIALS_FILE": nowhere, "AWS_CONFIG_FILE": nowhere,
		"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": nobody.URL,
	} {
		t.Setenv(name, value)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = write
	var logged bytes.Buffer
	_, err = Open(t.Context(), address, Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	os.Stderr = stderr
	_ = write.Close()
	raw, _ := io.ReadAll(read)
	if len(raw) > 0 {
		t.Errorf("past the log's format: %s", raw)
	}
	for _, says := range []string{"there are no credentials", "AWS_ACCESS_KEY_ID", nowhere, `the profile "default"`, "role of this container or machine"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; it must say %q", err, says)
		}
	}
	if err != nil && strings.Contains(err.Error(), errRefused.Error()) {
		t.Errorf("nobody refused anything: %v", err)
	}
	for line := range strings.Lines(logged.String()) {
		if !strings.HasPrefix(line, "time=") {
			t.Errorf("in the log: %q", line)
		}
	}
}
