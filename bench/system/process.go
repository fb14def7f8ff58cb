package system

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Process is a server that runs beside the benchmark. Its output is in a file.
type Process struct {
	dir, address, name string
	args               []string
	cmd                *exec.Cmd
	log                string
	ended              chan struct{}
}

// startWait bounds how long a server may take until it answers.
const startWait = 2 * time.Minute

// StartProcess starts a program, and waits until it takes connections at an address.
func StartProcess(ctx context.Context, dir, address, name string, args ...string) (*Process, error) {
	p := &Process{dir: dir, address: address, name: name, args: args, log: filepath.Join(dir, filepath.Base(name)+".log")}
	return p, p.run(ctx)
}

func (p *Process) run(ctx context.Context) error {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd, ended := exec.Command(p.name, p.args...), make(chan struct{})
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // nothing stays behind
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.ended = cmd, ended
	go func() {
		_ = cmd.Wait() // stop tells how it ended
		close(ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for {
		conn, err := net.DialTimeout("tcp", p.address, time.Second)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ended:
			return fmt.Errorf("%s ended: %s", p.name, p.tail())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s does not answer at %s: %s", p.name, p.address, p.tail()), p.Stop())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// faults are kill -9, and SIGSTOP.
func (p *Process) faults() Faults {
	return Faults{
		Kill: func() (func() error, error) {
			err := p.cmd.Process.Kill()
			<-p.ended
			return func() error { return p.run(context.Background()) }, err
		},
		Pause: func() (func(), error) {
			err := p.cmd.Process.Signal(syscall.SIGSTOP)
			return func() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }, err
		},
	}
}

// tail returns the last of what the process said.
func (p *Process) tail() string {
	text, _ := os.ReadFile(p.log)
	return string(text[max(0, len(text)-2000):])
}

// Stop ends the process as an operator does.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
		return nil
	case <-time.After(closeWait):
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
	return fmt.Errorf("%s did not stop within %v", p.cmd.Path, closeWait)
}
