//go:build !linux

package experiments

import (
	"errors"
	"os/exec"
)

// startOn starts a process. Processes are pinned to cores on Linux only.
func startOn(cmd *exec.Cmd, cpus []int) error {
	if cpus != nil {
		return errors.New("devices cpu:LIST are for Linux")
	}
	return cmd.Start()
}
