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

// process is a server that runs beside the benchmark. Its output is in a file.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

// startWait bounds how long a server may take until it answers.
const startWait = 2 * time.Minute

// start starts a program, and waits until it takes connections at an address.
func start(ctx context.Context, dir, address, name string, args ...string) (*process, error) {
	p := &process{log: filepath.Join(dir, filepath.Base(name)+".log"), ended: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = exec.Command(name, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // nothing stays behind
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // stop tells how it ended
		close(p.ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			return p, conn.Close()
		}
		select {
		case <-p.ended:
			return nil, fmt.Errorf("%s ended: %s", name, p.tail())
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%s does not answer at %s: %s", name, address, p.tail()), p.stop())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tail returns the last of what the process said.
func (p *process) tail() string {
	text, _ := os.ReadFile(p.log)
	return string(text[max(0, len(text)-2000):])
}

// stop ends the process as an operator does.
func (p *process) stop() error {
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

// freeAddress returns an address of this machine that nobody uses.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
