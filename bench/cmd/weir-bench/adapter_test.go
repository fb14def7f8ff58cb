package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// parse reads a command line as main does.
func parse(t *testing.T, args ...string) (*commands, error) {
	t.Helper()
	var c commands
	p, err := kong.New(&c, kong.Vars{"version": version})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Parse(args)
	return &c, err
}

// parsed is a command line that can be read.
func parsed(t *testing.T, args ...string) *commands {
	t.Helper()
	c, err := parse(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAnUnknownFlagIsNoCommand(t *testing.T) {
	if c, err := parse(t, "adapter", "check", "--olny", "hello", "--", "node"); err == nil {
		t.Errorf("the command is %v", c.Adapter.Check.Command)
	}
}

func TestAFlagAfterTheCommandIsNotTakenForOneBefore(t *testing.T) {
	for _, c := range []struct {
		args          string
		command, only string
		told, refused bool
	}{
		{args: "-- node x.mjs", command: "node x.mjs"},
		{args: "node x.mjs --fast", command: "node x.mjs --fast"},
		{args: "--only hello -- node x.mjs", command: "node x.mjs", only: "hello"},
		{args: "--only hello node x.mjs", command: "node x.mjs", only: "hello"},
		{args: "node x.mjs --only hello", refused: true},
		{args: "node x.mjs --only=hello", refused: true},
		{args: "-- node x.mjs --only hello", command: "node x.mjs --only hello", told: true},
		{args: "--", refused: true},
	} {
		check := parsed(t, append([]string{"adapter", "check"}, strings.Fields(c.args)...)...).Adapter.Check
		var told bytes.Buffer
		command, err := check.command(&told)
		if strings.Join(command, " ") != c.command || strings.Join(check.Only, " ") != c.only || (err != nil) != c.refused {
			t.Errorf("%s: %v, only %v, %v", c.args, command, check.Only, err)
		}
		if says := "weir-bench adapter check --only CHECK -- node"; c.told != strings.Contains(told.String(), says) || c.command == "" && strings.Contains(c.args, "node") && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: it says %q, %v", c.args, told.String(), err)
		}
	}
}

func TestACommandMayHaveACommaThatIsEscaped(t *testing.T) {
	c := parsed(t, "run", "one-event", "--systems", `null,exec:adapter 1\,2`).Run
	if p, err := c.plan(); err != nil || !slices.Equal(c.Systems, []string{"null", "exec:adapter 1,2"}) || len(p.Systems) != 2 {
		t.Error(c.Systems, err)
	}
	c = parsed(t, "run", "one-event", "--systems", "exec:adapter 1,2").Run
	if _, err := c.plan(); err == nil || !strings.Contains(err.Error(), `there is no system "2"`) || !strings.Contains(err.Error(), `splits at commas: for one in a command write \,`) {
		t.Error(err)
	}
	c = parsed(t, "run", "one-event", "--systems", "null,2").Run
	if _, err := c.plan(); err == nil || strings.Contains(err.Error(), "commas") {
		t.Error(err)
	}
}

// The lists name what people look for in them.
func TestTheListsSayOfWhichKindAndThatThereAreAdapters(t *testing.T) {
	workloads := printed(t, workloadsCmd{}.Run)
	for _, line := range []string{"p-queue            queue      ten writers", "one-event          log        fifty callers", "appends            streams    eight writers"} {
		if !strings.Contains(workloads, line) {
			t.Errorf("there is no %q in\n%s", line, workloads)
		}
	}
	systems := strings.Split(strings.TrimSpace(printed(t, (&systemsCmd{}).Run)), "\n")
	if last := systems[len(systems)-1]; !strings.HasPrefix(last, "exec:COMMAND ") || !strings.Contains(last, "docs/bench-adapter.md") {
		t.Errorf("the last line is %q", last)
	}
}

// printed is what a command prints.
func printed(t *testing.T, run func() error) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	out := os.Stdout
	os.Stdout = file
	err = run()
	os.Stdout = out
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
