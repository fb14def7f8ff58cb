// Package mytest gives tests a real MariaDB that ends with them.
//
//	url := mytest.URL(t)     // a fresh database; one server per test process, started when first asked for
//	srv := mytest.Start(t)   // a server of its own, to stop, restart and kill
//
// The server's programs are looked for in PATH and where Debian and Homebrew put them; if there are
// none the platform's package is installed, and stderr says so. WEIR_TEST_MYSQL_VERSION=9.7 fetches
// and runs MySQL of that version, from Debian's unstable packages. WEIR_TEST_MYSQL=mysql://… makes
// URL create its databases on a given server instead, MariaDB or MySQL.
package mytest

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/weir-log/weir/internal/proctest"
)

// Server is a MariaDB with a data directory and a port of its own.
type Server struct {
	t     testing.TB // nil for a server that no single test owns
	dir   string
	admin string // URL without a database, as root
	port  int
	as    *syscall.Credential
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended
	flags []string
}

// shared is the server that URL uses. It is never stopped: its watchdog ends it with this process.
var shared = sync.OnceValues(func() (*Server, error) { return Launch("") })

// URL returns the address of a fresh, empty database, dropped when the test ends.
func URL(t testing.TB) string {
	t.Helper()
	if given := os.Getenv("WEIR_TEST_MYSQL"); given != "" {
		return database(t, given)
	}
	s, err := shared()
	if err != nil {
		t.Fatalf("start a MariaDB for the tests: %v", err)
	}
	return database(t, s.admin)
}

// Start starts a server only for this test, with flags of mariadbd.
func Start(t testing.TB, flags ...string) *Server {
	t.Helper()
	s, err := Launch("", flags...)
	if err != nil {
		t.Fatalf("start a MariaDB for the test: %v", err)
	}
	s.t = t
	t.Cleanup(s.Kill)
	return s
}

// URL returns the address of a fresh database on this server. It is removed with the server.
func (s *Server) URL() string {
	s.t.Helper()
	u, _ := url.Parse(s.admin)
	u.Path = "/" + name()
	Exec(s.t, s.admin, "CREATE DATABASE "+u.Path[1:])
	return u.String()
}

// Admin returns the server's address, without a database, as root.
func (s *Server) Admin() string { return s.admin }

// Database creates a database on the server and returns its URL. It is for a program that is not a
// test.
func (s *Server) Database(name string) (string, error) {
	db, err := connect(s.admin)
	if err != nil {
		return "", err
	}
	defer db.Close()
	_, err = db.Exec("CREATE DATABASE " + name)
	return s.admin + name, err
}

// Kill is kill -9, and waits until the server is gone.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// Recover is Resume for a program that is not a test.
func (s *Server) Recover() error { return s.start() }

// Backup copies the server's data while the server is stopped, and starts it again. restore puts
// the copy back: all that was written after the copy is lost. Both are for a program that is not a
// test.
func (s *Server) Backup() (restore func() error, err error) {
	copied := filepath.Join(s.dir, "backup")
	s.Stop()
	if out, err := exec.Command("cp", "-a", s.data(), copied).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy %s: %w: %s", s.data(), err, out)
	}
	return func() error {
		s.Kill()
		return errors.Join(os.RemoveAll(s.data()), os.Rename(copied, s.data()), s.start())
	}, s.start()
}

// Close kills the server and removes its data.
func (s *Server) Close() error {
	s.Kill()
	return os.RemoveAll(s.dir)
}

// Leave ends the server as an operator would, instead of Close, and moves its directory, which is
// not removed then. Both names must be on one file system.
func (s *Server) Leave(to string) error {
	s.Stop()
	return os.Rename(s.dir, to)
}

// Stop shuts the server down as an operator would.
func (s *Server) Stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.ended
}

// Signal sends a signal to the server, such as SIGSTOP.
func (s *Server) Signal(signal syscall.Signal) { _ = s.cmd.Process.Signal(signal) }

// Resume starts a server that was stopped or killed, and returns once it takes connections.
func (s *Server) Resume() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.t.Fatalf("start MariaDB again: %v", err)
	}
}

func name() string { return "weir_test_" + strings.ToLower(rand.Text()[:12]) }

func database(t testing.TB, admin string) string {
	t.Helper()
	u, err := url.Parse(admin)
	if err != nil || u.Host == "" {
		t.Fatal("WEIR_TEST_MYSQL must be a URL, mysql://user:password@host:port/, and this one does not parse")
	}
	u.Path = "/" + name()
	Exec(t, admin, "CREATE DATABASE "+u.Path[1:])
	t.Cleanup(func() { execute(t, admin, "DROP DATABASE IF EXISTS "+u.Path[1:]) })
	return u.String()
}

// Exec runs statements on the database at a URL, on one connection, and ends the test if that
// fails.
func Exec(t testing.TB, address string, statements ...string) {
	t.Helper()
	execute(t, address, statements...)
	if t.Failed() {
		t.FailNow()
	}
}

func execute(t testing.TB, address string, statements ...string) {
	t.Helper()
	db, err := connect(address)
	if err != nil {
		t.Errorf("mytest: %v", err)
		return
	}
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil && t.Context().Err() == nil {
			t.Errorf("mytest: %s: %v", statement, err)
		} else if err != nil {
			if _, err := db.Exec(statement); err != nil { // in a cleanup
				t.Errorf("mytest: %s: %v", statement, err)
			}
		}
	}
}

