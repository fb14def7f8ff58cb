package tour

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/proctest"
)

const clientsPage = "../../docs/clients.md"

// language is one in which the page shows programs.
type language struct {
	name, block string                            // its section, and how its blocks are marked
	libraries   string                            // names the directory of its libraries: which they are
	fetch       func(dir string) [][]string       // the commands that put its libraries there
	run         func(libs, file string) *exec.Cmd // the command that runs a file
	file        string                            // the name of a file
	end         string                            // what the page shows once for all programs
}

func languages(t *testing.T) []language {
	command := exec.Command
	return []language{
		{
			name: "Python", block: "python", file: "program.py", libraries: "python-confluent-kafka-2.12.1",
			fetch: func(dir string) [][]string {
				return [][]string{{"python3", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", dir, "confluent-kafka==2.12.1", "psycopg[binary]==3.2.12", "requests==2.32.5"}}
			},
			run: func(libs, file string) *exec.Cmd {
				cmd := command("python3", file)
				cmd.Env = append(os.Environ(), "PYTHONPATH="+libs)
				return cmd
			},
		},
		{
			name: "TypeScript", block: "ts", file: "program.mts", libraries: "node-kafkajs-2.2.4",
			fetch: func(dir string) [][]string {
				return [][]string{{"npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", dir, "kafkajs@2.2.4", "pg@8.16.3", "tsx@4.20.6"}}
			},
			run: func(libs, file string) *exec.Cmd {
				modules := filepath.Join(libs, "node_modules") // which it looks for beside the program
				if err := os.Symlink(modules, filepath.Join(filepath.Dir(file), "node_modules")); err != nil {
					t.Fatal(err)
				}
				cmd := command(filepath.Join(modules, ".bin", "tsx"), file)
				cmd.Env = append(os.Environ(), "KAFKAJS_NO_PARTITIONER_WARNING=1")
				return cmd
			},
		},
		{
			name: "Java", block: "java", file: "Program.java", libraries: "java-kafka-clients-4.1.0",
			fetch: func(dir string) [][]string {
				copy := func(artifact string) []string {
					return []string{"mvn", "-q", "-B", "dependency:copy", "-DoutputDirectory=" + dir, "-Dartifact=" + artifact}
				}
				return [][]string{copy("org.apache.kafka:kafka-clients:4.1.0"), copy("org.postgresql:postgresql:42.7.8"), copy("org.slf4j:slf4j-api:1.7.36")}
			},
			run: func(libs, file string) *exec.Cmd { return command("java", "-cp", filepath.Join(libs, "*"), file) },
		},
		{
			name: "Go", block: "go", file: "program.go", end: "\n" + blocks(t, clientsPage, "### Go", "go")[3] + "\n",
			run: func(_, file string) *exec.Cmd { return command("go", "run", file) },
		},
	}
}

// Each program is run as the page shows it, after what the page says that they need.
func TestTheProgramsOfAllLanguages(t *testing.T) {
	prints := []string{"ann: order 1\nann: order 2\nann: order 3\n", "mail for purchase 42\n", "the stream is at version 2\nthe balance is 70\n"}
	for _, l := range languages(t) {
		t.Run(l.name, func(t *testing.T) {
			libs := l.have(t)
			addresses, err := proctest.FreeAddresses(2)
			if err != nil {
				t.Fatal(err)
			}
			kafka, http, database := addresses[0], addresses[1], pgtest.URL(t)
			there := strings.NewReplacer(kafkaAddress, kafka, httpAddress, http, "jdbc:postgresql://localhost/postgres", jdbc(t, database), "postgres://localhost/postgres", database)
			sh := startShell(t, nil, "WEIR_KAFKA="+kafka, "WEIR_HTTP="+http, "WEIR_SERVER=http://"+http)
			serve, rest, _ := strings.Cut(there.Replace(blocks(t, clientsPage, "### What they need", "sh")[0]), " &\n")
			sh.run(serve + " > weir.log 2>&1 &")
			for _, command := range []string{"curl -s --retry 30 --retry-delay 1 --retry-connrefused http://" + http + "/readyz", "set -e\n" + rest} {
				if out, code := sh.run(command); code != 0 {
					t.Fatalf("$ %s\n%s", command, out)
				}
			}
			programs := blocks(t, clientsPage, "### "+l.name, l.block)
			for i, want := range prints {
				file := filepath.Join(t.TempDir(), l.file)
				if err := os.WriteFile(file, []byte(there.Replace(programs[i])+"\n"+l.end), 0o600); err != nil {
					t.Fatal(err)
				}
				cmd := l.run(libs, file)
				var said strings.Builder
				cmd.Stderr = &said
				out, err := cmd.Output()
				if string(out) != want || err != nil {
					t.Errorf("program %d printed %q, not %q: %v\n%s", i+1, out, want, err, said.String())
				}
			}
		})
	}
}

// have returns the directory of a language's libraries, which it fetches if they are not there. The
// test is skipped where they cannot be had.
func (l language) have(t *testing.T) string {
	t.Helper()
	if l.fetch == nil {
		return ""
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "weir-test", "clients-"+l.libraries)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	half, err := os.MkdirTemp(filepath.Dir(dir), "clients-half-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(half)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, command := range l.fetch(half) {
		if out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("the libraries for %s cannot be fetched here: %s: %v\n%s", l.name, strings.Join(command, " "), err, out)
		}
	}
	if err := os.Rename(half, dir); err != nil {
		if _, there := os.Stat(dir); there != nil { // another process was not quicker
			t.Fatal(err)
		}
	}
	return dir
}

// jdbc returns the address of a database as Java's drivers take it.
func jdbc(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	return fmt.Sprintf("jdbc:postgresql://%s%s?user=%s&password=%s", u.Host, u.Path, u.User.Username(), url.QueryEscape(password))
}
