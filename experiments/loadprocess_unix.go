//go:build unix

package experiments

import (
	"os/exec"
	"syscall"
)

// ownGroup puts a command into a process group of its own, so that Ctrl-C reaches
// this process alone, and what the command starts can be ended with it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup asks a command's group to end, or makes it. A group that is gone is
// not an error.
func signalGroup(cmd *exec.Cmd, now bool) {
	s := syscall.SIGTERM
	if now {
		s = syscall.SIGKILL
	}
	_ = syscall.Kill(-cmd.Process.Pid, s)
}
