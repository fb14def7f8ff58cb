package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

// blocks returns what stands between fences of a kind in a page of the manual.
func blocks(t *testing.T, page, kind string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		if m[1] == kind {
			all = append(all, m[2])
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no blocks of kind %q", page, kind)
	}
	return all
}

// Most of these commands take minutes, or need programs of others. Each is one that can be given,
// of systems and workloads that there are.
func TestTheCommandsOfThePagesCanBeGiven(t *testing.T) {
	commands := slices.Concat(blocks(t, "bench.md", "sh"), blocks(t, "bench-adapter.md", "sh"))
	dir := filepath.Join(t.TempDir(), "weir")
	if err := os.MkdirAll(filepath.Join(dir, "bench-2026-11-29T1400"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, name := range []string{"weir-bench-before", "../weir-bench-before"} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	given := 0
	for line := range strings.Lines(strings.Join(commands, "")) {
		line, _, _ = strings.Cut(line, " # ")
		_, args, weir := strings.Cut(line, "weir-bench ")
		if !weir || strings.HasPrefix(line, "git ") {
			continue
		}
		var words []string
		for _, m := range regexp.MustCompile(`'([^']*)'|(\S+)`).FindAllStringSubmatch(args, -1) {
			words = append(words, m[1]+m[2])
		}
		c := parsed(t, words...)
		for _, name := range c.Run.Workloads {
			if _, err := workload.Find(name); err != nil && profiles[name].workloads == nil {
				t.Errorf("%s: %v", line, err)
			}
		}
		for _, name := range c.Run.Systems {
			if _, err := system.Find(name); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
		given++
	}
	if given < 15 {
		t.Errorf("the pages have %d commands", given)
	}
}

func TestTheWorkloadOfThePageCanBeMeasured(t *testing.T) {
	if all, err := workload.Parse([]byte(blocks(t, "bench.md", "yaml")[0])); err != nil || len(all) != 1 || all[0].Name != "mine" {
		t.Errorf("%v: it is %v", err, all)
	}
}

// What weir-bench writes on the page is written to an adapter, which answers as on the page: word
// for word, but for what it is. It has no connection to lose.
func TestAnAdapterAnswersAsOnThePage(t *testing.T) {
	adapter := exec.CommandContext(t.Context(), "python3", "../../examples/adapter.py")
	in, err := adapter.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := adapter.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := adapter.Start(); err != nil {
		t.Skip(err)
	}
	shown := blocks(t, "bench-adapter.md", "")
	if len(shown) != 3 {
		t.Fatalf("the page has %d blocks of lines", len(shown))
	}
	said, dir := bufio.NewScanner(out), t.TempDir()
	for line := range strings.Lines(shown[1] + shown[0] + shown[2]) { // hello is the first request
		var want, got map[string]any
		if err := json.Unmarshal([]byte(line[2:]), &want); err != nil || want["id"] == nil {
			t.Fatalf("%s: %v", line, err)
		}
		switch {
		case want["id"] == 8.0: // which is lost
		case line[0] == '>':
			if _, err := io.WriteString(in, strings.Replace(line[2:], "/tmp/weir-bench-123", dir, 1)); err != nil {
				t.Fatal(err)
			}
		default:
			if said.Scan(); json.Unmarshal(said.Bytes(), &got) != nil {
				t.Fatalf("for %s it says %s", line, said.Bytes())
			}
			if want["name"] != nil {
				for _, differs := range []string{"name", "can", "settings", "order"} { // the page's has no log
					want[differs], got[differs] = nil, nil
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("it says %s, and the page %s", said.Bytes(), line)
			}
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := adapter.Wait(); err != nil {
		t.Error(err)
	}
}
