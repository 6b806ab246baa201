package cpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu/vec"
)

// run is a range of rows of one part that become consecutive lanes of a panel.
type run struct {
	part    int
	from, n int // rows of the part
	lane    int
}

// runs lists what panel p is made of.
func runs(w *weight, t kernels.Tensor, p int, dst []run) []run {
	dst = dst[:0]
	if w.paired {
		for i, part := range t.Parts {
			from := p * halfRows
			if n := min(halfRows, part.Rows-from); n > 0 {
				dst = append(dst, run{part: i, from: from, n: n, lane: i * halfRows})
			}
		}
		return dst
	}
	first, last := p*panelRows, min((p+1)*panelRows, w.rows)
	base := 0
	for i, part := range t.Parts {
		from, to := max(first, base), min(last, base+part.Rows)
		if from < to {
			dst = append(dst, run{part: i, from: from - base, n: to - from, lane: from - first})
		}
		base += part.Rows
	}
	return dst
}

// claimBytes is about what a goroutine that packs takes at a time: enough that giving
// pages of a file back costs little.
const claimBytes = 4 << 20

// packPanels reads the parts of t and fills the panels of w with threads
// goroutines. The memory of w is zero, so the lanes beyond its rows stay zero.
func packPanels(w *weight, t kernels.Tensor, threads int, set *vec.Set) error {
	var next atomic.Int64
	var mu sync.Mutex
	var first error
	var wg sync.WaitGroup
	claim := max(1, min(claimBytes/(2*w.halfBytes()), w.panels/(4*threads)))
	for range min(threads, w.panels) {
		wg.Go(func() {
			pk := packer{w: w, t: t, set: set}
			for {
				p := int(next.Add(int64(claim))) - claim
				if p >= w.panels {
					return
				}
				if err := pk.panels(p, min(p+claim, w.panels)); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
					next.Store(int64(w.panels))
					return
				}
			}
		})
	}
	wg.Wait()
	return first
}

// packer has the buffers of one goroutine that packs.
type packer struct {
	w    *weight
	t    kernels.Tensor
	set  *vec.Set
	raw  []byte
	runs []run
	// Of rows that are rounded to BF16.
	rounded []byte
	wide    []float32
	half    []uint16
}

// panels packs panels [from, to) and lets go of what they were read from.
func (pk *packer) panels(from, to int) error {
	for p := from; p < to; p++ {
		if err := pk.panel(p); err != nil {
			return err
		}
	}
	first := runs(pk.w, pk.t, from, nil)
	last := runs(pk.w, pk.t, to-1, nil)
	for i, part := range pk.t.Parts {
		v, ok := part.Data.(kernels.Viewer)
		if !ok {
			continue
		}
		lo, hi := part.Rows, 0
		for _, r := range append(first, last...) {
			if r.part == i {
				lo, hi = min(lo, r.from), max(hi, r.from+r.n)
			}
		}
		if line := part.Cols * part.DType.Size(); lo < hi {
			if err := v.Drop(int64(lo)*int64(line), (hi-lo)*line); err != nil {
				return fmt.Errorf("cpu: load %s: part %s: %w", pk.t.Name, part.Name, err)
			}
		}
	}
	return nil
}

func (pk *packer) panel(p int) error {
	if pk.w.int4 > 0 {
		return pk.panel4(p)
	}
	k := pk.w.cols
	dst := unsafe.Slice((*uint32)(pk.w.panel(p)), panelRows*k/2)
	pk.runs = runs(pk.w, pk.t, p, pk.runs)
	for _, r := range pk.runs {
		part := pk.t.Parts[r.part]
		raw, view, err := viewRows(&pk.raw, pk.t.Name, part, r.from, r.n)
		if err != nil {
			return err
		}
		size := len(raw)
		if part.DType != kernels.DTypeBF16 {
			raw = pk.round(raw, r.n, part.DType)
		}
		if odd := pk.pack(dst, raw, r.n, r.lane); odd && view != nil {
			if err := view.Check(int64(r.from)*int64(size/r.n), size); err != nil {
				return loadError(pk.t.Name, part, r.from, r.n, err)
			}
		}
	}
	return nil
}

// round converts n rows to BF16, little-endian.
func (pk *packer) round(raw []byte, n int, d kernels.DType) []byte {
	k, size := pk.w.cols, d.Size()
	if len(pk.rounded) < 2*n*k {
		pk.rounded = make([]byte, 2*n*k)
		pk.wide, pk.half = make([]float32, k), make([]uint16, k)
	}
	for i := range n {
		widen(pk.wide, raw[i*k*size:(i+1)*k*size], d)
		pk.set.ToBF16(pk.half, pk.wide)
		for j, h := range pk.half {
			binary.LittleEndian.PutUint16(pk.rounded[2*(i*k+j):], h)
		}
	}
	return pk.rounded[:2*n*k]
}

