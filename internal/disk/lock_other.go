//go:build !unix

package disk

import (
	"context"
	"os"
	"path/filepath"
)

// Lock makes the folder of a lock; on this system other processes are not kept out.
func Lock(_ context.Context, name string) (unlock func(), err error) {
	return func() {}, os.MkdirAll(filepath.Dir(name), 0o755)
}
