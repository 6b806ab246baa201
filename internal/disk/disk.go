// Package disk writes small files whole or not at all, and keeps other processes
// out while something is done.
//
// What WriteWhole wrote is there after a crash, or what was there before is: nobody
// reads half a file. A lock of Lock is the process's, by its open file, and goes with
// it, however it ends; on systems without such locks nobody is kept out.
package disk

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteWhole writes a small file whole or not at all: under another name, synced,
// renamed. The folder is made where there is none.
func WriteWhole(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".writing-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
