package pgtest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-log/weir/internal/proctest"
)

// Server is a PostgreSQL with a data directory, a port and a superuser of its own.
type Server struct {
	t      testing.TB // nil for a server that no single test owns
	bin    string
	dir    string
	port   int
	fsync  string
	within string              // the directory in which dir is made; "": that of temporary files
	admin  string              // URL of the database postgres, as superuser
	as     *syscall.Credential // the user that PostgreSQL runs as; nil: our own
}

// Start starts a server only for this test.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := Launch("")
	if err != nil {
		t.Fatalf("start a PostgreSQL for the test: %v", err)
	}
	s.t = t
	t.Cleanup(s.KillImmediate)
	return s
}

// StartWithWAL starts a server only for this test, with its WAL in a directory, in small files.
func StartWithWAL(t testing.TB, dir string) *Server {
	t.Helper()
	as, err := proctest.Unprivileged("postgres")
	if err != nil {
		t.Fatal(err)
	}
	wal := filepath.Join(dir, "wal")
	if err := os.Mkdir(wal, 0o700); err != nil {
		t.Fatal(err)
	}
	if as != nil {
		if err := os.Chown(wal, int(as.Uid), int(as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := launch("", "on", "--waldir", wal, "--wal-segsize", "1")
	if err != nil {
		t.Fatalf("start a PostgreSQL for the test: %v", err)
	}
	s.t = t
	t.Cleanup(s.KillImmediate)
	return s
}

// Running reports whether the postmaster runs. The server may still be recovering, and take no
// connections.
func (s *Server) Running() bool {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	return err == nil && syscall.Kill(pid, 0) == nil
}

// Log returns what the server has logged.
func (s *Server) Log() string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// URL returns the address of a fresh database on this server. It is removed with the server.
func (s *Server) URL() string {
	s.t.Helper()
	u, _ := url.Parse(s.admin)
	name := "weir_test_" + strings.ToLower(rand.Text()[:12])
	Exec(s.t, s.admin, `CREATE DATABASE `+name)
	u.Path = "/" + name
	return u.String()
}

// Standby makes a copy of the server that follows it and takes no writes. It is killed when the
// test ends.
func (s *Server) Standby() *Server {
	s.t.Helper()
	copied := &Server{t: s.t, bin: s.bin, fsync: "off", as: s.as}
	if err := copied.prepare(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(copied.KillImmediate)
	if err := copied.run("pg_basebackup", "-d", s.admin, "-D", copied.data(), "-R", "-X", "stream", "-c", "fast"); err != nil {
		if os.Getenv("WEIR_TEST_POSTGRES_VERSION") != "" && strings.Contains(err.Error(), "incompatible server version") {
			s.t.Skip("a fetched server comes without pg_basebackup, and this machine's is of an older version")
		}
		s.t.Fatal(err)
	}
	u, _ := url.Parse(s.admin)
	password, _ := u.User.Password()
	if err := copied.begin(password); err != nil {
		s.t.Fatalf("start a standby: %v", err)
	}
	return copied
}

// At returns the address of the database that another address names, on this server.
func (s *Server) At(address string) string {
	s.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		s.t.Fatal(err)
	}
	here, _ := url.Parse(s.admin)
	here.Path = u.Path
	return here.String()
}

// Admin returns the address of the database postgres, as superuser.
func (s *Server) Admin() string { return s.admin }

// Resume starts a server that was stopped or killed, and returns once it takes connections.
func (s *Server) Resume() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.t.Fatalf("start PostgreSQL again: %v", err)
	}
}

// Restart stops the server as an operator would, and starts it again.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.Resume()
}

// URLIn returns the address of a fresh database on this server whose tables are in a directory. The
// server's WAL stays where it was.
func (s *Server) URLIn(dir string) string {
	s.t.Helper()
	place := filepath.Join(dir, "tablespace")
	if err := os.Mkdir(place, 0o700); err != nil {
		s.t.Fatal(err)
	}
	if s.as != nil {
		if err := os.Chown(place, int(s.as.Uid), int(s.as.Gid)); err != nil {
			s.t.Fatal(err)
		}
	}
	name := "weir_test_" + strings.ToLower(rand.Text()[:12])
	Exec(s.t, s.admin, `CREATE TABLESPACE `+name+` LOCATION '`+place+`'`)
	Exec(s.t, s.admin, `CREATE DATABASE `+name+` TABLESPACE `+name)
	s.t.Cleanup(func() { execute(s.t, s.admin, `DROP DATABASE `+name+` WITH (FORCE)`) })
	u, _ := url.Parse(s.admin)
	u.Path = "/" + name
	return u.String()
}

// WithoutFsync starts the server again with fsync = off, as some people do to make it faster.
func (s *Server) WithoutFsync() {
	s.t.Helper()
	s.fsync = "off"
	s.Restart()
}

// Stop ends all connections and shuts down cleanly.
func (s *Server) Stop() {
	s.t.Helper()
	if err := s.stop("fast"); err != nil {
		s.t.Fatalf("stop PostgreSQL: %v", err)
	}
}

