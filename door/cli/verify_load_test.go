package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-log/weir/store"
)

// A script that runs weir verify --load goes by the exit code: 0 clean, 1 a broken promise, 2 not
// judged. The history says so again.
func TestALoadSaysByItsExitCodeWhatBecameOfIt(t *testing.T) {
	dir := t.TempDir()
	url, ledger := "sqlite:"+filepath.Join(dir, "weir.db"), filepath.Join(dir, "history")
	weir(t, "", "verify", "--load", "1s", "--store", url).want(t, exitUnfinished, "does not exist")
	s, err := store.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	weir(t, "", "verify", "--load", "1s", "--store", url, "--ledger", filepath.Join(dir, "away", "history")).want(t, exitConfig, "--ledger")
	weir(t, "", "verify", "--load", "1s", "--store", url, "--rate", "1MiB").want(t, exitUsage, "number of events")
	weir(t, "", "verify", "--store", url, "--harm", "true").want(t, exitUsage, "--load DURATION")

	weir(t, "", "verify", "--load", "1s", "--store", url, "--ledger", ledger, "--rate", "500", "--harm", "echo done to it; exit 3", "--harm-every", "100ms").
		want(t, exitOK, "library queue", "library streams", "clean", ledger, "--harm-seed", "harm: exit code 3")
	weir(t, "", "verify", "--load", "1s", "--store", url, "--ledger", ledger).want(t, exitConfig, "file exists")
	text, err := os.ReadFile(ledger)
	if err != nil || !strings.Contains(string(text), "done to it") {
		t.Fatalf("%v: the history has no output of the command", err)
	}

	var answer struct {
		Clean     bool
		Protocols []struct {
			Protocol    string
			Acked, Lost int
		}
	}
	read := func(code int) {
		t.Helper()
		r := weir(t, "", "verify", "--load-history", ledger, "--output", "json")
		if err := json.Unmarshal([]byte(r.out), &answer); err != nil || r.code != code {
			t.Fatalf("exit code %d, %v: %s", r.code, err, r.out)
		}
	}
	if read(exitOK); !answer.Clean || answer.Protocols[0].Protocol != "library" || answer.Protocols[0].Acked == 0 {
		t.Errorf("%+v", answer)
	}
	var kept []string // without what the audit found
	for _, line := range strings.SplitAfter(string(text), "\n") {
		if !strings.Contains(line, `"got"`) || !strings.Contains(line, `"audit-1"`) {
			kept = append(kept, line)
		}
	}
	if err := os.WriteFile(ledger, []byte(strings.Join(kept, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if read(exitFailed); answer.Clean || answer.Protocols[0].Lost != answer.Protocols[0].Acked {
		t.Errorf("%+v", answer)
	}
	weir(t, "", "verify", "--load-history", ledger).want(t, exitFailed, "lost", "promises were broken", "was acknowledged, and group audit-1 did not get it")
	if err := os.WriteFile(ledger, []byte(strings.Join(kept[:len(kept)/2], "")), 0o600); err != nil {
		t.Fatal(err)
	}
	weir(t, "", "verify", "--load-history", ledger).want(t, exitUnfinished, "not known whether anything was lost")
	weir(t, "", "verify", "--load-history", url).want(t, exitUnfinished, "no such file")
}
