package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/verify/load"
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

// What clients were told over HTTP and Kafka's protocol holds when the server is killed and started
// again.
func TestALoadThroughAServerIsCleanWhileItIsKilled(t *testing.T) {
	binary := build(t)
	args := []string{"serve", "--store", "sqlite:" + filepath.Join(t.TempDir(), "weir.db")}
	server := start(t, binary, args...)
	c := verifyCmd{Store: verifyStore, loadFlags: loadFlags{Server: "http://" + server.http, Bootstrap: []string{server.kafka}, Protocol: "plaintext", Timeout: duration(20 * time.Second)}}
	protocols, closeAll, err := c.protocols(t.Context(), "load-7", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll()
	file, err := os.Create(filepath.Join(t.TempDir(), "history"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	kills, next := 3, int64(400) // a kill after so many events, when they are acknowledged
	report, remains, err := load.Run(ctx, file, protocols, load.Options{
		Run: 7, For: 24 * time.Hour, Rate: 800, Timeout: 20 * time.Second, Patience: time.Hour, Say: func(line string) { t.Log(time.Now().Format(time.TimeOnly), line) },
		Progress: func(p load.Progress) {
			defer func() {
				if t.Failed() { // the server does not start
					stop()
				}
			}()
			switch {
			case p.Written < next || ctx.Err() != nil:
				return
			case kills == 0:
				stop()
				return
			}
			_ = server.cmd.Process.Kill()
			_ = server.cmd.Wait()
			server = startAt(t, binary, server.kafka, server.http, args...)
			kills, next = kills-1, p.Written+400
		},
	})
	if err != nil || len(remains) > 0 || !report.Clean() || report.Unjudged != "" {
		t.Errorf("%v, %v, %s %s", err, remains, report.Violations(), report.Unjudged)
	}
	for _, p := range report.Protocols {
		t.Logf("%s: %d acknowledged, %d unknown, %d refused, %d delivered; stalls %.1f s and %.1f s", p.Protocol, p.Acked, p.Unknown, p.Failed, p.Delivered, p.WriteStall, p.ReadStall)
		if p.Acked == 0 {
			t.Errorf("%s acknowledged nothing", p.Protocol)
		}
	}
	if left := weir(t, "", "topic", "list", "--bootstrap", server.kafka); left.code != exitOK || strings.Contains(left.out, "load-7") {
		t.Errorf("the run left topics: %s %s", left.out, left.err)
	}
}
