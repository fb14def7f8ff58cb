package proctest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// HeldBack returns a file for the flag -overlay of the go command: sources of a weir in which an
// open transaction holds back the newest two records of each partition that has the offsets [0, 5).
// A test that builds it sees who reads beyond eventlog.Bounds.Stable.
func HeldBack(t testing.TB) (overlay string) {
	t.Helper()
	const (
		stable = "func (b Bounds) Stable() Offset { return b.Next }"
		held   = "func (b Bounds) Stable() Offset { if b.First == 0 && b.Next == 5 { return 3 }; return b.Next }"
	)
	source := above(t, "eventlog/store.go")
	text, err := os.ReadFile(source)
	if err != nil || strings.Count(string(text), stable) != 1 {
		t.Fatalf("%s does not have %q once: %v", source, stable, err)
	}
	changed := filepath.Join(t.TempDir(), "store.go")
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed}})
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(t.TempDir(), "overlay.json")
	for file, content := range map[string]string{changed: strings.Replace(string(text), stable, held, 1), overlay: string(replaced)} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}

// above returns the absolute path of a file that is below this directory or one above it.
func above(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if path := filepath.Join(dir, name); dir == filepath.Dir(dir) {
			t.Fatalf("%s is in no directory above", name)
		} else if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Fatal(err)
	return ""
}
