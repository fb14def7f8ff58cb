// Package tour holds the pages of docs and README to the truth: it types what a page shows into a
// shell, and compares what comes back. The census tells which test does so for which block.
package tour

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/proctest"
)

// The pages name the addresses that weir listens on by default. Here they are others, which are
// free.
const kafkaAddress, httpAddress = "127.0.0.1:9092", "127.0.0.1:8080"

func TestTheTourShowsWhatHappens(t *testing.T) {
	replay(t, "../../docs/tour.md", "handler")
}

func TestTheStreamWalkShowsWhatHappens(t *testing.T) {
	replay(t, "../../docs/streams.md", "accounts")
}

// replay types a page that needs a database and some of the examples.
func replay(t *testing.T, page string, examples ...string) *shell {
	t.Helper()
	return stage{page: page, examples: examples, env: []string{"DATABASE=" + pgtest.URL(t)}}.replay(t)
}

// stage is a page, and what it is replayed on.
type stage struct {
	page     string
	section  string            // only this section: its heading, with its marks
	examples []string          // that are in the PATH
	env      []string          // beside the addresses of weir
	named    []string          // what the page names, and what is here in its place, in turns
	links    map[string]string // what a reader has in the directory, by name
	saves    bool              // the reader saves the programs of the page
	samples  []string          // what the page shows as an example: anything may stand there, as for …
	types    bool              // the blocks of sh, too, of which only the end is compared
	feeds    string            // a command that reads the blocks of sql, whose answers are compared

	// taken is what the page shows of a value that weir makes. Anything may be printed there, and
	// the commands that follow have what was printed last, as a reader takes it over.
	taken []string

	// before is what happens before a command, by how the page's command begins: what the page
	// takes for granted, and the trouble that it is about.
	before map[string]func(sh *shell)
}

