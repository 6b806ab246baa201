package cpu

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"exacta.dev/exacta/kernels"
)

// packedMagic begins a packed file; its last digit is the version of the layout of
// weights.
const packedMagic = "exacta packed 1\n"

// packedEntry is one parameter in a packed file: which it is, and where its memory
// lies.
type packedEntry struct {
	Name   string      `json:"name"`
	Use    kernels.Use `json:"use"`
	Rows   int         `json:"rows"`
	Cols   int         `json:"cols"`
	Paired bool        `json:"paired"`
	Int4   int         `json:"int4"`
	Size   int         `json:"size"`
	Off    int         `json:"off"`
}

// packedHeader is the JSON after the magic and four bytes of its length; the memory of
// the first parameter begins at the next page.
type packedHeader struct {
	Key     string        `json:"key"`
	Size    int64         `json:"size"` // of the file
	Entries []packedEntry `json:"entries"`
}

// packing is a packed file in use: mapped, or to be written.
type packing struct {
	path, key string
	chunk     *chunk // the mapping; nil where the file is to be written
	entries   map[packedEntry]int
}

// UsePacked takes the parameters that are loaded until FinishPacked from a file that
// an earlier FinishPacked has left at path under the same key, or else remembers to
// leave one. Such parameters are mapped: they are there at once, and processes share
// their memory. The key must change with the parameters' values.
func (b *Backend) UsePacked(path, key string) error {
	p := &packing{path: path, key: key}
	mem, err := mapFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("cpu: packed weights %s: %w", path, err)
	default:
		head, err := parsePacked(mem)
		if err == nil && head.Key != key {
			err = errors.New("it belongs to other weights")
		}
		if err != nil {
			return fmt.Errorf("cpu: packed weights %s: %w; remove the file", path, errors.Join(err, unmapMemory(mem)))
		}
		p.chunk = &chunk{mem: mem, purpose: kernels.Weights, file: true, top: len(mem)}
		p.entries = map[packedEntry]int{}
		for _, e := range head.Entries {
			off := e.Off
			e.Off = 0
			p.entries[e] = off
		}
		b.mem.chunks = append(b.mem.chunks, p.chunk)
	}
	b.packing = p
	return nil
}

// parsePacked reads the header and checks that it lies within the file.
func parsePacked(mem []byte) (*packedHeader, error) {
	start := len(packedMagic) + 4
	if len(mem) < start || string(mem[:len(packedMagic)]) != packedMagic {
		return nil, errors.New("it is not a packed file of this version")
	}
	n := int(binary.LittleEndian.Uint32(mem[len(packedMagic):]))
	if n > len(mem)-start {
		return nil, errors.New("it is cut")
	}
	var h packedHeader
	if err := json.Unmarshal(mem[start:start+n], &h); err != nil {
		return nil, err
	}
	if h.Size != int64(len(mem)) {
		return nil, fmt.Errorf("it has %d bytes of %d", len(mem), h.Size)
	}
	for _, e := range h.Entries {
		if e.Off < start+n || e.Off%lineBytes != 0 || e.Size < 0 || e.Off > len(mem)-e.Size {
			return nil, fmt.Errorf("parameter %s lies outside of it", e.Name)
		}
	}
	return &h, nil
}

// entry describes a parameter of size bytes.
func (w *weight) entry(size int) packedEntry {
	return packedEntry{Name: w.name, Use: w.use, Rows: w.rows, Cols: w.cols, Paired: w.paired, Int4: w.int4, Size: size}
}

// reserve gives w memory of size bytes; filled says that its parameter is there
// already, or will never be.
func (b *Backend) reserve(w *weight, size int) (filled bool, err error) {
	size = max(lineBytes, roundUp(size, lineBytes)) // as memory hands it out
	if p := b.packing; p != nil && p.chunk != nil {
		if off, ok := p.entries[w.entry(size)]; ok {
			w.mem = block{chunk: p.chunk, off: off, size: size}
			b.mem.used[kernels.Weights] += int64(size)
			return true, nil
		}
	}
	w.mem, err = b.mem.alloc(kernels.Weights, size)
	return b.plan, err
}

// FinishPacked ends what UsePacked began: it leaves the file if there was none, and
// says so. An error leaves no file; the parameters are loaded all the same.
func (b *Backend) FinishPacked() (written bool, err error) {
	p := b.packing
	b.packing = nil
	if p == nil || p.chunk != nil {
		return false, nil
	}
	if err := b.writePacked(p); err != nil {
		return false, fmt.Errorf("cpu: write packed weights to %s: %w", p.path, err)
	}
	return true, nil
}

func (b *Backend) writePacked(p *packing) (err error) {
	if err := os.MkdirAll(filepath.Dir(p.path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(p.path), ".writing-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // the first error is the one to report
			_ = os.Remove(f.Name())
		}
	}()
	head, text, err := b.packedHeader(p.key)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	at := 0
	put := func(off int, data []byte) {
		_, _ = io.CopyN(w, zeros{}, int64(off-at)) // Flush reports what fails
		_, _ = w.Write(data)
		at = off + len(data)
	}
	put(0, text)
	for i, e := range head.Entries {
		m := b.weights[i].mem
		put(e.Off, m.chunk.mem[m.off:m.off+m.size])
	}
	if err := errors.Join(w.Flush(), f.Chmod(0o644)); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), p.path)
}

// packedHeader lays the file out.
func (b *Backend) packedHeader(key string) (h packedHeader, text []byte, err error) {
	h.Key = key
	for _, w := range b.weights {
		h.Entries = append(h.Entries, w.entry(w.mem.size))
	}
	const digits = 24 // room for the offsets' and the size's
	body, err := json.Marshal(h)
	if err != nil {
		return h, nil, err
	}
	at := roundUp(len(packedMagic)+4+len(body)+digits*(len(h.Entries)+1), 4096)
	for i := range h.Entries {
		h.Entries[i].Off = at
		at += roundUp(h.Entries[i].Size, lineBytes)
	}
	h.Size = int64(at)
	if n := len(h.Entries); n > 0 {
		h.Size = int64(h.Entries[n-1].Off + h.Entries[n-1].Size)
	}
	if body, err = json.Marshal(h); err != nil {
		return h, nil, err
	}
	text = binary.LittleEndian.AppendUint32([]byte(packedMagic), uint32(len(body)))
	return h, append(text, body...), nil
}

// zeros reads as zeros without end.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
