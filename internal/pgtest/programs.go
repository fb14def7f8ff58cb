package pgtest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-log/weir/internal/proctest"
)

// programs returns the directory that holds initdb, pg_ctl and postgres, installing them if they
// are missing, or fetching the version that WEIR_TEST_POSTGRES_VERSION asks for.
func programs() (string, error) {
	if version := os.Getenv("WEIR_TEST_POSTGRES_VERSION"); version != "" {
		return fetched(version)
	}
	if dir, ok := find(); ok {
		return dir, nil
	}
	if err := proctest.Install(serverPackage(), func() bool { _, ok := find(); return ok }); err != nil {
		return "", fmt.Errorf("no PostgreSQL server was found in PATH, by pg_config, in /usr/lib/postgresql or under Homebrew, "+
			"and installing it failed: %w; install it by hand, or give one with WEIR_TEST_POSTGRES=postgres://…", err)
	}
	if dir, ok := find(); ok {
		return dir, nil
	}
	return "", errors.New("the PostgreSQL package was installed, and yet initdb, pg_ctl and postgres are not to be found")
}

// find looks through the usual places. Places that a user has chosen come first: PATH, then
// pg_config.
func find() (string, bool) {
	var dirs []string
	for dir := range strings.SplitSeq(os.Getenv("PATH"), string(os.PathListSeparator)) {
		// If a program in PATH is a link, the other programs are where it leads.
		if real, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres")); err == nil {
			dirs = append(dirs, dir, filepath.Dir(real))
		}
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
	} {
		found, _ := filepath.Glob(pattern)
		slices.SortFunc(found, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
		dirs = append(dirs, found...)
	}
	i := slices.IndexFunc(dirs, complete)
	if i < 0 {
		return "", false
	}
	return dirs[i], true
}

// version is the number in a directory's path, /usr/lib/postgresql/17/bin, or 0.
func version(dir string) int {
	digits := strings.TrimFunc(filepath.Dir(dir), func(r rune) bool { return r < '0' || r > '9' })
	n, _ := strconv.Atoi(digits)
	return n
}

func complete(dir string) bool {
	for _, program := range []string{"initdb", "pg_ctl", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(dir, program)); err != nil {
			return false
		}
	}
	return true
}

func serverPackage() string {
	if runtime.GOOS == "darwin" {
		return "postgresql@17"
	}
	return "postgresql"
}

// Program returns the path of a program that a test needs beside the server: from PATH, from the
// server's own directory (psql is there), or from the platform's package of that name, which it
// installs.
func Program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	if dir, err := programs(); err == nil {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	const system = "/usr/sbin" // where Debian has programs for the system; a plain user's PATH may lack it
	look := func() (string, error) {
		if path, err := exec.LookPath(filepath.Join(system, name)); err == nil {
			return path, nil
		}
		return exec.LookPath(name)
	}
	if err := proctest.Install(name, func() bool { _, err := look(); return err == nil }); err != nil {
		return "", fmt.Errorf("%s is not in PATH, and installing it failed: %w; install it by hand", name, err)
	}
	return look()
}
