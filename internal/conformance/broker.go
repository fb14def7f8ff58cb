package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weir-log/weir/internal/pgtest"
)

const (
	startMax = 30 * time.Second
	stopMax  = 15 * time.Second
)

// broker is a weir that runs on a store of its own.
type broker struct {
	address string // of its Kafka port
	process *exec.Cmd
	exited  chan error
	closers []func() error
}

// startBroker starts weir on a fresh store, and returns once it takes connections. Its output goes to a file
// under scratch.
func startBroker(ctx context.Context, weir, store, scratch string) (*broker, error) {
	b := &broker{exited: make(chan error, 1)}
	url, err := b.open(store, scratch)
	if err != nil {
		return nil, b.fail(err)
	}
	addresses, err := freeAddresses(2)
	if err != nil {
		return nil, b.fail(err)
	}
	b.address = addresses[0]
	log, err := os.Create(filepath.Join(scratch, "weir-"+store+".log"))
	if err != nil {
		return nil, b.fail(err)
	}
	b.closers = append(b.closers, log.Close)
	b.process = exec.Command(weir, "serve", "--store", url, "--kafka", b.address, "--http", addresses[1])
	b.process.Stdout, b.process.Stderr = log, log
	b.process.Dir = scratch
	if err := b.process.Start(); err != nil {
		return nil, b.fail(err)
	}
	go func() { b.exited <- b.process.Wait() }()
	if err := b.ready(ctx); err != nil {
		return nil, b.fail(fmt.Errorf("%w; see %s", err, log.Name()))
	}
	return b, nil
}

// open makes a fresh store, and returns the URL that weir knows it by.
func (b *broker) open(store, scratch string) (string, error) {
	switch store {
	case "memory":
		return "memory:", nil
	case "sqlite":
		return "sqlite:" + filepath.Join(scratch, "weir.db"), nil
	case "postgres":
		server, err := pgtest.Launch("")
		if err != nil {
			return "", fmt.Errorf("start PostgreSQL: %w", err)
		}
		b.closers = append(b.closers, server.Close)
		return server.Admin(), nil
	}
	panic("no such store: " + store)
}

func (b *broker) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", b.address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case err := <-b.exited:
			b.exited <- err
			return fmt.Errorf("weir ended while it started: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("weir accepted no connection on %s within %v: %w", b.address, startMax, err)
		}
	}
}

// stop ends weir as an operator would (SIGTERM), and returns an error unless weir ends cleanly.
func (b *broker) stop() error {
	err := b.end()
	for i := len(b.closers) - 1; i >= 0; i-- {
		if closed := b.closers[i](); err == nil {
			err = closed
		}
	}
	return err
}

func (b *broker) end() error {
	if b.process == nil || b.process.Process == nil {
		return nil
	}
	_ = b.process.Process.Signal(syscall.SIGTERM) // if it has ended, exited says so
	select {
	case err := <-b.exited:
		if err != nil {
			return fmt.Errorf("weir ended with an error: %w", err)
		}
		return nil
	case <-time.After(stopMax):
		_ = b.process.Process.Kill()
		<-b.exited
		return fmt.Errorf("weir did not end within %v of SIGTERM", stopMax)
	}
}

// fail stops what was started so far, and returns err.
func (b *broker) fail(err error) error {
	_ = b.stop() // err says more
	return err
}

// freeAddresses returns n addresses that nobody listened on just now.
func freeAddresses(n int) ([]string, error) {
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}
