package s3

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/s3test"
)

// What S3 refuses is certainly not done, and our error says what to do about it: when the store is
// opened, and later.
func TestRefusalsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		refusal
		says string
	}{
		{refusal{http.StatusForbidden, "RequestTimeTooSkewed"}, "this machine's clock differs too much from the server's: set it"},
		{refusal{http.StatusForbidden, "AccessDenied"}, "the credentials lack rights: weir needs s3:GetObject"},
		{refusal{http.StatusForbidden, "InvalidAccessKeyId"}, "check the credentials and the endpoint"},
		{refusal{http.StatusForbidden, "SignatureDoesNotMatch"}, "the secret key is wrong"},
		{refusal{http.StatusMovedPermanently, "PermanentRedirect"}, "the bucket is in another region: set region="},
		{refusal{http.StatusBadRequest, "AuthorizationHeaderMalformed"}, "the region is wrong: set region="},
		{refusal{http.StatusNotFound, "NoSuchBucket"}, "the bucket does not exist: create it, or correct the URL"},
		{refusal{http.StatusForbidden, "InvalidObjectState"}, "remove the bucket's lifecycle rules for this prefix"},
	} {
		t.Run(c.code, func(t *testing.T) {
			server, address := serve(t)
			s := openAt(t, address)
			mustPublish(t, s, "a")
			server.refuses.Store(&c.refusal)
			check := func(what string, err error) {
				t.Helper()
				if err == nil || !strings.Contains(err.Error(), c.says) || errors.Is(err, eventlog.ErrUnsure) {
					t.Errorf("%s: %v; it must say %q", what, err, c.says)
				}
			}
			_, err := Open(t.Context(), address, Options{})
			check("open", err)
			_, err = publish(t, s, "refused")
			check("publish", err)
			server.refuses.Store(nil)
			mustPublish(t, s, "b")
			expect(t, openAt(t, address), "a", "b")
		})
	}
}

// A real server refuses a bucket that is not there, and a secret that is wrong.
func TestARealServersRefusals(t *testing.T) {
	address := s3test.URL(t)
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = "weir-test-nowhere"
	if _, err := Open(t.Context(), u.String(), Options{}); err == nil || !strings.Contains(err.Error(), "the bucket does not exist") {
		t.Errorf("no bucket: %v", err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	if _, err := Open(t.Context(), address, Options{}); err == nil || !strings.Contains(err.Error(), "the secret key is wrong") {
		t.Errorf("wrong secret: %v", err)
	}
}

// For a minute the server asks to slow down. Publishers are told after answerMax that certainly
// nothing happened; then all goes on.
func TestAServerThatIsBusyForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s, err := f.open(t.Context(), quick)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		mustPublish(t, s, "a")
		began, puts := time.Now(), 0
		f.answerPuts(func(_ string, do func() error) error {
			if puts++; time.Since(began) < time.Minute {
				return errBusy
			}
			return do()
		})
		refused := 0
		for {
			asked := time.Now()
			_, err := publish(t, s, "b")
			if err == nil {
				break
			}
			refused++
			if !errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure) || time.Since(asked) > answerMax+time.Second {
				t.Fatalf("after %v: %v", time.Since(asked), err)
			}
		}
		if took := time.Since(began); refused < 1 || refused > 2 || took < time.Minute || took > time.Minute+2*time.Second || puts > 200 {
			t.Errorf("%d publishers were refused in %v, with %d puts", refused, took, puts)
		}
		f.answerPuts(nil)
		expect(t, s, "a", "b")
	})
}

// A lifecycle rule deletes old objects. Nobody is told that the log is shorter: readers get an
// error for what is gone, which names the object, and nothing starts without commits that it needs.
func TestALifecycleRuleIsNoticed(t *testing.T) {
	for name, expired := range map[string]func(f *fake) []string{
		"segments":        func(f *fake) []string { return f.Keys("segment/") },
		"commits":         func(f *fake) []string { return []string{commitKey(1), commitKey(2)} },
		"the format":      func(f *fake) []string { return []string{"format"} },
		"all but commits": func(f *fake) []string { return append(append(f.Keys("segment/"), f.Keys("snapshot/")...), "format") },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			s := opened(t, f)
			mustPublish(t, s, "a", "b", "c")
			if name != "commits" {
				tended(t, s, f, "d", "e")
			} else {
				mustPublish(t, s, "d", "e")
			}
			gone := expired(f)
			for _, key := range gone {
				f.change(key, func([]byte) []byte { return nil })
			}
			fresh, err := f.open(t.Context(), quick)
			if err == nil {
				t.Cleanup(func() { _ = fresh.Close() })
				var got []eventlog.Slice
				if got, err = fresh.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 1 << 20}}, 1<<20); err == nil {
					if err = got[0].Err; got[0].Bounds.Next != 5 {
						t.Errorf("the log ends at %d", got[0].Bounds.Next)
					}
				}
			}
			named := false
			for _, key := range gone {
				named = named || err != nil && (strings.Contains(err.Error(), key) || key == "format" && strings.Contains(err.Error(), "object format"))
			}
			if !named || !strings.Contains(fmt.Sprint(err), "remove lifecycle rules") {
				t.Errorf("%v are gone: %v", gone, err)
			}
		})
	}
}