// replay types the commands of a page, each after the one before it ended, and compares what they
// print with what the page shows. If the test fails, it logs the files that the commands have left.
func (s stage) replay(t *testing.T) *shell {
	t.Helper()
	text, err := os.ReadFile(s.page)
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	for _, f := range fencesOf(t, s.page, s.section) {
		switch {
		case f.kind == "console":
			steps = append(steps, transcript(f)...)
		case f.kind == "sh" && s.types:
			steps = append(steps, step{line: f.line + 1, command: "set -e\n" + f.text + "set +e", same: anything})
		case f.kind == "sql" && s.feeds != "":
			steps = append(steps, step{line: f.line + 1, command: f.text, output: answers(f), feeds: s.feeds, same: hasLines})
		}
	}
	if len(steps) < 3 && s.section == "" || len(steps) == 0 {
		t.Fatalf("%s %s has %d commands: a tour is longer, or its blocks are not marked ```console", s.page, s.section, len(steps))
	}
	var differs []string
	for _, sample := range s.samples {
		differs = append(differs, sample, "…")
	}
	shown := strings.NewReplacer(differs...)
	sh, there, back := s.start(t)
	for name, to := range s.links {
		if err := os.Symlink(to, filepath.Join(sh.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if s.saves {
		for name, program := range programsOf(t, s.page, string(text)) {
			if err := os.WriteFile(filepath.Join(sh.dir, name), []byte(there.Replace(program)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	before, took := maps.Clone(s.before), map[string]string{}
	for _, step := range steps {
		for begins, happens := range before {
			if strings.HasPrefix(strings.TrimPrefix(step.command, "set -e\n"), begins) {
				delete(before, begins)
				happens(sh)
			}
		}
		command := step.command
		for name, value := range took {
			command = strings.ReplaceAll(command, name, value)
		}
		if command = there.Replace(command); step.feeds != "" {
			command = step.feeds + " <<'END'\n" + command + "END"
		}
		out, code := sh.run(command)
		out = back.Replace(out)
		want := shown.Replace(step.output)
		values, same := compare(out, want, s.taken)
		maps.Copy(took, values)
		if step.same != nil {
			same = step.same(out, want)
		}
		if code != 0 || !same {
			t.Fatalf("%s line %d: $ %s\n--- the page shows\n%s\n--- and what happened, with exit code %d, is\n%s",
				s.page, step.line, step.command, step.output, code, out)
		}
	}
	for begins := range before {
		t.Errorf("%s %s has no command that begins with %s", s.page, s.section, begins)
	}
	return sh
}

// start starts a shell with addresses for weir that are free. The first replacer writes what is
// here in the place of what the page names, and the second writes the page's addresses.
func (s stage) start(t *testing.T) (sh *shell, there, back *strings.Replacer) {
	t.Helper()
	addresses, err := proctest.FreeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	kafka, http := addresses[0], addresses[1]
	sh = startShell(t, s.examples, append([]string{"WEIR_KAFKA=" + kafka, "WEIR_HTTP=" + http, "WEIR_BOOTSTRAP=" + kafka, "WEIR_SERVER=http://" + http}, s.env...)...)
	t.Cleanup(func() {
		if t.Failed() {
			sh.logFiles()
		}
	})
	there = strings.NewReplacer(append([]string{kafkaAddress, kafka, httpAddress, http}, s.named...)...)
	return sh, there, strings.NewReplacer(kafka, kafkaAddress, http, httpAddress)
}

var namedProgram = regexp.MustCompile("(?ms)^`([a-z]+\\.[a-z]+)`[^\n]*:\n\n```[a-z]+\n(.*?)^```$")

// programsOf returns the programs of a page that have a name: the line above begins with it.
func programsOf(t *testing.T, page, text string) map[string]string {
	t.Helper()
	programs := make(map[string]string)
	for _, m := range namedProgram.FindAllStringSubmatch(text, -1) {
		programs[m[1]] = m[2]
	}
	if len(programs) == 0 {
		t.Fatalf("%s has no program with a name", page)
	}
	return programs
}

// step is a command and what it prints.
type step struct {
	line            int
	command, output string
	feeds           string                      // what reads the command; empty: the shell
	same            func(got, want string) bool // nil: as matches, and what is taken is noted
}

// anything accepts whatever was printed: the page does not show it.
func anything(string, string) bool { return true }

var answer = regexp.MustCompile(`;[ \t]+-- ([^;\n]*)`)

// answers returns the lines that the comments behind the statements of a block show, up to a
// semicolon.
func answers(f fence) (lines string) {
	for _, found := range answer.FindAllStringSubmatch(f.text, -1) {
		lines += found[1] + "\n"
	}
	return lines
}

// transcript takes a block marked console apart: "$ " begins a command, "> " goes on with it, and
// the rest is what it prints.
func transcript(f fence) (steps []step) {
	for i, line := range strings.Split(strings.TrimSuffix(f.text, "\n"), "\n") {
		last := len(steps) - 1
		switch {
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, step{line: f.line + i + 1, command: line[2:]})
		case strings.HasPrefix(line, "> "), line == ">":
			steps[last].command += "\n" + strings.TrimPrefix(line[1:], " ")
		default:
			steps[last].output += line + "\n"
		}
	}
	return steps
}

// matches compares what was printed with what the page shows, where … stands for anything within a
// line. Blank lines, and blanks at the end of a line, are not compared.
func matches(got, want string) bool {
	_, same := compare(got, want, nil)
	return same
}

// compare returns what was printed in the place of each of some names, too.
func compare(got, want string, names []string) (values map[string]string, same bool) {
	pattern := regexp.QuoteMeta(squeeze(want))
	for i, name := range names {
		name = regexp.QuoteMeta(name)
		pattern = strings.Replace(pattern, name, fmt.Sprintf(`(?P<n%d>[^\n]+?)`, i), 1)
		pattern = strings.ReplaceAll(pattern, name, "…")
	}
	shown := regexp.MustCompile(`^` + strings.ReplaceAll(pattern, "…", `[^\n]*`) + `$`)
	found := shown.FindStringSubmatch(squeeze(got))
	values = make(map[string]string)
	for i, name := range names {
		if at := shown.SubexpIndex(fmt.Sprintf("n%d", i)); at > 0 && found != nil {
			values[name] = found[at]
		}
	}
	return values, found != nil
}

// hasLines says whether each line that the page shows was printed, in whatever order.
func hasLines(got, want string) bool {
	lines := strings.Split(got, "\n")
	for line := range strings.Lines(want) {
		if !slices.ContainsFunc(lines, func(got string) bool { return matches(got, line) }) {
			return false
		}
	}
	return true
}

func squeeze(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \t\r\n"); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func TestComparingTellsSameFromOther(t *testing.T) {
	for _, c := range []struct {
		got, want string
		same      bool
	}{
		{"a\n", "a", true},
		{"a  \n\nb\n", "a\nb\n", true},
		{"at 17:03 (x)\n", "at … (x)\n", true},
		{"at 17:03\nb\n", "at …\n", false},
		{"ab\n", "a\n", false},
		{"", "a\n", false},
		{"a\n", "", false},
	} {
		if matches(c.got, c.want) != c.same {
			t.Errorf("%q for %q: same is %v", c.got, c.want, !c.same)
		}
	}
}

// shell is a bash that runs one command after the other, as one session.
type shell struct {
	t      *testing.T
	dir    string
	in     io.Writer
	out    *bufio.Reader
	number int
}

// startShell starts a bash in a directory of its own, with weir and some of the examples in its
// PATH. It, and all it started, ends with the test.
func startShell(t *testing.T, examples []string, env ...string) *shell {
	t.Helper()
	bin := t.TempDir()
	packages := []string{"github.com/weir-log/weir/cmd/weir"}
	for _, name := range examples {
		packages = append(packages, "github.com/weir-log/weir/examples/"+name)
	}
	build := exec.Command("go", append([]string{"build", "-o", bin + "/"}, packages...)...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %v: %v\n%s", packages, err, out)
	}
	path := bin
	for _, name := range []string{"psql", "curl", "jq"} {
		program, err := pgtest.Program(name)
		if err != nil {
			t.Fatal(err)
		}
		path += ":" + filepath.Dir(program)
	}
	s := &shell{t: t, dir: t.TempDir()}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	cmd := exec.CommandContext(ctx, "bash", "--norc")
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), append(env, "PATH="+path+":"+os.Getenv("PATH"), "LC_ALL=C.UTF-8", "PSQLRC=", "PAGER=cat")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	all := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = all
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, back, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = back, back
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	back.Close()
	s.in, s.out = in, bufio.NewReader(out)
	t.Cleanup(func() {
		_ = all()
		_ = cmd.Wait()
		cancel()
		out.Close()
	})
	return s
}

// run types a command, and returns what it printed until the shell took the next one.
func (s *shell) run(command string) (out string, code int) {
	s.t.Helper()
	s.number++
	script := filepath.Join(s.dir, fmt.Sprintf("step-%d", s.number))
	if err := os.WriteFile(script, []byte(command+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	// From a file, and with nothing to read: a command that reads its input must not take the next
	// command for it.
	mark := fmt.Sprintf("-- step %d ended with ", s.number)
	if _, err := fmt.Fprintf(s.in, "source %s </dev/null; printf '\\n%s%%d\\n' $?\n", script, mark); err != nil {
		s.t.Fatal(err)
	}
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("$ %s\nprinted %q, and then the shell was gone, or its time was over: %v", command, out+line, err)
		}
		if _, err := fmt.Sscanf(line, mark+"%d\n", &code); err == nil {
			return out, code
		}
		out += line
	}
}

// must is run for a command that has to succeed.
func (s *shell) must(command string) (out string) {
	s.t.Helper()
	out, code := s.run(command)
	if code != 0 {
		s.t.Fatalf("$ %s\nended with %d, and printed\n%s", command, code, out)
	}
	return out
}

// has puts programs into the shell's PATH.
func (s *shell) has(names ...string) {
	s.t.Helper()
	for _, name := range names {
		program, err := pgtest.Program(name)
		if err != nil {
			s.t.Fatal(err)
		}
		s.must(`PATH="$PATH:` + filepath.Dir(program) + `"`)
	}
}

// hasTerminals has weir serve of a page run beside what follows, until the page's next one. The
// reader of the page has a terminal for it.
func (s *shell) hasTerminals() {
	s.t.Helper()
	s.must(`weir() {
		[ "$1" = serve ] || { command weir "$@"; return; }
		[ -z "$weir" ] || ! kill $weir || wait $weir || true
		> weir.log
		command weir "$@" >> weir.log 2>&1 & weir=$!
		grep -m 1 'weir is ready\|"listening"' <(tail --pid $weir -n +1 -f weir.log)
	}`)
}

// logFiles logs what the commands have written into the shell's directory.
func (s *shell) logFiles() {
	files, _ := filepath.Glob(filepath.Join(s.dir, "*"))
	for _, file := range files {
		if name := filepath.Base(file); !strings.HasPrefix(name, "step-") {
			if text, err := os.ReadFile(file); err == nil && utf8.Valid(text) && !bytes.ContainsRune(text, 0) {
				s.t.Logf("--- %s\n%s", name, text)
			}
		}
	}
}
