package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/doctor"
)

func TestOpenTakesEachForm(t *testing.T) {
	dir := t.TempDir()
	for _, address := range []string{"memory:", "sqlite:" + filepath.Join(dir, "a.db"), "sqlite://" + filepath.Join(dir, "new", "b.db")} {
		s, err := Open(t.Context(), address, nil)
		if err != nil {
			t.Errorf("open %s: %v", address, err)
			continue
		}
		if _, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: 1}}}}); err != nil {
			t.Errorf("commit to %s: %v", address, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("close %s: %v", address, err)
		}
	}
}

func TestOpenRefusesOtherFormsAndListsItsOwn(t *testing.T) {
	for _, address := range []string{"", "weir.db", "redis://user:s3cret@host", "host=a password=s3cret", "sqlite:", "sqlite://", ":", "user:s3cret@host:5432"} {
		s, err := Open(t.Context(), address, nil)
		if err == nil || s != nil {
			t.Errorf("open %q: %v, %v", address, s, err)
			continue
		}
		if !strings.Contains(err.Error(), "sqlite:PATH") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("open %q: %v", address, err)
		}
		if _, err := Examine(t.Context(), address); err == nil {
			t.Errorf("examine %q: no error", address)
		}
	}
}

func TestOpenGivesNoStoreWithAnError(t *testing.T) {
	s, err := Open(t.Context(), "sqlite:"+t.TempDir(), nil)
	if err == nil || s != nil {
		t.Errorf("open a directory: %v, %v", s, err)
	}
}

func TestOnlyBucketsCanBeFollowedReadOnly(t *testing.T) {
	for address, want := range map[string]string{
		"s3://bucket/prefix":                    "s3://bucket/prefix?read_only=true",
		"s3://bucket?poll=2s":                   "s3://bucket?poll=2s&read_only=true",
		"s3://bucket?alone=true":                "s3://bucket?read_only=true",
		"s3://bucket?read_only=false":           "s3://bucket?read_only=true",
		"sqlite:weir.db":                        "",
		"postgres://weir:secret@db.internal/db": "",
		"mysql://weir:secret@db.internal/db":    "",
		"memory:":                               "",
		"weir.db":                               "",
	} {
		got, err := ReadOnly(address)
		if got != want || (err == nil) != (want != "") || err != nil && (!errors.Is(err, ErrAddress) || !strings.Contains(err.Error(), "s3://") || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %q, %v; want %q", address, got, err, want)
		}
	}
}

func TestPasswordsAreNotShown(t *testing.T) {
	for address, want := range map[string]string{
		"memory:":        "memory:",
		"sqlite:a/b.db":  "sqlite:a/b.db",
		"sqlite:a@b?c=d": "sqlite:a@b?c=d",
		"postgres://u:s3cret@h:1/d?sslmode=disable": "postgres://u:xxxxx@h:1/d?sslmode=disable",
		"postgresql://h/d?user=u&password=s3cret":   "postgresql://h/d?password=xxxxx&user=u",
		"postgres://h/d?sslpassword=s3cret":         "postgres://h/d?sslpassword=xxxxx",
		"postgres://u:s3%cret@h/d":                  "postgres:…",
		"postgres:u:s3cret@h":                       "postgres:…",
		"host=h password=s3cret":                    "…",
		"host=h password=s3cret options=-c a:b":     "…",
	} {
		if got := Redact(address); got != want {
			t.Errorf("%s is shown as %s, want %s", address, got, want)
		}
	}
}

func TestExamineChangesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.db")
	s, err := Open(t.Context(), "sqlite:"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	examine := func(when string) {
		t.Helper()
		before := listing(t, dir)
		findings, err := Examine(context.Background(), "sqlite:"+path)
		if err != nil {
			t.Fatalf("examine %s: %v", when, err)
		}
		if after := listing(t, dir); after != before {
			t.Errorf("examine %s changed the files from %s to %s", when, before, after)
		}
		for _, f := range findings {
			if f.Level == doctor.Bad && f.Name != "file system" && f.Name != "free disk space" {
				t.Errorf("examine %s found %+v", when, f)
			}
		}
	}
	examine("while it is open")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	examine("after it was closed")
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	return strings.Join(names, " ")
}

func TestOpenKeepsPasswordsOutOfErrors(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, address := range []string{"postgres://u:s3cret@127.0.0.1:1/d", "postgresql://127.0.0.1:1/d?user=u&password=s3cret", "postgres://u:s3%cret@h/d"} {
		if _, err := Open(ctx, address, nil); err == nil || strings.Contains(err.Error(), "s3") {
			t.Errorf("open of a server that is not there: %v", err)
		}
		if _, err := Examine(ctx, address); err == nil || strings.Contains(err.Error(), "s3") {
			t.Errorf("examine of a server that is not there: %v", err)
		}
	}
}
