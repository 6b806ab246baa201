package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// source gives the files of a checkpoint by base name. weights returns bytes
// that stay valid until unmap is called, and whether they are a mapping.
type source interface {
	exists(name string) (bool, error)
	read(name string) ([]byte, error)
	weights(name string) (data []byte, mapped bool, unmap func() error, err error)
}

// dirSource is a directory on disk.
type dirSource string

var _ source = dirSource("")

func (d dirSource) exists(name string) (bool, error) {
	_, err := os.Stat(filepath.Join(string(d), name))
	return found(err)
}

func (d dirSource) read(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(d), name))
}

func (d dirSource) weights(name string) ([]byte, bool, func() error, error) {
	data, unmap, err := mapFile(filepath.Join(string(d), name))
	return data, true, unmap, err
}

// fsSource is the root of a file system, such as one embedded in the binary.
type fsSource struct{ fsys fs.FS }

var _ source = fsSource{}

func (s fsSource) exists(name string) (bool, error) {
	_, err := fs.Stat(s.fsys, name)
	return found(err)
}

func (s fsSource) read(name string) ([]byte, error) { return fs.ReadFile(s.fsys, name) }

func (s fsSource) weights(name string) ([]byte, bool, func() error, error) {
	data, err := fs.ReadFile(s.fsys, name)
	return data, false, func() error { return nil }, err
}

// found turns the error of a stat into whether the file is there.
func found(err error) (bool, error) {
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
