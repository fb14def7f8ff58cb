//go:build unix

package cli

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps Ctrl-C at the terminal from a command, so that it can finish; when it is killed, so is what it started.
func ownGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
}
