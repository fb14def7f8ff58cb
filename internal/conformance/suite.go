package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const module = "github.com/twmb/franz-go"

// suite is a copy of franz-go's source, of the version that go.mod names. The module cache itself
// is read-only.
type suite struct {
	scratch string
	dir     string // of pkg/kgo
	version string
	speaks  map[string]bool // the tests; true for those that speak to the broker
}

func fetchSuite(ctx context.Context, scratch string) (*suite, error) {
	out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", module).Output()
	if err != nil {
		return nil, fmt.Errorf("go mod download %s: %w", module, err)
	}
	var m struct{ Dir, Version string }
	if err := json.Unmarshal(out, &m); err != nil {
		return nil, fmt.Errorf("go mod download %s: %w", module, err)
	}
	root := filepath.Join(scratch, "franz-go")
	if err := os.CopyFS(root, os.DirFS(m.Dir)); err != nil {
		return nil, fmt.Errorf("copy %s: %w", m.Dir, err)
	}
	s := &suite{scratch: scratch, dir: filepath.Join(root, "pkg", "kgo"), version: m.Version}
	s.speaks, err = speakers(s.dir)
	return s, err
}

// verdict is what became of a test.
type verdict string

const (
	passed     verdict = "pass"
	failed     verdict = "fail"
	skips      verdict = "skip"
	unfinished verdict = "unfinished" // began, and never ended: the run timed out or panicked
)

// result is one run of the suite.
type result struct {
	on      string // the store, or the address of another broker
	tests   map[string]verdict
	elapsed time.Duration
}

// event is a line of go test -json.
type event struct {
	Action  string
	Test    string
	Output  string
	Elapsed float64
}

// run runs the suite against brokers that variables of its environment name. A failing test is a
// result; an error means that there is none.
func (s *suite) run(ctx context.Context, o options, on string, env ...string) (result, error) {
	args := []string{"test", "-json", "-count=1", "-timeout", o.timeout.String(), "-parallel", strconv.Itoa(o.parallel),
		"-skip", "^(" + strings.Join(skipped, "|") + ")$"}
	if o.run != "" {
		args = append(args, "-run", o.run)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, ".")...)
	cmd.Dir = s.dir
	cmd.Env = append(append(os.Environ(), "KGO_TEST_RF=1", "KGO_TEST_RECORDS="+strconv.Itoa(o.records)), env...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return result{}, err
	}
	log, err := os.Create(filepath.Join(s.scratch, "kgo-"+strings.NewReplacer(":", "-", ", ", "-", " ", "-").Replace(on)+".log"))
	if err != nil {
		return result{}, err
	}
	defer log.Close()
	r := result{on: on, tests: map[string]verdict{}}
	if err := r.read(stdout, log); err != nil {
		return result{}, err
	}
	ended := cmd.Wait()
	r.elapsed = time.Since(began).Round(time.Second)
	for _, name := range skipped {
		if o.run == "" {
			r.tests[name] = skips
		}
	}
	if len(r.tests) == 0 || ctx.Err() != nil {
		return result{}, fmt.Errorf("go test: %w\n%s", ended, complaints.Bytes())
	}
	return r, nil
}

// read reads the output of go test, writes the tests' own output to log, and prints which tests
// failed.
func (r *result) read(events io.Reader, log io.Writer) error {
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // not an event of a test, but output of the go command itself
		}
		if e.Action == "output" {
			if _, err := io.WriteString(log, e.Output); err != nil {
				return err
			}
		}
		if e.Test == "" {
			continue
		}
		switch e.Action {
		case "run":
			r.tests[e.Test] = unfinished
		case "pass", "fail", "skip":
			r.tests[e.Test] = verdict(e.Action)
		}
		if e.Action == "fail" {
			fmt.Printf("%s: %s failed after %.1f s\n", r.on, e.Test, e.Elapsed)
		}
	}
	return lines.Err()
}
