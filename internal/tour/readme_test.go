package tour

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
)

// What README shows is tried as it is shown there, by somebody who has nothing yet.

const readme = "../../README.md"

// blocks returns what stands in a section of a page between fences of a kind.
func blocks(t *testing.T, page, section, kind string) (list []string) {
	t.Helper()
	for _, f := range fencesOf(t, page, section) {
		if f.kind == kind {
			list = append(list, strings.TrimSuffix(f.text, "\n"))
		}
	}
	if len(list) == 0 {
		t.Fatalf("%s has no section %q with a block of %q", page, section, kind)
	}
	return list
}

func TestTheReadmeShowsWhatHappens(t *testing.T) {
	if made, err := exec.Command("make", "-n", "-C", "../..", "run").Output(); err != nil || !strings.Contains(string(made), "\n./weir serve") {
		t.Fatalf("make run does %s: %v", made, err)
	}
	sh := stage{
		page: readme, types: true, samples: []string{"1763718000000"},
		named: []string{"./weir", "weir", "make run", "weir serve", "postgres://localhost/postgres", pgtest.URL(t), "curl -N ", "stream ", "curl ", "curl -sS ",
			"python3 handler.py", "python3 handler.py >> work.log 2>&1 & worker=$!"},
		before: map[string]func(*shell){
			"make run": func(sh *shell) {
				sh.hasTerminals()
				sh.must(`stream() { sed '/a boat/q' <(curl -sSN "$@"); }`)
			},
			"./weir queue create": func(sh *shell) { sh.must("echo 'print(input(), flush=True)' > handler.py; > work.log") },
			"./weir topic create": func(sh *shell) {
				sh.must("grep -m 1 ann@example.org <(tail --pid $worker -n +1 -f work.log)")
			},
		},
	}.replay(t)
	if err := os.WriteFile(filepath.Join(sh.dir, "settings"), []byte(blocks(t, readme, "## Install", "ini")[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	if set := sh.must("env -i sh -c 'set -a; . ./settings; env'"); strings.Count(set, "WEIR_") != 2 || strings.Count(set, "AWS_") != 2 {
		t.Errorf("the settings are\n%s", set)
	}
}

const program = `package main

import (
	"context"
	"fmt"
	"os"

	"github.com/weir-log/weir"
)

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	bill := func(_ context.Context, order []byte) error {
		fmt.Printf("billed %s\n", order)
		stop()
		return nil
	}
`

func TestTheReadmesProgram(t *testing.T) {
	dir := t.TempDir()
	snippet := strings.Replace(blocks(t, readme, "### Go, without a server", "go")[0], "sqlite:shop.db", "sqlite:"+filepath.Join(dir, "shop.db"), 1)
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, []byte(program+snippet+"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "run", file).Output()
	if err != nil || string(out) != "billed a boat\n" {
		t.Errorf("%v: it printed %q", err, out)
	}
}