// pack puts the pairs of n rows into their lanes. odd says that there may be a NaN or
// an infinity among them.
func (pk *packer) pack(dst []uint32, raw []byte, n, lane int) (odd bool) {
	line, whole := 2*pk.w.cols, 0
	blocks := line / (4 * vec.LaneRows)
	if lane%vec.LaneRows == 0 && blocks > 0 {
		whole = n / vec.LaneRows * vec.LaneRows
	}
	const step = 8 // blocks at a time, so that writes go on where they ended
	var seen uint64
	for b := 0; b < blocks; b += step {
		for r := 0; r < whole; r += vec.LaneRows {
			seen |= pk.set.Interleave(&dst[b*vec.LaneRows*panelRows+lane+r], &raw[r*line+b*4*vec.LaneRows], line, min(step, blocks-b))
		}
	}
	packRows(dst, raw, whole, line, 4*vec.LaneRows*blocks, lane)
	packRows(dst, raw[whole*line:], n-whole, line, 0, lane+whole)
	return seen != 0 || whole < n || line%(4*vec.LaneRows) != 0
}

// packRows puts the pairs of n rows of line bytes, from byte begin of each on, into
// their lanes, 16 pairs of all rows at a time, so that what is written stays in the
// first-level cache.
func packRows(dst []uint32, raw []byte, n, line, begin, lane int) {
	const block = 64
	for from := begin; from < line; from += block {
		to := min(from+block, line)
		for i := range n {
			row := raw[i*line+from : i*line+to]
			out := dst[from/4*panelRows+lane+i:]
			for len(row) >= 4 {
				out[0] = binary.LittleEndian.Uint32(row)
				if row = row[4:]; len(row) >= 4 {
					out = out[panelRows:]
				}
			}
		}
	}
}

// viewRows gives rows [from, from+n) of a part where they lie, unchecked, with the
// view that checks them, or read into *buf.
func viewRows(buf *[]byte, tensor string, p kernels.Source, from, n int) ([]byte, kernels.Viewer, error) {
	if v, ok := p.Data.(kernels.Viewer); ok {
		line := p.Cols * p.DType.Size()
		if b := v.View(int64(from)*int64(line), n*line); b != nil {
			return b, v, nil
		}
	}
	b, err := readRows(buf, tensor, p, from, n)
	return b, nil, err
}

// readRows reads rows [from, from+n) of a part into *buf.
func readRows(buf *[]byte, tensor string, p kernels.Source, from, n int) ([]byte, error) {
	line := p.Cols * p.DType.Size()
	if len(*buf) < n*line {
		*buf = make([]byte, n*line)
	}
	b := (*buf)[:n*line]
	got, err := p.Data.ReadAt(b, int64(from)*int64(line))
	if got == len(b) {
		return b, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, loadError(tensor, p, from, n, err)
}

func loadError(tensor string, p kernels.Source, from, n int, err error) error {
	return fmt.Errorf("cpu: load %s: rows %d to %d of part %s: %w", tensor, from, from+n-1, p.Name, err)
}

// readValues widens the parts of t into dst; Taps are transposed to [K][C].
func readValues(dst []float32, t kernels.Tensor) error {
	rows, cols := t.Shape()
	var buf []byte
	line := make([]float32, cols)
	at := 0
	for _, p := range t.Parts {
		size := p.DType.Size()
		step := max(1, (1<<16)/(cols*size))
		for from := 0; from < p.Rows; from += step {
			n := min(step, p.Rows-from)
			raw, err := readRows(&buf, t.Name, p, from, n)
			if err != nil {
				return err
			}
			for i := range n {
				row := raw[i*cols*size : (i+1)*cols*size]
				if t.Use != kernels.Taps {
					widen(dst[at*cols:(at+1)*cols], row, p.DType)
				} else {
					widen(line, row, p.DType)
					for k, v := range line {
						dst[k*rows+at] = v
					}
				}
				at++
			}
		}
	}
	return nil
}

// widen converts little-endian file elements to float32.
func widen(dst []float32, src []byte, d kernels.DType) {
	switch d {
	case kernels.DTypeF32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case kernels.DTypeF16:
		for i := range dst {
			dst[i] = half(binary.LittleEndian.Uint16(src[2*i:]))
		}
	default:
		for i := range dst {
			dst[i] = vec.F32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	}
}

// half widens an IEEE half-precision number.
func half(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exp, frac := uint32(h>>10)&31, uint32(h)&1023
	switch exp {
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	case 0:
		f := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(f))
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}
