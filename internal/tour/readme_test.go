package tour

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/proctest"
)

// Each door that README shows is tried as it is shown there, by somebody who has nothing yet.

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

func TestTheReadmesDoors(t *testing.T) {
	for _, c := range []struct{ name, section, serve string }{
		{"HTTP", "### HTTP", "weir serve"},
		{"SQL", "### SQL, inside your own transaction (PostgreSQL)", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			addresses, err := proctest.FreeAddresses(2)
			if err != nil {
				t.Fatal(err)
			}
			kafka, http, database := addresses[0], addresses[1], pgtest.URL(t)
			sh := startShell(t, nil, "WEIR_KAFKA="+kafka, "WEIR_HTTP="+http, "WEIR_BOOTSTRAP="+kafka)
			there := strings.NewReplacer("./weir", "weir", kafkaAddress, kafka, httpAddress, http, "postgres://localhost/postgres", database,
				"curl -N ", "curl -N -sS -m 3 ") // which goes on until somebody is tired of it
			list := blocks(t, readme, c.section, "sh")
			if c.serve == "" {
				c.serve, list = there.Replace(list[0]), list[1:]
			}
			sh.run(c.serve + " > weir.log 2>&1 &")
			if out, code := sh.run("curl -s --retry 30 --retry-delay 1 --retry-connrefused http://" + http + "/readyz"); code != 0 {
				t.Fatalf("weir is not ready: %s", out)
			}
			last := ""
			for _, block := range list {
				last, _ = sh.run(there.Replace(block))
			}
			if !strings.Contains(last, "a boat") || strings.Contains(last, "rror") {
				t.Errorf("it printed\n%s", last)
			}
		})
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
