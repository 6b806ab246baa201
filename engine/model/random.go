package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// Random is a Source of made-up weights for a configuration: matrices are
// uniform with the standard deviation that keeps activations near one, norms
// are neutral, and everything is a function of the seed, the tensor's name and
// the element's index. It serves measurements of speed, where only the shape
// matters, and tests.
type Random struct {
	ShapeName string
	Shape     checkpoint.Config
	Seed      uint64
}

var _ Source = Random{}

// Name implements Source.
func (r Random) Name() string { return "random:" + r.ShapeName }

// Config implements Source.
func (r Random) Config() checkpoint.Config { return r.Shape }

// Has implements Source: every tensor that the configuration implies.
func (r Random) Has(string) bool { return true }

// Done implements Source.
func (r Random) Done(string) error { return nil }

// Ints implements Source: the experts of tokens, no row with one twice.
func (r Random) Ints(name string, n int) ([]int64, error) {
	if !strings.HasSuffix(name, expertTable) {
		return nil, errors.ErrUnsupported
	}
	out, k, experts := make([]int64, n), r.Shape.MoE.PerToken, uint64(r.Shape.MoE.Experts)
	for i := range out {
		first := splitmix(r.Seed ^ hashName(name) + uint64(i/k))
		out[i] = int64((first%experts + uint64(i%k)) % experts)
	}
	return out, nil
}

// Alike implements Source: as many numbers as the configuration asks for.
func (r Random) Alike() ([]int32, int, error) {
	ids, n := make([]int32, r.Shape.VocabSize), max(1, min(r.Shape.Grams.Alike, r.Shape.VocabSize))
	for i := range ids {
		ids[i] = int32(i % n)
	}
	return ids, n, nil
}

// Matrix implements Source.
func (r Random) Matrix(name string, rows, cols int) (kernels.Source, error) {
	if rows <= 0 || cols <= 0 {
		return kernels.Source{}, fmt.Errorf("%s: tensor %s of shape [%d, %d]", r.Name(), name, rows, cols)
	}
	g := generator{key: splitmix(r.Seed ^ hashName(name)), size: int64(rows) * int64(cols) * 2}
	switch {
	case strings.HasSuffix(name, "A_log"):
		g.mean, g.spread = 1.2, 1.2
	case strings.HasSuffix(name, "dt_bias"):
		g.mean, g.spread = -2, 1
	case strings.HasSuffix(name, "linear_attn.norm.weight"), strings.HasSuffix(name, "engram.q_weight"), strings.HasSuffix(name, "engram.k_weight"):
		g.mean, g.spread = 1, 0.1
	case strings.HasSuffix(name, "norm.weight") || strings.Contains(name, "pre_fc_norm"):
		g.spread = 0.1
		if !families[r.Shape.Family].centered {
			g.mean = 1
		}
	case strings.Contains(name, "hc_") && strings.HasSuffix(name, "_scale"):
		g.mean, g.spread = 1, 0.5
	case strings.Contains(name, "hc_") && strings.HasSuffix(name, "_base"), strings.HasSuffix(name, ".ape"), strings.HasSuffix(name, "attn_sink"):
		g.spread = 1
	case strings.HasSuffix(name, ".bias") || strings.HasSuffix(name, "_bias"):
		g.spread = 0.1
	case strings.HasSuffix(name, "conv1d.weight"):
		g.spread = 0.6
	default:
		g.spread = float32(math.Sqrt(3 / float64(cols)))
	}
	return kernels.Source{Name: name, Rows: rows, Cols: cols, DType: kernels.DTypeBF16, Data: g}, nil
}

// generator yields BF16 values mean + spread*u, u uniform in [-1, 1), or raw bits.
type generator struct {
	key          uint64
	mean, spread float32
	size         int64
	raw          bool
}

// piece is the bytes that one goroutine makes of a large read.
const piece = 1 << 20

// ReadAt implements io.ReaderAt. Offsets and lengths need not be aligned.
func (g generator) ReadAt(p []byte, off int64) (int, error) {
	if len(p) <= piece {
		return g.fill(p, off)
	}
	return g.fillAll(p, off)
}

// fillAll is fill by several goroutines.
func (g generator) fillAll(p []byte, off int64) (int, error) {
	var wg sync.WaitGroup
	done := 0
	for ; len(p)-done > piece && off+piece <= g.size; done, off = done+piece, off+piece {
		part, at := p[done:done+piece], off
		wg.Go(func() { g.fill(part, at) })
	}
	n, err := g.fill(p[done:], off)
	wg.Wait()
	return done + n, err
}

func (g generator) fill(p []byte, off int64) (int, error) {
	n := 0
	var word [8]byte
	for n < len(p) && off < g.size {
		g.word(word[:], uint64(off)/8)
		m := copy(p[n:], word[off%8:min(8, off%8+g.size-off)])
		n += m
		off += int64(m)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (g generator) word(dst []byte, i uint64) {
	z := splitmix(g.key + i)
	if g.raw {
		binary.LittleEndian.PutUint64(dst, z)
		return
	}
	for k := range 4 {
		u := float32(int16(z>>(16*k))) * (1.0 / 32768)
		v := g.mean + float32(g.spread*u)
		binary.LittleEndian.PutUint16(dst[2*k:], uint16(math.Float32bits(v)>>16))
	}
}

func splitmix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func hashName(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
