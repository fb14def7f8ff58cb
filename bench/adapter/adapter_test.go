package adapter_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/bench/adapter"
)

const all = 30

// example returns the command of an example, or skips where its language is missing.
func example(t *testing.T, program, file string) []string {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%v: the example in its language is not tested here", err)
	}
	path, err := filepath.Abs(filepath.Join("../examples", file))
	if err != nil {
		t.Fatal(err)
	}
	return []string{program, path}
}

func check(t *testing.T, command []string, only ...string) (adapter.Result, string) {
	t.Helper()
	var out bytes.Buffer
	r, err := adapter.Run(t.Context(), adapter.Options{Command: command, Dir: t.TempDir(), Only: only}, &out)
	if err != nil {
		t.Fatal(err)
	}
	return r, out.String()
}

func TestTheExamplesHoldAllChecks(t *testing.T) {
	if n := len(adapter.All()); n != all {
		t.Fatalf("there are %d checks", n)
	}
	for program, file := range map[string]string{"python3": "adapter.py", "node": "adapter.js"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			command := example(t, program, file)
			text, err := os.ReadFile(command[1])
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(text, []byte("\n")); n > 100 {
				t.Errorf("it has %d lines; it is to show that a hundred do", n)
			}
			if r, said := check(t, command); len(r.Held) != all {
				t.Errorf("%d hold:\n%s", len(r.Held), said)
			}
		})
	}
}

// broken are faults in the Python example, and the check that each must fail at.
var broken = []struct{ check, was, is string }{
	{"hello", `{"name": "SQLite " + sqlite3.sqlite_version, `, `{`},
	{"unknown-op", `say(id=r["id"], ok=0, err=repr(e))`, `say(id=r["id"], ok=1)`},
	{"many-at-once", `if r["op"] in goes_on:`, `if r["op"] == "publish": say(id=r["id"], ok=1)` + "\n        if r[\"op\"] in goes_on:"},
	{"ends", `for line in sys.stdin:`, "import itertools, time\nfor line in itertools.chain(sys.stdin, iter(lambda: time.sleep(60) or '{}', None)):"},
	{"log-delivers", `for e in r["events"]]`, `for e in r["events"] if not e["value"].endswith("Mg==")]`},
	{"log-once", `for last, *row in rows:`, "for last, *row in rows:\n            if last == 7: say(id=r[\"id\"], **dict(zip((\"got\", \"stream\", \"version\"), row)))"},
	{"log-order", `for e in r["events"]]`, `for e in reversed(r["events"])]`},
	{"log-members", `.Thread(target=goes_on[r["op"]], args=[r], daemon=True) for _ in range(r.get("workers", 1))`, `.Thread(target=goes_on[r["op"]], args=[r], daemon=True) for _ in range(r.get("workers", r.get("members", 1)))`},
	{"log-groups", `    last = 0` + "\n", `    last = select("SELECT max(id) FROM events")[0][0] or 0` + "\n"},
	{"log-topics", `FROM events WHERE topic = ?", r["from"])`, `FROM events WHERE topic <> ?", "")`},
	{"log-bytes", `(r["to"], e["value"])`, `(r["to"], e["value"][:9000])`},
	{"log-stop", `        threads = running.pop(r["of"])`, `        threads = []`},
	{"log-kept", `"adapter.db")`, `"%d.db" % os.getpid())`},
	{"queue-delivers", `for v in r["values"]]),` + "\n" + `    "left"`, `for v in r["values"][:4]]),` + "\n" + `    "left"`},
	{"queue-once", `        claimed.update(id for id, _ in mine)` + "\n", ``},
	{"queue-acks", `            say(id=r["id"], acked=value)`, `            pass`},
	{"queue-workers", `[: r["batch"]]`, `[: r["batch"] * 10]`},
	{"queue-left", `"SELECT count(*) FROM messages WHERE queue = ?"`, `"SELECT min(count(*), 5) FROM messages WHERE queue = ?"`},
	{"queue-queues", `FROM messages WHERE queue = ? ORDER BY`, `FROM messages WHERE queue <> '' || substr(?, 1, 0) ORDER BY`},
	{"queue-bytes", `[(r["to"], v) for v in r["values"]]),` + "\n" + `    "left"`, `[(r["to"], v.replace("+", "/")) for v in r["values"]]),` + "\n" + `    "left"`},
	{"queue-stop", `        threads = running.pop(r["of"])`, `        threads = []`},
	{"queue-kept", `insert("DELETE FROM messages WHERE id = ?"`, `insert("UPDATE messages SET value = value WHERE id = ?"`},
	{"stream-version", `return {"version": at + len(r["values"])}`, `return {"version": at + 1}`},
	{"stream-any", `not in (-1, at)`, `!= at`},
	{"stream-conflict", `"conflict": at}`, `"conflict": at + 1}`},
	{"stream-nothing", `        return {"ok": 0, "conflict": at}`, `        insert("INSERT INTO facts (stream, version, value) VALUES (?, ?, ?)", [(r["to"], at, r["values"][0])])` + "\n" + `        return {"ok": 0, "conflict": at}`},
	{"stream-race", `not in (-1, at)`, `> at`},
	{"stream-read", `version >= ?`, `version > ?`},
	{"stream-kept", `"adapter.db")`, `"%d.db" % os.getpid())`},
	{"follow", `FROM facts WHERE true"`, `FROM facts WHERE version <> 3"`},
}

func TestEachCheckSeesAnAdapterThatBreaksIt(t *testing.T) {
	command := example(t, "python3", "adapter.py")
	text, err := os.ReadFile(command[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range adapter.All() {
		if !slices.ContainsFunc(broken, func(b struct{ check, was, is string }) bool { return b.check == c.Name }) {
			t.Errorf("no adapter breaks %s", c.Name)
		}
	}
	for _, b := range broken {
		t.Run(b.check, func(t *testing.T) {
			t.Parallel()
			if strings.Count(string(text), b.was) != 1 {
				t.Fatalf("the example has %q %d times", b.was, strings.Count(string(text), b.was))
			}
			file := filepath.Join(t.TempDir(), "broken.py")
			if err := os.WriteFile(file, []byte(strings.Replace(string(text), b.was, b.is, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			r, said := check(t, []string{command[0], file}, b.check)
			if !slices.Equal(r.Failed, []string{b.check}) {
				t.Errorf("it holds:\n%s", said)
			}
			t.Log(said)
		})
	}
}

func TestACommandThatIsNoAdapterIsToldSo(t *testing.T) {
	r, said := check(t, []string{"true"})
	if !slices.Equal(r.Failed, []string{"hello"}) || !strings.Contains(said, "the adapter ended") {
		t.Errorf("%v: %s", r, said)
	}
}