// Value returns the one value that a query gives, as text.
func Value(t testing.TB, address, query string) string {
	t.Helper()
	db, err := connect(address)
	if err != nil {
		t.Fatalf("mytest: %v", err)
	}
	defer db.Close()
	var v string
	if err := db.QueryRowContext(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("mytest: %s: %v", query, err)
	}
	return v
}

func connect(address string) (*sql.DB, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	password, _ := u.User.Password()
	db, err := sql.Open("mysql", fmt.Sprintf("%s:%s@tcp(%s)/%s?multiStatements=true", u.User.Username(), password, u.Host, strings.TrimPrefix(u.Path, "/")))
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

// Launch makes a data directory in dir ("": the directory of temporary files), and starts a server
// on it. It is for a program that is not a test, which may use the methods that return an error
// instead of ending a test, and Admin, Kill, Stop and Signal. A watchdog ends the server with this
// process.
func Launch(dir string, flags ...string) (*Server, error) {
	server, install, err := commands()
	if err != nil {
		return nil, err
	}
	s := &Server{}
	if s.as, err = proctest.Unprivileged("mysql"); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp(dir, "weir-mytest-"); err != nil {
		return nil, err
	}
	if err := proctest.EndWith(s.dir, "KILL", filepath.Join(s.dir, "pid")); err != nil {
		os.RemoveAll(s.dir)
		return nil, err
	}
	if s.as != nil {
		if err := os.Chown(s.dir, int(s.as.Uid), int(s.as.Gid)); err != nil {
			return nil, err
		}
	}
	for _, flag := range flags {
		if strings.HasPrefix(flag, "--lower-case-table-names=") { // MySQL keeps it in the data directory, and takes no other
			install = append(install, flag)
		}
	}
	cmd := exec.Command(install[0], append(install[1:], "--datadir="+s.data())...)
	cmd.Env = s.env()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: s.as}
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%q: %w\n%s", install, err, out)
	}
	s.flags = append(append(server, "--datadir="+s.data(), "--socket="+filepath.Join(s.dir, "socket"), "--pid-file="+filepath.Join(s.dir, "pid"),
		"--bind-address=127.0.0.1", "--log-error="+s.log(), "--innodb-buffer-pool-size=64M"), flags...)
	for range 5 { // another process may take the port before the server does
		if s.port, err = proctest.FreePort(); err != nil {
			return nil, err
		}
		s.admin = fmt.Sprintf("mysql://root@127.0.0.1:%d/", s.port)
		if err = s.start(); err == nil {
			return s, nil
		}
		if !strings.Contains(err.Error(), "Address already in use") {
			return nil, err
		}
	}
	return nil, err
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }
func (s *Server) log() string  { return filepath.Join(s.dir, "log.err") } // to another name the server adds .err

// env gives the server a directory of its own for temporary tables: a server that starts deletes
// all that it finds there, also those of others.
func (s *Server) env() []string { return append(os.Environ(), "TMPDIR="+s.dir) }

// start starts the server and waits until it takes connections.
func (s *Server) start() error {
	s.cmd = exec.Command(s.flags[0], append(s.flags[1:], "--port="+strconv.Itoa(s.port))...)
	s.cmd.Dir, s.cmd.Env = s.dir, s.env()
	// A session of its own: Ctrl-C in the terminal is for the tests, the watchdog is for the
	// server.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: s.as}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		_ = cmd.Wait()
		close(ended)
	}(s.cmd, s.ended)
	db, err := connect(s.admin)
	if err != nil {
		return err
	}
	defer db.Close()
	late := time.After(time.Minute)
	for {
		if err = db.Ping(); err == nil {
			return nil
		}
		select {
		case <-s.ended:
			logged, _ := os.ReadFile(s.log())
			return fmt.Errorf("the server ended: %s", logged[max(0, len(logged)-2000):])
		case <-late:
			s.Kill()
			return fmt.Errorf("the server takes no connections after a minute: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// commands returns the command that runs the server, and the one that makes a data directory, with
// a root who has no password.
func commands() (server, install []string, err error) {
	if version := os.Getenv("WEIR_TEST_MYSQL_VERSION"); version != "" {
		server, err = fetched(version)
		return server, append(server[:len(server):len(server)], "--initialize-insecure"), err
	}
	program, maker, err := programs()
	return []string{program, "--no-defaults", "--skip-name-resolve"}, []string{maker, "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"}, err
}

// programs returns the paths of the server and of the program that makes a data directory. It
// installs them if they are missing.
func programs() (server, install string, err error) {
	find := func(names ...string) string {
		for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/usr/libexec", "/opt/homebrew/opt/mariadb/bin", "/usr/local/opt/mariadb/bin") {
			for _, name := range names {
				if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
					return path
				}
			}
		}
		return ""
	}
	there := func() bool {
		server, install = find("mariadbd"), find("mariadb-install-db")
		return server != "" && install != ""
	}
	if there() {
		return server, install, nil
	}
	what := "mariadb-server"
	if runtime.GOOS == "darwin" {
		what = "mariadb"
	}
	if err := proctest.Install(what, there); err != nil {
		return "", "", fmt.Errorf("mariadbd and mariadb-install-db are not to be found, and installing them failed: %w; install them by hand, or give a server with WEIR_TEST_MYSQL=mysql://…", err)
	}
	if !there() {
		return "", "", errors.New("the MariaDB package was installed, and yet mariadbd and mariadb-install-db are not to be found")
	}
	return server, install, nil
}
