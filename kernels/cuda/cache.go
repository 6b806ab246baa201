//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
)

// cubinCache keeps compiled kernels on disk: a file per key that holds the
// SHA-256 of the cubin and the cubin. It is a convenience: where it cannot be
// read or written, kernels are compiled again.
type cubinCache struct{ dir string }

// openCache returns the cache under the user's cache directory.
func openCache() cubinCache {
	dir, err := os.UserCacheDir()
	if err != nil {
		return cubinCache{}
	}
	return cubinCache{dir: filepath.Join(dir, "exacta", "cubin")}
}

// cacheKey is the hash of all that a cubin depends on.
func cacheKey(source string, options []string) string {
	h := sha256.New()
	for _, o := range options {
		h.Write([]byte(o))
		h.Write([]byte{0})
	}
	h.Write([]byte(source))
	return hex.EncodeToString(h.Sum(nil))
}

func (c cubinCache) path(key string) string { return filepath.Join(c.dir, key+".cubin") }

// get returns the cubin of a key, or nil if there is none or it is damaged.
func (c cubinCache) get(key string) []byte {
	if c.dir == "" {
		return nil
	}
	b, err := os.ReadFile(c.path(key))
	if err != nil || len(b) <= sha256.Size {
		return nil
	}
	sum := sha256.Sum256(b[sha256.Size:])
	if !bytes.Equal(sum[:], b[:sha256.Size]) {
		return nil
	}
	return b[sha256.Size:]
}

// put stores a cubin: written beside its place and renamed, so that a reader
// sees all of it or none.
func (c cubinCache) put(key string, cubin []byte) {
	if c.dir == "" || os.MkdirAll(c.dir, 0o755) != nil {
		return
	}
	f, err := os.CreateTemp(c.dir, key+".*")
	if err != nil {
		return
	}
	sum := sha256.Sum256(cubin)
	_, err = f.Write(append(sum[:], cubin...))
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), c.path(key))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
}
