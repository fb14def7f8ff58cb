package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/proctest"
	"github.com/weir-log/weir/internal/s3test"
)

const (
	startMax = 30 * time.Second
	stopMax  = 15 * time.Second
)

// cluster is one weir, or several, that run on a store of their own.
type cluster struct {
	settings  []string       // flags of each broker
	url       string         // of the store
	database  *pgtest.Server // of the store; nil: it has none
	addresses []string       // of the Kafka ports
	secured   []string       // of those where clients log in
	http      []string
	brokers   []*broker
	closers   []func() error
}

// broker is one process. It may be stopped and started again.
type broker struct {
	weir, dir string
	args      []string // of the command
	address   string   // which takes connections when the process is ready
	http      string   // where it says so; "": it is not asked
	log       io.Writer
	process   *exec.Cmd // nil: it was not started, or has ended
	exited    chan error
}

// twoBrokers is the name of the store that two processes share.
const twoBrokers = "postgres, two brokers"

// shards is the name of a store that is made of three: two SQLite files, and PostgreSQL.
const shards = "shards"

// startCluster starts weir on a fresh store, and returns once it takes connections. Its output goes
// to files under scratch.
func startCluster(ctx context.Context, weir, store, scratch string) (*cluster, error) {
	c := &cluster{}
	err := c.start(ctx, weir, store, scratch)
	if err == nil {
		err = c.addUser(ctx, user, password)
	}
	if err != nil {
		return nil, c.fail(err)
	}
	return c, nil
}

// start starts the brokers on a fresh store. If it fails some of them may run.
func (c *cluster) start(ctx context.Context, weir, store, scratch string) (err error) {
	if c.url, err = c.open(store, scratch); err != nil {
		return err
	}
	number := 1
	if store == twoBrokers {
		number = 2
	}
	for n := range number {
		if err := c.startBroker(ctx, weir, scratch, fmt.Sprintf("weir-%s-%d.log", strings.ReplaceAll(store, ", ", "-"), n)); err != nil {
			return err
		}
	}
	return nil
}

// The user that franz-go's tests of SCRAM log in as.
const user, password = "kgo", "conformance"

func (c *cluster) addUser(ctx context.Context, user, password string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.addresses...))
	if err != nil {
		return err
	}
	defer client.Close()
	done, err := kadm.NewClient(client).AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: user, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: password}})
	if err == nil {
		err = done.Error()
	}
	if err != nil {
		return fmt.Errorf("add the user %s: %w", user, err)
	}
	return nil
}

// env says to franz-go's tests where the brokers are.
func (c *cluster) env() []string {
	return []string{"KGO_SEEDS=" + strings.Join(c.addresses, ","), "KGO_TEST_SCRAM_SEEDS=" + strings.Join(c.secured, ","), "KGO_TEST_SCRAM=" + user + ":" + password}
}

func (c *cluster) startBroker(ctx context.Context, weir, scratch, logName string) error {
	addresses, err := proctest.FreeAddresses(3)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(scratch, logName))
	if err != nil {
		return err
	}
	c.closers = append(c.closers, log.Close)
	b := &broker{
		weir: weir, dir: scratch, address: addresses[0], http: addresses[1], log: log,
		args: append([]string{"serve", "--store", c.url, "--kafka", addresses[0], "--kafka", "sasl_plaintext://" + addresses[2], "--http", addresses[1]}, c.settings...),
	}
	c.addresses, c.secured, c.http = append(c.addresses, addresses[0]), append(c.secured, addresses[2]), append(c.http, addresses[1])
	if err := b.start(ctx); err != nil {
		return fmt.Errorf("%w; see %s", err, log.Name())
	}
	c.brokers = append(c.brokers, b)
	return nil
}

// start starts the process, and returns once it takes connections. One that does not is ended.
func (b *broker) start(ctx context.Context) error {
	b.process, b.exited = exec.Command(b.weir, b.args...), make(chan error, 1)
	b.process.Stdout, b.process.Stderr, b.process.Dir = b.log, b.log, b.dir
	if err := b.process.Start(); err != nil {
		return err
	}
	process, exited := b.process, b.exited
	go func() { exited <- process.Wait() }()
	if err := b.ready(ctx, b.address); err != nil {
		_ = b.end() // err says more
		return err
	}
	return nil
}

// open makes a fresh store, and returns the URL that weir knows it by.
func (c *cluster) open(store, scratch string) (string, error) {
	switch store {
	case "memory":
		return "memory:", nil
	case "sqlite":
		return "sqlite:" + filepath.Join(scratch, "weir.db"), nil
	case "postgres", twoBrokers, shards:
		server, err := pgtest.Launch("")
		if err != nil {
			return "", fmt.Errorf("start PostgreSQL: %w", err)
		}
		c.database = server
		c.closers = append(c.closers, server.Close)
		if store == shards {
			return fmt.Sprintf("shard:sqlite:%s,%s,sqlite:%s", filepath.Join(scratch, "a.db"), strings.ReplaceAll(server.Admin(), ",", ",,"), filepath.Join(scratch, "c.db")), nil
		}
		return server.Admin(), nil
	case "mysql":
		server, err := mytest.Launch("")
		if err != nil {
			return "", fmt.Errorf("start MariaDB: %w", err)
		}
		c.closers = append(c.closers, server.Close)
		return server.Database("weir")
	case "s3":
		server, err := s3test.Launch("")
		if err != nil {
			return "", fmt.Errorf("start an S3 server: %w", err)
		}
		c.closers = append(c.closers, server.Close)
		return server.Bucket()
	}
	panic("no such store: " + store)
}

func (b *broker) ready(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := b.answers(ctx, address)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case err := <-b.exited:
			b.exited <- err
			return fmt.Errorf("weir ended while it started: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("weir accepted no connection on %s within %v: %w", address, startMax, err)
		}
	}
}

// answers takes a connection, and asks the process whether it is ready.
func (b *broker) answers(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err == nil {
		err = conn.Close()
	}
	if err != nil || b.http == "" {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.http+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("/readyz says %s", answer.Status)
	}
	return errors.Join(err, answer.Body.Close())
}

// stop ends weir as an operator would (SIGTERM), and returns an error unless all processes end
// cleanly.
func (c *cluster) stop() error {
	var errs []error
	for _, b := range c.brokers {
		errs = append(errs, b.end())
	}
	for i := len(c.closers) - 1; i >= 0; i-- {
		errs = append(errs, c.closers[i]())
	}
	return errors.Join(errs...)
}

func (b *broker) end() error {
	if b.process == nil {
		return nil
	}
	defer func() { b.process = nil }()
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

// kill ends the process at once.
func (b *broker) kill() {
	if b.process != nil {
		_ = b.process.Process.Kill() // if it has ended, exited says so
		<-b.exited
		b.process = nil
	}
}

// kill ends all processes at once, and closes what they had.
func (c *cluster) kill() error {
	for _, b := range c.brokers {
		b.kill()
	}
	var errs []error
	for i := len(c.closers) - 1; i >= 0; i-- {
		errs = append(errs, c.closers[i]())
	}
	return errors.Join(errs...)
}

// fail stops what was started so far, and returns err.
func (c *cluster) fail(err error) error {
	_ = c.stop() // err says more
	return err
}
