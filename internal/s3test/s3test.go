// Package s3test gives tests a real S3 server, versitygw, that ends with them.
//
//	url := s3test.URL(t)         // a fresh bucket; one server per test process, started when first asked for
//	srv := s3test.Start(t)       // a server of its own, to kill and resume
//	p := s3test.NewProxy(t, url) // a proxy in front of it, to lose, delay, repeat and damage requests; p.URL()
//
// The server's program is built from its Go module when it is first needed, which takes a minute or
// two, and kept among the user's cached files.
package s3test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/proctest"
)

// module is what is built: the gateway's program, at a version.
const (
	module  = "github.com/versity/versitygw/cmd/versitygw"
	version = "v1.8.0"
)

// The only user of the server. Use puts it where the AWS SDK looks for it.
const accessKey, secretKey = "weir-test", "weir-test-secret"

// Server is a versitygw with a directory and a port of its own. Each directory in it is a bucket.
type Server struct {
	t    testing.TB
	dir  string
	port int
	// attributes are flags that say where the attributes of objects are.
	attributes []string
	counting   bool // its requests are logged: Counts
	cmd        *exec.Cmd
	done       chan struct{} // closed when cmd has ended
}

// shared is the server that URL uses. Its watchdog ends it with this process.
var shared = sync.OnceValues(func() (*Server, error) { return Launch("") })

// URL returns the address of a fresh, empty bucket, as --store takes it. The environment has the
// credentials from then on: Credentials.
func URL(t testing.TB) string {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatalf("start an S3 server for the tests: %v", err)
	}
	address, err := s.Bucket()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// Start starts a server only for this test.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := Launch("")
	if err != nil {
		t.Fatalf("start an S3 server for the test: %v", err)
	}
	s.t = t
	t.Cleanup(s.Kill)
	return s
}

// URL returns the address of a fresh bucket on this server.
func (s *Server) URL() string {
	s.t.Helper()
	address, err := s.Bucket()
	if err != nil {
		s.t.Fatal(err)
	}
	return address
}

// Bucket makes a bucket and returns its address. It is for a program that is not a test.
func (s *Server) Bucket() (string, error) {
	name := "weir-test-" + strings.ToLower(rand.Text()[:12])
	if err := os.Mkdir(filepath.Join(s.data(), name), 0o755); err != nil {
		return "", err
	}
	options := url.Values{"endpoint": {"http://" + s.Addr()}, "region": {"us-east-1"}, "path_style": {"true"}, "linger": {"0"}, "poll": {"0s"}}
	return "s3://" + name + "/log?" + options.Encode(), nil
}

// Addr returns the server's host and port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Directory returns the directory of the bucket in a URL: each object is a file.
func (s *Server) Directory(address string) string {
	u, _ := url.Parse(address)
	return filepath.Join(s.data(), u.Host)
}

// Kill is kill -9, and waits until the server is gone.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

// Resume starts the server again, on the same buckets and port.
func (s *Server) Resume() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.t.Fatalf("start the S3 server again: %v", err)
	}
}

// Recover is Resume for a program that is not a test.
func (s *Server) Recover() error { return s.start() }

// Backup copies all buckets while the server is stopped, and starts it again. restore puts the copy
// back: all that was written after the copy is lost. Both are for a program that is not a test.
func (s *Server) Backup() (restore func() error, err error) {
	copied := filepath.Join(s.dir, "backup")
	s.Kill()
	for _, name := range []string{"buckets", "meta"} {
		if err := errors.Join(os.MkdirAll(copied, 0o755), os.CopyFS(filepath.Join(copied, name), os.DirFS(filepath.Join(s.dir, name)))); err != nil {
			return nil, err
		}
	}
	return func() error {
		s.Kill()
		for _, name := range []string{"buckets", "meta"} {
			now := filepath.Join(s.dir, name)
			if err := errors.Join(os.RemoveAll(now), os.Rename(filepath.Join(copied, name), now)); err != nil {
				return err
			}
		}
		return s.start()
	}, s.start()
}

// Copy copies a bucket while the server is suspended for a moment, so that the copy is that of one
// time. putBack makes the bucket what it was then, again while the server is suspended. Clients may
// go on using the bucket: all that was written after the copy is lost. Both are for a program that
// is not a test.
func (s *Server) Copy(address string) (putBack func() error, err error) {
	copied, err := os.MkdirTemp(s.dir, "copy-")
	if err != nil {
		return nil, err
	}
	now := filepath.Base(s.Directory(address))
	roots := []string{"buckets", "meta"}
	err = s.suspended(func() error {
		for _, root := range roots {
			if err := linkAll(filepath.Join(s.dir, root, now), filepath.Join(copied, root)); err != nil {
				return err
			}
		}
		return nil
	})
	return func() error {
		err := s.suspended(func() error {
			for _, root := range roots {
				at := filepath.Join(s.dir, root, now)
				for _, move := range [][2]string{{at, filepath.Join(copied, "lost-"+root)}, {filepath.Join(copied, root), at}} {
					if err := os.Rename(move[0], move[1]); err != nil && !os.IsNotExist(err) {
						return err
					}
				}
			}
			return nil
		})
		return errors.Join(err, os.RemoveAll(copied))
	}, err
}

