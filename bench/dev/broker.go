package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/internal/proctest"
	"github.com/weir-log/weir/internal/s3test"
)

// broker is a weir process under test, on a store of its own.
type broker struct {
	store       string // its URL
	kafka, http string
	started     time.Duration // until it was ready
	cmd         *exec.Cmd
	flags       []string // of weir serve, besides the store and the addresses
	closeStore  func()
	log         string // file with its output
}

// store makes a fresh store of a kind and returns its URL.
func (b *bench) store(kind string) (address string, closeStore func(), err error) {
	switch kind {
	case "memory":
		return "memory:", func() {}, nil
	case "sqlite":
		dir, err := os.MkdirTemp(b.dir, "sqlite-")
		return "sqlite:" + filepath.Join(dir, "weir.db"), func() { _ = os.RemoveAll(dir) }, err
	case "postgres":
		if b.postgres != "" {
			return b.database()
		}
		server, err := pgtest.Launch("")
		if err != nil {
			return "", nil, err
		}
		return server.Admin(), func() { _ = server.Close() }, nil
	case "mysql":
		server, err := mytest.Launch("", "--innodb-buffer-pool-size=128M") // the default
		if err != nil {
			return "", nil, err
		}
		address, err := server.Database("weir")
		return address, func() { _ = server.Close() }, err
	case "s3":
		server, err := s3test.Launch(b.dir)
		if err != nil {
			return "", nil, err
		}
		address, err := server.Bucket()
		if err != nil {
			return "", nil, errors.Join(err, server.Close())
		}
		at, err := url.Parse(address)
		if err != nil {
			return "", nil, errors.Join(err, server.Close())
		}
		options := at.Query()
		options.Del("linger") // the defaults are measured
		options.Del("poll")
		at.RawQuery = options.Encode()
		return at.String(), func() { _ = server.Close() }, nil
	}
	return "", nil, fmt.Errorf("unknown store %q: it must be memory, sqlite, postgres, mysql or s3", kind)
}

// database makes a database on the given server, and drops it at the end.
func (b *bench) database() (address string, drop func(), err error) {
	u, err := url.Parse(b.postgres)
	if err != nil {
		return "", nil, fmt.Errorf("-postgres: %w", err)
	}
	name := "weir_bench_" + strings.ToLower(rand.Text()[:12])
	if err := b.admin(`CREATE DATABASE ` + name); err != nil {
		return "", nil, err
	}
	u.Path = "/" + name
	return u.String(), func() {
		if err := b.admin(`DROP DATABASE ` + name + ` WITH (FORCE)`); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}, nil
}

func (b *bench) admin(sql string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, b.postgres)
	if err != nil {
		return fmt.Errorf("the server given with -postgres: %w", err)
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// start starts weir on a fresh store.
func (b *bench) start(ctx context.Context, kind string) (*broker, error) {
	return b.startBinary(ctx, b.weir, kind)
}

func (b *bench) startBinary(ctx context.Context, binary, kind string, flags ...string) (*broker, error) {
	url, closeStore, err := b.store(kind)
	if err != nil {
		return nil, err
	}
	w := &broker{store: url, closeStore: closeStore, kafka: freePort(), http: freePort(), flags: flags, log: filepath.Join(b.dir, "weir.log")}
	if err := w.run(ctx, binary); err != nil {
		closeStore()
		return nil, err
	}
	return w, nil
}

func (w *broker) run(ctx context.Context, binary string) error {
	out, err := os.Create(w.log)
	if err != nil {
		return err
	}
	defer out.Close()
	w.cmd = exec.CommandContext(ctx, binary, append([]string{"serve", "--store", w.store, "--kafka", w.kafka, "--http", w.http}, w.flags...)...)
	w.cmd.Stdout, w.cmd.Stderr = out, out
	ready, client := "http://"+w.http+"/readyz", http.DefaultClient
	if slices.Contains(w.flags, "--tls-cert") {
		ready, client = "https://"+w.http+"/readyz", &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // it is our own
	}
	begin := time.Now()
	if err := w.cmd.Start(); err != nil {
		return err
	}
	for {
		resp, err := client.Get(ready)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				w.started = time.Since(begin)
				return nil
			}
		}
		if time.Since(begin) > time.Minute {
			text, _ := os.ReadFile(w.log)
			return fmt.Errorf("weir was not ready within a minute: %s", text)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// stop ends the process and waits for it; the store stays.
func (w *broker) stop() error {
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	var exit *exec.ExitError
	if err := w.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return err
	}
	return nil
}

func (w *broker) close() {
	_ = w.stop()
	w.closeStore()
}

// rss is the memory that the process holds, in MiB; peak is the most it ever held.
func (w *broker) rss() (now, peak float64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid))
	if err != nil {
		return 0, 0 // no /proc: not measured here
	}
	return statusMiB(string(status), "VmRSS:"), statusMiB(string(status), "VmHWM:")
}

func statusMiB(status, field string) float64 {
	_, rest, ok := strings.Cut(status, field)
	if !ok {
		return 0
	}
	kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	return kib / 1024
}

// cpu is the processor time that the process has used.
func (w *broker) cpu() time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest) // from the state on: utime and stime are 12th and 13th (proc(5))
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	const ticksPerSecond = 100
	return time.Duration(user+system) * time.Second / ticksPerSecond
}

// transactions is how many the store's database has run, where it counts them.
func (w *broker) transactions(ctx context.Context) (n int64, counted bool, err error) {
	if !strings.HasPrefix(w.store, "postgres") {
		return 0, false, nil
	}
	conn, err := pgx.Connect(ctx, w.store)
	if err != nil {
		return 0, false, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`).Scan(&n)
	return n, true, err
}

// diskBytes is what the store takes on disk.
func (w *broker) diskBytes(ctx context.Context) (n int64, err error) {
	conn, err := pgx.Connect(ctx, w.store)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `SELECT pg_database_size(current_database())`).Scan(&n)
	return n, err
}

func warnings() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func freePort() string {
	addresses, err := proctest.FreeAddresses(1)
	if err != nil {
		panic(err)
	}
	return addresses[0]
}
