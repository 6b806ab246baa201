package experiments

import (
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// startOn starts a process that ends when the calling thread does, on the given
// cores, or on those of this process. The caller has locked its thread.
func startOn(cmd *exec.Cmd, cpus []int) (err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if cpus == nil {
		return cmd.Start()
	}
	var before, wanted unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("cores of this process: %w", err)
	}
	for _, n := range cpus {
		wanted.Set(n)
	}
	// A child has the cores of the thread that starts it.
	if err := unix.SchedSetaffinity(0, &wanted); err != nil {
		return fmt.Errorf("cores %v: %w", cpus, err)
	}
	err = cmd.Start()
	if e := unix.SchedSetaffinity(0, &before); err == nil && e != nil {
		err = fmt.Errorf("cores of this process: %w", e)
	}
	return err
}