// linkAll makes a directory with links to all files of another one: the server replaces files, and
// changes none. If there is no such directory it makes none.
func linkAll(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			if path == from && os.IsNotExist(err) {
				return nil
			}
			return err
		}
		at := filepath.Join(to, strings.TrimPrefix(path, from))
		if entry.IsDir() {
			return os.MkdirAll(at, 0o755)
		}
		return os.Link(path, at)
	})
}

// suspended does something while all threads of the server stand still.
func (s *Server) suspended(do func() error) error {
	process := s.cmd.Process
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("suspend the S3 server: %w", err)
	}
	defer func() { _ = process.Signal(syscall.SIGCONT) }() // it may have been killed
	for late := time.Now().Add(time.Minute); !proctest.Stands(process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			return errors.New("the S3 server does not stand still a minute after SIGSTOP")
		}
	}
	return do()
}

// Close kills the server and removes its buckets.
func (s *Server) Close() error {
	s.Kill()
	return os.RemoveAll(s.dir)
}

// Leave ends the server, instead of Close, and moves its directory, which is not removed then. Both
// names must be on one file system.
func (s *Server) Leave(to string) error {
	s.Kill()
	return os.Rename(s.dir, to)
}

func (s *Server) data() string { return filepath.Join(s.dir, "buckets") }

// Launch starts a server on a new directory in dir ("": the directory of temporary files). It is
// for a program that is not a test, which may use the methods that return an error instead of
// ending a test, and Directory, Addr and Kill. A watchdog ends the server with this process.
func Launch(dir string) (*Server, error) { return launch(dir, false) }

// LaunchCounting is Launch for a server whose Counts counts its requests.
func LaunchCounting(dir string) (*Server, error) { return launch(dir, true) }

func launch(dir string, counting bool) (*Server, error) {
	if _, err := program(); err != nil {
		return nil, err
	}
	Credentials()
	s := &Server{counting: counting}
	var err error
	if s.dir, err = os.MkdirTemp(dir, "weir-s3test-"); err != nil {
		return nil, err
	}
	if err := proctest.EndWith(s.dir, "KILL", filepath.Join(s.dir, "pid")); err != nil {
		os.RemoveAll(s.dir)
		return nil, err
	}
	for _, name := range []string{"buckets", "meta", "iam"} {
		if err := os.Mkdir(filepath.Join(s.dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	// Attributes of objects in the files' extended attributes: then an object is there whole or not
	// at all, also after kill -9. In a directory of their own, for file systems that have none, a
	// kill can leave attributes without an object, which answers "exists" to a put and "missing" to
	// a get for ever.
	for _, attributes := range [][]string{nil, {"--sidecar", filepath.Join(s.dir, "meta")}} {
		s.attributes = attributes
		for range 3 { // another process may take the port before the server does
			if s.port, err = proctest.FreePort(); err != nil {
				return nil, err
			}
			if err = s.start(); err == nil {
				return s, nil
			}
		}
	}
	return nil, err
}

// Credentials puts the credentials of the servers into the environment, where the AWS SDK looks for
// them.
func Credentials() {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": accessKey, "AWS_SECRET_ACCESS_KEY": secretKey, "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err) // only for a name or value that is not allowed
		}
	}
}

// start starts the server and waits until it takes connections.
func (s *Server) start() error {
	path, err := program()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{"--port", s.Addr(), "--access", accessKey, "--secret", secretKey, "--region", "us-east-1", "--quiet", "--keep-alive", // without it each request is a connection
		"--iam-dir", filepath.Join(s.dir, "iam")}
	if s.counting {
		args = append(args, "--access-log", s.accesses())
	}
	s.cmd = exec.Command(path, append(append(append(args, "posix"), s.attributes...), s.data())...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = s.dir, log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir, "pid"), []byte(strconv.Itoa(s.cmd.Process.Pid)+"\n"), 0o600); err != nil {
		return err
	}
	s.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(s.cmd, s.done)
	late := time.After(time.Minute)
	for {
		conn, err := net.Dial("tcp", s.Addr())
		if err == nil {
			return conn.Close()
		}
		select {
		case <-s.done:
			logged, _ := os.ReadFile(log.Name())
			return fmt.Errorf("the S3 server ended: %s", logged[max(0, len(logged)-2000):])
		case <-late:
			s.Kill()
			return fmt.Errorf("the S3 server takes no connections after a minute: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Program returns the path of the server's program.
func Program() (string, error) { return program() }

// program returns the path of the server's program. It builds it if it is missing; processes that
// do so concurrently take turns.
var program = sync.OnceValues(func() (string, error) {
	cached, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cached, "weir-test", "versitygw-"+version)
	path := filepath.Join(dir, "versitygw")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	fmt.Fprintf(os.Stderr, "no versitygw here, and the tests need it: go install %s@%s\n", module, version)
	cmd := exec.Command("go", "install", module+"@"+version)
	cmd.Dir = dir // not in this module
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the S3 server of the tests: go install %s@%s: %w\n%s", module, version, err, out)
	}
	return path, nil
})
