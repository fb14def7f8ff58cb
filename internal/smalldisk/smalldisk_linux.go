// Package smalldisk gives tests a file system of a few MiB that they may fill.
package smalldisk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// childVariable is set in a process that was started to run one test in its own namespaces.
const childVariable = "WEIR_TEST_SMALLDISK"

// Run calls test with the directory of a file system in memory, which has the given number of
// bytes. If this process may not mount, Run runs the test in another process, with its own user and
// mount namespaces. If that is not allowed either, it skips the test.
func Run(t *testing.T, bytes int64, test func(t *testing.T, dir string)) {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-smalldisk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // t.TempDir would keep out the user that PostgreSQL runs as
		t.Fatal(err)
	}
	err = syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_NODEV|syscall.MS_NOSUID, fmt.Sprintf("size=%d,mode=0755", bytes))
	switch {
	case err == nil:
		t.Cleanup(func() {
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				t.Errorf("unmount %s: %v", dir, err)
			}
		})
		test(t, dir)
	case errors.Is(err, syscall.EPERM) && os.Getenv(childVariable) == "":
		runInNamespaces(t)
	default:
		t.Skipf("no small file system can be mounted here: %v", err)
	}
}

// runInNamespaces runs this test again in a process that is root of its own namespaces.
func runInNamespaces(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Skipf("no file system can be mounted here, and namespaces of our own are not allowed: %v", err)
	}
	t.Logf("in namespaces of its own:\n%s", out)
	if err != nil {
		t.Fatal("it failed there")
	}
}

// Fill fills a file system to the last block, and returns a function that frees this space.
func Fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "another program's")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := file.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
}
