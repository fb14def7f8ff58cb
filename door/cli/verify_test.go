package cli

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store"
)

// A script that runs weir verify goes by the exit code: 0 clean, 1 findings, 2 not finished.
func TestVerifySaysByItsExitCodeWhatItFound(t *testing.T) {
	dir := t.TempDir()
	url := "sqlite:" + filepath.Join(dir, "weir.db")
	weir(t, "", "verify", "--store", url).want(t, exitUnfinished, "does not exist", "run it again")
	s, err := store.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	commit := func(e eventlog.Entry) {
		t.Helper()
		out, err := s.Commit(t.Context(), []eventlog.Entry{e})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
	}
	commit(eventlog.Entry{Batches: []eventlog.Batch{{Partition: 0}}})
	weir(t, "", "verify", "--store", url, "--rate", "1MiB").want(t, exitOK, "examined 1 partitions", "0 findings")
	commit(eventlog.Entry{Puts: []eventlog.Put{{Key: "queue/def/mails", Version: 1, Value: []byte("{")}}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	weir(t, "", "verify", "--store", url).want(t, exitFailed, `queues: key "queue/def/mails"`, "make it anew", "contradicts itself in 1 place")
	var answer struct {
		Complete bool
		Found    int
		Findings []struct{ Check, Key, What, Do string }
	}
	r := weir(t, "", "verify", "--store", url, "--output", "json")
	if err := json.Unmarshal([]byte(r.out), &answer); err != nil || r.code != exitFailed {
		t.Fatalf("exit code %d, %v: %s", r.code, err, r.out)
	}
	if !answer.Complete || answer.Found != 1 || len(answer.Findings) != 1 || answer.Findings[0].Key != "queue/def/mails" || answer.Findings[0].Do == "" {
		t.Errorf("%+v", answer)
	}
	weir(t, "", "verify", "--store", "nonsense:").want(t, exitUnfinished, "invalid URL of a store")
}

// What a storage does when callers race is shown beside its settings, and nothing is left in it.
func TestAStorageIsTriedFromTheCommandLine(t *testing.T) {
	url := pgtest.URL(t)
	r := weir(t, "", "verify", "--storage", url, "--storage", url, "--output", "json")
	var found []struct{ Name, Level, Value string }
	if err := json.Unmarshal([]byte(r.out), &found); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	raced := slices.IndexFunc(found, func(f struct{ Name, Level, Value string }) bool { return f.Name == "writes that race" })
	if raced < 0 || found[raced].Level != "ok" || !strings.Contains(found[raced].Value, "200 won") || len(found) < 5 {
		t.Errorf("it says %+v", found)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var left int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relname LIKE 'weir_verify_%'").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d tables are left: %v", left, err)
	}
	weir(t, "", "verify", "--storage", url, "--rate", "1MiB").want(t, exitUsage, "--rate")
	weir(t, "", "verify", "--storage", "sqlite:x.db").want(t, exitConfig, "only storages that several processes share")
	weir(t, "", "verify", "--storage", url, "--storage", "s3://bucket").want(t, exitConfig, "different kinds")
}
