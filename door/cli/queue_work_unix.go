//go:build unix

package cli

import (
	"os/exec"
	"syscall"
)

// ownGroup gives a command its own process group: Ctrl-C at the terminal does not reach it, and
// killing it kills all that it started.
func ownGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
}
