package cli

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/weir-log/weir/eventlog"
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
