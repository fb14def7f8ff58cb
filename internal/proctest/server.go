package proctest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Install asks the platform's package manager for a package, unless it is there. Test processes
// that ask concurrently take turns: apt-get update does not wait for another apt-get.
func Install(what string, there func() bool) error {
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("weir-test-install-%d.lock", os.Getuid())), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if there() {
		return nil
	}
	var steps [][]string
	switch {
	case runtime.GOOS == "darwin":
		steps = [][]string{{"brew", "install", what}}
	case os.Geteuid() == 0:
		steps = [][]string{{"apt-get", "update"}, {"apt-get", "install", "-y", "-o", "DPkg::Lock::Timeout=300", what}}
	default:
		steps = [][]string{{"sudo", "-n", "apt-get", "update"}, {"sudo", "-n", "apt-get", "install", "-y", "-o", "DPkg::Lock::Timeout=300", what}}
	}
	for _, step := range steps {
		fmt.Fprintf(os.Stderr, "no %s here, and the tests need it: %s\n", what, strings.Join(step, " "))
		cmd := exec.Command(step[0], step[1:]...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(step, " "), err)
		}
	}
	return nil
}

// EndWith starts a shell that waits for this process to end, however it ends, sends a signal to the
// server whose number is in the first line of pidFile, and removes the server's directory when the
// server has ended. It waits on a pipe whose other end closes with the process, and needs no timer.
func EndWith(dir, signal, pidFile string) error {
	const script = `
read -r _
if pid=$(head -n 1 "$3" 2>/dev/null); then
	kill "-$2" "$pid" 2>/dev/null
	while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
fi
rm -rf "$1"`
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", script, "weir-test-watchdog", dir, signal, pidFile)
	cmd.Stdin = r
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		w.Close()
		return fmt.Errorf("start the watchdog: %w", err)
	}
	lifelines.Store(w, dir)
	return nil
}

// lifelines keeps the write ends of the watchdogs' pipes from being collected, and so closed.
var lifelines sync.Map

// Unprivileged returns the user to run a database server as, because some refuse to run as root:
// the user of that name, or the user nobody. nil: our own user.
func Unprivileged(name string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{name, "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("the server does not run as root, and there is neither a user %s nor nobody: run the tests as another user", name)
}

// Stands reports whether all threads of a process stand still after SIGSTOP. Where there is no
// /proc to tell, it says so at once.
func Stands(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		_, state, _ := strings.Cut(string(stat), ") ") // the state follows the name of the program
		if !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}
