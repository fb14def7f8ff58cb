package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	startMax = 60 * time.Second // until a process takes requests, on a busy machine
	stopMax  = 10 * time.Second // B3: SIGTERM to the end, while the store answers
	// exitCutOff is the exit code of a broker that ended 9 s after SIGTERM with its store still
	// open: docs/operations.md promises that for a store that does not answer, such as one of S3 to
	// which a commit was sent.
	exitCutOff = 4
)

// process is one that is killed, stopped and started anew: a broker, or a program with an embedded
// log.
type process struct {
	name    string
	w       *world
	command func() *exec.Cmd
	prepare func(*exec.Cmd) (after func(), err error) // called before each start; after is called once the process has started
	ready   func(ctx context.Context) error           // returns once it takes requests

	url   string  // by which it knows the store
	links []*link // to the shards, in their order; nil: it is a file, or the store has none

	turn sync.Mutex // held by whoever changes the process's state

	mu      sync.Mutex // guards what follows
	cmd     *exec.Cmd
	exited  chan struct{}
	leaving bool // somebody ends it
	mayEnd  bool // it may end by itself while it starts: whoever starts it judges that
	nth     int  // how often it was started
}

// id names this life of the process.
func (p *process) id() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%s.%d", p.name, p.nth)
}

func (p *process) start(ctx context.Context) error {
	cmd := p.command()
	after, err := p.prepare(cmd)
	if err != nil {
		return err
	}
	exited := make(chan struct{})
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	after()
	p.mu.Lock()
	p.cmd, p.exited, p.leaving = cmd, exited, false
	p.nth++
	p.mu.Unlock()
	p.w.history.Add(fmt.Sprintf("%s starts, process %d", p.name, cmd.Process.Pid))
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		leaving := p.leaving || p.mayEnd
		p.mu.Unlock()
		if cmd.ProcessState.ExitCode() == exitLeft {
			p.w.model.Broken("R1", []string{p.name}, "%s left something behind: %s", p.name, lastOf(p.w.logPath(p.name)))
		}
		if !leaving && p.w.running() {
			p.w.model.Broken("B0", []string{p.name}, "%s ended by itself: %v; it said: %s", p.name, err, lastOf(p.w.logPath(p.name)))
		}
		close(exited)
	}()
	ctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	if err := p.ready(ctx); err != nil {
		return fmt.Errorf("%s takes no requests within %v: %w; it said: %s", p.name, startMax, err, lastOf(p.w.logPath(p.name)))
	}
	p.w.history.Add(p.name + " is ready")
	return nil
}

// startMayEnd is start for a process that may refuse to. It returns what the process said since, if
// it does.
func (p *process) startMayEnd(ctx context.Context) (said string, err error) {
	var before int64
	if info, err := os.Stat(p.w.logPath(p.name)); err == nil {
		before = info.Size()
	}
	p.set(func() { p.mayEnd = true })
	defer p.set(func() { p.mayEnd = false })
	if err = p.start(ctx); err != nil {
		p.kill() // unless it has ended
		log, _ := os.ReadFile(p.w.logPath(p.name))
		said = string(log[min(before, int64(len(log))):])
	}
	return said, err
}

func (p *process) set(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
}

// ended says that it was started, and has ended.
func (p *process) ended() bool {
	p.mu.Lock()
	exited := p.exited
	p.mu.Unlock()
	select {
	case <-exited:
		return true
	default:
		return false
	}
}

func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(sig) // it may have ended
	}
}

// kill is kill -9, and waits until the process is gone.
func (p *process) kill() {
	p.leave(syscall.SIGKILL)
	<-p.exited
}

// stop is SIGTERM. It returns how long the process took to end; one that takes more than twice as
// long as it may is killed.
func (p *process) stop() time.Duration {
	began, begin := p.w.now(), time.Now()
	p.leave(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(2 * stopMax):
		p.kill()
	}
	if p.cmd.ProcessState.ExitCode() == exitCutOff {
		p.w.counts.add("stops that were cut off")
		if p.w.calm.between(began, p.w.now()) {
			p.w.model.Broken("B3", []string{p.name}, "%s was cut off after SIGTERM, with a store that answers; it said: %s", p.name, lastOf(p.w.logPath(p.name)))
		}
	}
	return time.Since(begin)
}

func (p *process) leave(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	p.leaving = true
	_ = p.cmd.Process.Signal(sig) // it may have ended
}

// logPath is the file with what a process said on standard error.
func (w *world) logPath(name string) string { return w.dir + "/" + name + ".log" }

// saysTo lets a process write on into its file.
func (w *world) saysTo(cmd *exec.Cmd, name string) (after func(), err error) {
	file, err := os.OpenFile(w.logPath(name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	cmd.Stderr = file
	return func() { file.Close() }, nil
}

// lastOf returns the end of a file.
func lastOf(path string) string {
	const most = 3000
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil {
		_, _ = file.Seek(max(0, info.Size()-most), io.SeekStart)
	}
	text, _ := io.ReadAll(file)
	return string(text)
}
