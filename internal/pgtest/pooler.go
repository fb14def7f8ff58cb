package pgtest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/proctest"
)

// lifelines keeps the write ends of the poolers' pipes from being collected, and so closed.
var lifelines sync.Map

// PooledURL returns the address of a fresh, empty database through a PgBouncer with pool_mode =
// transaction, and the address of the same database without it. All tests of the process share one
// PgBouncer, which ends with the process. If there is none, and none can be installed, the test is
// skipped.
func PooledURL(t testing.TB) (pooled, direct string) {
	t.Helper()
	direct = URL(t)
	if _, err := Program("pgbouncer"); err != nil {
		t.Skip(err)
	}
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	port, err := sharedPooler(*u)
	if err != nil {
		t.Fatalf("start a PgBouncer for the tests: %v", err)
	}
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return u.String(), direct
}

var (
	poolerOnce sync.Once
	poolerPort int
	poolerErr  error
)

// sharedPooler starts the pooler in front of the server at an address, if it does not run yet.
func sharedPooler(server url.URL) (port int, err error) {
	poolerOnce.Do(func() { poolerPort, poolerErr = startPooler(server) })
	return poolerPort, poolerErr
}

func startPooler(server url.URL) (port int, err error) {
	program, err := Program("pgbouncer")
	if err != nil {
		return 0, err
	}
	as, err := proctest.Unprivileged("postgres")
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "weir-pgtest-pooler-")
	if err != nil {
		return 0, err
	}
	if port, err = proctest.FreePort(); err != nil {
		return 0, err
	}
	password, _ := server.User.Password()
	ini := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(ini, fmt.Appendf(nil, `[databases]
* = host=%s port=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 1000
`, server.Hostname(), server.Port(), server.User.Username(), password, port), 0o644); err != nil {
		return 0, err
	}
	if as != nil {
		if err := os.Chown(dir, int(as.Uid), int(as.Gid)); err != nil {
			return 0, err
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return 0, err
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	// As with the server, a shell waits on a pipe for this process to end, however it ends.
	cmd := exec.Command("/bin/sh", "-c", `"$1" -q "$2/pgbouncer.ini" & read -r _; kill -KILL $!; rm -rf "$2"`, "weir-pgtest-pooler", program, dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: as}
	if err := cmd.Start(); err != nil {
		w.Close()
		return 0, err
	}
	lifelines.Store(w, dir)
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for late := time.Now().Add(30 * time.Second); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return port, conn.Close()
		}
		if time.Now().After(late) {
			said, _ := os.ReadFile(log.Name())
			return 0, fmt.Errorf("it does not answer: %w; it said: %s", err, said)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
