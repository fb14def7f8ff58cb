// Package tour holds docs/tour.md, docs/queue.md, docs/streams.md, the pages for who begins and the
// commands for operators to the truth: it types what a page shows into a shell, and compares what
// comes back.
package tour

import (
	"bufio"
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
	feeds    map[string]string // for a kind of blocks, beside console: the command that reads such a block

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
	steps := transcript(sectionOf(string(text), s.section), slices.Collect(maps.Keys(s.feeds))...)
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
	before := maps.Clone(s.before)
	for _, step := range steps {
		for begins, happens := range before {
			if strings.HasPrefix(step.command, begins) {
				delete(before, begins)
				happens(sh)
			}
		}
		command, same := there.Replace(step.command), matches
		if feed, fed := s.feeds[step.kind]; fed {
			command, same = feed+" <<'END'\n"+command+"END", hasLines
		}
		out, code := sh.run(command)
		out = back.Replace(out)
		if code != 0 || !same(out, shown.Replace(step.output)) {
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

// sectionOf returns a page with all lines empty that are not in a section, so that the others keep
// their numbers. The section ends at the next heading. "" is the whole page.
func sectionOf(text, heading string) string {
	if heading == "" {
		return text
	}
	fenced, inside := false, false
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		} else if strings.HasPrefix(line, "#") && !fenced {
			inside = line == heading
		}
		if !inside {
			lines[i] = ""
		}
	}
	return strings.Join(lines, "\n")
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

// step is a command and what it prints. Or it is a whole block of another kind, and the output has
// the lines that the comments behind its statements show, up to a semicolon.
type step struct {
	line            int
	kind            string
	command, output string
}

var answer = regexp.MustCompile(`;[ \t]+-- ([^;\n]*)`)

// transcript takes the blocks marked console apart: "$ " begins a command, "> " goes on with it,
// and the rest is what it prints. A block of one of the other kinds is one step.
func transcript(text string, others ...string) (steps []step) {
	for _, f := range fencesIn(text) {
		if slices.Contains(others, f.kind) {
			s := step{line: f.line, kind: f.kind, command: f.text}
			for _, found := range answer.FindAllStringSubmatch(f.text, -1) {
				s.output += found[1] + "\n"
			}
			steps = append(steps, s)
		}
		if f.kind != "console" {
			continue
		}
		line := f.line
		for text := range strings.Lines(f.text) {
			line++
			switch last := len(steps) - 1; {
			case strings.HasPrefix(text, "$ "):
				steps = append(steps, step{line: line, command: strings.TrimSuffix(text[2:], "\n")})
			case strings.HasPrefix(text, "> "), text == ">\n":
				steps[last].command += "\n" + strings.TrimPrefix(strings.TrimSuffix(text[1:], "\n"), " ")
			default:
				steps[last].output += text
			}
		}
	}
	return steps
}

// matches compares what was printed with what the page shows, where … stands for anything within a
// line. Blank lines, and blanks at the end of a line, are not compared.
func matches(got, want string) bool {
	pattern := regexp.QuoteMeta(squeeze(want))
	return regexp.MustCompile(`^` + strings.ReplaceAll(pattern, "…", `[^\n]*`) + `$`).MatchString(squeeze(got))
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

// logFiles logs what the commands have written into the shell's directory.
func (s *shell) logFiles() {
	files, _ := filepath.Glob(filepath.Join(s.dir, "*"))
	for _, file := range files {
		if name := filepath.Base(file); !strings.HasPrefix(name, "step-") {
			if text, err := os.ReadFile(file); err == nil && utf8.Valid(text) {
				s.t.Logf("--- %s\n%s", name, text)
			}
		}
	}
}
