// Package proctest gives tests processes of their own, which they can kill: the test's own program,
// with a job in its environment.
package proctest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// jobVariable tells a process that it was made by Start, and for what.
const jobVariable = "WEIR_TEST_JOB"

// Work belongs at the start of TestMain. In a process that Start made it does the job and ends the
// process; in any other it returns.
func Work(do func(job string) error) {
	job, is := os.LookupEnv(jobVariable)
	if !is {
		return
	}
	go func() { // the parent holds the other end: when it is gone there is nobody to work for
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	if err := do(job); err != nil {
		fmt.Fprintf(os.Stderr, "job %s: %v\n", job, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Process is a process with a job.
type Process struct {
	// Lines receives the lines that the process writes to standard output. It is closed after the
	// last complete line, also after a Kill. A process that has written some kilobytes waits until
	// they are read.
	Lines <-chan string

	cmd  *exec.Cmd
	wait func() error
}

// Start starts a process, which is killed when the test ends, if it still lives. Its standard error
// is the test's output.
func Start(t testing.TB, job string) *Process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), jobVariable+"="+job)
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatalf("start a process for %s: %v", job, err)
	}
	said, stdout, err := os.Pipe() // not StdoutPipe: Wait would close it while it still has lines
	if err != nil {
		t.Fatalf("start a process for %s: %v", job, err)
	}
	cmd.Stdout = stdout
	err = cmd.Start()
	stdout.Close()
	if err != nil {
		t.Fatalf("start a process for %s: %v", job, err)
	}
	lines, over := make(chan string), make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(lines)
		for from := bufio.NewReader(said); ; {
			line, err := from.ReadString('\n')
			if err != nil {
				return
			}
			select {
			case lines <- strings.TrimSuffix(line, "\n"):
			case <-over:
				return
			}
		}
	})
	p := &Process{Lines: lines, cmd: cmd, wait: sync.OnceValue(cmd.Wait)}
	t.Cleanup(func() {
		stdin.Close()
		p.Kill()
		close(over)
		said.Close()
		reading.Wait()
	})
	return p
}

// Kill is kill -9, and waits until the process is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.wait()
}

// Wait waits until the process has ended by itself, and returns an error if it did not do its job.
func (p *Process) Wait() error { return p.wait() }