// KillImmediate is a crash: no checkpoint, no goodbyes; the next start recovers from the WAL.
// A server that is not running stays so.
func (s *Server) KillImmediate() {
	s.t.Helper()
	if _, err := os.Stat(filepath.Join(s.dir, "data", "postmaster.pid")); errors.Is(err, os.ErrNotExist) {
		return
	}
	if err := s.stop("immediate"); err != nil {
		s.t.Fatalf("kill PostgreSQL: %v", err)
	}
}

// Crash is KillImmediate for a program that is not a test.
func (s *Server) Crash() error { return s.stop("immediate") }

// Recover is Resume for a program that is not a test.
func (s *Server) Recover() error { return s.start() }

// Backup copies the server's data while the server is stopped, and starts it again. restore puts
// the copy back: all that was written after the copy is lost. Both are for a program that is not a
// test.
func (s *Server) Backup() (restore func() error, err error) {
	copied := filepath.Join(s.dir, "backup")
	if err := s.stop("fast"); err != nil {
		return nil, err
	}
	if out, err := exec.Command("cp", "-a", s.data(), copied).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy %s: %w: %s", s.data(), err, out)
	}
	return func() error {
		return errors.Join(s.stop("immediate"), os.RemoveAll(s.data()), os.Rename(copied, s.data()), s.start())
	}, s.start()
}

// Close kills the server and removes its data.
func (s *Server) Close() error {
	err := s.stop("immediate")
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Leave ends the server as an operator would, instead of Close, and moves its directory, which is
// not removed then. Both names must be on one file system.
func (s *Server) Leave(to string) error {
	if err := s.stop("fast"); err != nil {
		return err
	}
	return os.Rename(s.dir, to)
}

func (s *Server) stop(mode string) error {
	return s.run("pg_ctl", "-D", s.data(), "-m", mode, "-w", "-t", "60", "stop")
}

// Launch makes a data directory in dir ("": the directory of temporary files), and starts a server
// on it. It is for a program that is not a test, which may use the methods that return an error
// instead of ending a test, and Admin and Running. A watchdog ends the server with this process.
func Launch(dir string) (*Server, error) { return launch(dir, "on") }

func launch(dir, fsync string, initdb ...string) (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, fsync: fsync, within: dir}
	if s.as, err = proctest.Unprivileged("postgres"); err != nil {
		return nil, err
	}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	password := rand.Text()
	secret := filepath.Join(s.dir, "password")
	if err := os.WriteFile(secret, []byte(password), 0o644); err != nil {
		return nil, err
	}
	if err := s.run("initdb", append([]string{"-D", s.data(), "-U", "postgres", "-A", "scram-sha-256", "--pwfile", secret,
		"-E", "UTF8", "--locale=C", "--no-sync"}, initdb...)...); err != nil {
		return nil, err
	}
	if err := s.begin(password); err != nil {
		return nil, err
	}
	return s, nil
}

// prepare makes the server's directory, which is removed when this process ends.
func (s *Server) prepare() (err error) {
	if s.dir, err = os.MkdirTemp(s.within, "weir-pgtest-"); err != nil {
		return err
	}
	if err := proctest.EndWith(s.dir, "QUIT", s.dir+"/data/postmaster.pid"); err != nil {
		os.RemoveAll(s.dir)
		return err
	}
	if s.as == nil {
		return nil
	}
	return os.Chown(s.dir, int(s.as.Uid), int(s.as.Gid))
}

// begin starts the server for the first time, on a port that is free.
func (s *Server) begin(password string) (err error) {
	// Between asking for a free port and using it another process may take it: try a few.
	for range 5 {
		if s.port, err = proctest.FreePort(); err != nil {
			return err
		}
		if err = s.start(); err == nil {
			s.admin = fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/postgres?sslmode=disable", password, s.port)
			return nil
		}
	}
	return err
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) start() error {
	options := fmt.Sprintf("-p %d -k '%s' -c listen_addresses=127.0.0.1 -c fsync=%s", s.port, s.dir, s.fsync)
	return s.run("pg_ctl", "-D", s.data(), "-l", filepath.Join(s.dir, "log"), "-o", options, "-w", "-t", "60", "start")
}

// run runs one of PostgreSQL's programs. Its output goes to a file: a pipe would be inherited by
// the server, and reading it would not end before the server does.
func (s *Server) run(name string, args ...string) error {
	out, err := os.CreateTemp("", "weir-pgtest-out-")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	program := filepath.Join(s.bin, name)
	if _, err := os.Stat(program); err != nil { // a client program may be elsewhere
		if program, err = Program(name); err != nil {
			return err
		}
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = out, out
	// A session of its own: Ctrl-C in the terminal is for the tests, the watchdog is for the
	// server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: s.as}
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(out.Name())
		logged, _ := os.ReadFile(filepath.Join(s.dir, "log"))
		return fmt.Errorf("%s %s: %w\n%s\nserver log: %s", name, strings.Join(args, " "), err, said, tail(logged, 2000))
	}
	return nil
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }
