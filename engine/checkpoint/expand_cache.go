package checkpoint

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// expandedFile holds the expanded weights of a checkpoint, in its folder of the cache.
const expandedFile = "expanded.safetensors"

// expands reports whether a tensor is made of 8 or 4 bits and belongs into the cache.
// Tables of n-grams don't: a token asks for a few of their rows, and the table is
// larger than all else.
func expands(t Tensor) bool {
	_, ok := t.rows.(*scaled)
	return ok && !strings.HasSuffix(t.Name, ".engram.embed.weight")
}

// Expanded reports whether there are weights of 8 or 4 bits that are expanded to BF16
// each time they are read: those of a checkpoint of safetensors files, but for tables of
// n-grams, that UseCache has not replaced.
func (ck *Checkpoint) Expanded() bool {
	for _, t := range ck.tensors {
		if expands(t) {
			return true
		}
	}
	return false
}

// UseCache replaces the weights of 8 or 4 bits by BF16 ones in a file below dir that
// an earlier call has left, or writes that file first, which takes time and two bytes
// a weight. Where there are none, or the checkpoint is not a directory, it does
// nothing. After an error the checkpoint is as it was: its weights are expanded as
// they are read.
func (ck *Checkpoint) UseCache(ctx context.Context, dir string) error {
	where, isDir := ck.source.(dirSource)
	if !isDir || !ck.Expanded() {
		return nil
	}
	key, err := ck.fileKey(string(where))
	if err != nil {
		return fmt.Errorf("checkpoint %s: cache of expanded weights: %w", ck.name, err)
	}
	path := filepath.Join(dir, key, expandedFile)
	if _, err := os.Stat(path); err != nil {
		if err := ck.writeCache(ctx, path); err != nil {
			return fmt.Errorf("checkpoint %s: write expanded weights to %s: %w", ck.name, path, err)
		}
	}
	if err := ck.readCache(path); err != nil {
		return fmt.Errorf("checkpoint %s: expanded weights in %s: %w; remove the file", ck.name, path, err)
	}
	return nil
}

// FileKey is an identity of the checkpoint's weights that costs nothing: it changes
// with the headers, sizes and times of its files. It is empty for one that is not on
// disk.
func (ck *Checkpoint) FileKey() (string, error) {
	switch where := ck.source.(type) {
	case dirSource:
		return ck.fileKey(string(where))
	case ggufSource:
		return ck.fileKey(filepath.Dir(ck.name))
	}
	return "", nil
}

func (ck *Checkpoint) fileKey(dir string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, "expanded 1", ck.Hash())
	for _, f := range ck.files {
		info, err := os.Stat(filepath.Join(dir, f.name))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, f.name, info.Size(), info.ModTime().UnixNano())
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// writeCache writes the file whole or not at all.
func (ck *Checkpoint) writeCache(ctx context.Context, path string) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "writing-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	var list []Data
	for _, name := range ck.Names() {
		if t := ck.tensors[name]; expands(t) {
			list = append(list, Data{Name: name, DType: t.DType, Shape: t.Shape, From: reading{ctx, t}})
		}
	}
	out := bufio.NewWriterSize(f, 1<<20)
	if err := WriteSafetensors(out, list, map[string]string{"source": ck.Hash()}); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// reading is a tensor that stops to be read when ctx ends.
type reading struct {
	ctx context.Context
	Tensor
}

// ReadAt implements io.ReaderAt.
func (r reading) ReadAt(p []byte, off int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.Tensor.ReadAt(p, off)
	if off+int64(n) == r.Size() {
		if e := r.Discard(); err == nil {
			err = e
		}
	}
	return n, err
}

// readCache takes the expanded weights from the file, if it has them all.
func (ck *Checkpoint) readCache(path string) error {
	data, unmap, err := mapFile(path)
	if err != nil {
		return err
	}
	cache := weightFile{name: path, data: data, unmap: unmap, from: newMapping(data)}
	tensors := map[string]Tensor{}
	if cache.head, err = parseHeader(data, int64(len(data))); err == nil {
		tensors, err = ck.cached(&cache)
	}
	if err != nil {
		_ = unmap() // the file's error is the one to report
		return err
	}
	for name, t := range tensors {
		ck.tensors[name] = t
	}
	ck.cache = cache
	return nil
}

// cached makes the tensors of a cache file, and checks them against those that they
// stand for.
func (ck *Checkpoint) cached(f *weightFile) (map[string]Tensor, error) {
	out := map[string]Tensor{}
	for _, e := range f.head.entries {
		old, ok := ck.tensors[e.name]
		if !ok || e.dtype != old.DType || !slices.Equal(e.shape, old.Shape) {
			return nil, fmt.Errorf("tensor %q is not one of the checkpoint", e.name)
		}
		at := f.head.size
		old.data, old.rows, old.file = f.data[at+e.begin:at+e.end:at+e.end], nil, f.from
		out[e.name] = old
	}
	for name, t := range ck.tensors {
		if _, ok := out[name]; expands(t) && !ok {
			return nil, fmt.Errorf("tensor %q is missing", name)
		}
	}
	return out, nil
}
