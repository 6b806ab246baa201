package ranks

import (
	"fmt"
	"io"

	"exacta.dev/exacta/kernels"
)

const (
	// panel is the number of output rows that backends pack together; of a
	// paired weight, half as many pairs.
	panel = 64
	// grain is the least part of a panel that is split off, for weights of few
	// rows.
	grain = 8
)

// border returns the first of n outputs that belongs to a rank; of rank size
// it is n. Borders ascend; they are multiples of unit, or of the largest part of
// it, not below grain, of which every rank has two.
func border(n, rank, size, unit int) int {
	for unit > grain && n < 2*unit*size {
		unit /= 2
	}
	at := (n*rank + size - 1) / size
	return min(n, (at+unit-1)/unit*unit)
}

// weight is a parameter as the ranks hold it.
type weight struct {
	inner      kernels.Weight // none where this rank has no row of it
	name       string
	use        kernels.Use
	rows, cols int
	paired     bool
	experts    int // matrices of a Bank or Diagonal; else one
	// borders are the ranks' shares of the outputs (of a paired weight, of
	// the pairs): rank r has [borders[r], borders[r+1]). Nil if replicated.
	borders []int
}

// share returns the outputs of a rank.
func (w *weight) share(rank int) (from, to int) { return w.borders[rank], w.borders[rank+1] }

// owner returns the rank that has output i.
func (w *weight) owner(i int) int {
	r := 0
	for i >= w.borders[r+1] {
		r++
	}
	return r
}

// outputs returns the number of outputs of a product, of one expert of a Bank.
func (w *weight) outputs() int {
	if w.use == kernels.Diagonal {
		return w.rows
	}
	n := w.rows / w.experts
	if w.paired {
		n /= 2
	}
	return n
}

// split sets the shares of a matrix, or of every matrix of a bank.
func (w *weight) split(size int) {
	if w.use == kernels.Diagonal { // whole blocks
		for r := range size + 1 {
			w.borders = append(w.borders, w.experts*r/size*(w.rows/w.experts))
		}
		return
	}
	unit := panel
	if w.paired {
		unit = panel / 2
	}
	for r := range size + 1 {
		w.borders = append(w.borders, border(w.outputs(), r, size, unit))
	}
}

// cut returns the rows of t that a rank keeps; it must keep some.
func (w *weight) cut(t kernels.Tensor, rank int) kernels.Tensor {
	from, to := w.share(rank)
	out := t
	out.Parts = nil
	base := 0
	for _, p := range t.Parts {
		if w.paired || w.use == kernels.Bank {
			out.Parts = append(out.Parts, rows(p, from, to))
			continue
		}
		if lo, hi := max(from-base, 0), min(to-base, p.Rows); lo < hi {
			out.Parts = append(out.Parts, rows(p, lo, hi))
		}
		base += p.Rows
	}
	return out
}

// rows returns rows [from, to) of a source.
func rows(p kernels.Source, from, to int) kernels.Source {
	if from == 0 && to == p.Rows {
		return p
	}
	cut := func(src io.ReaderAt, line int) io.ReaderAt {
		if src == nil {
			return nil
		}
		return io.NewSectionReader(src, int64(from)*int64(line), int64(to-from)*int64(line))
	}
	line := p.Cols * p.DType.Size()
	if p.DType == kernels.DTypeInt4 {
		q, groups := *p.Int4, p.Cols/p.Int4.Group
		q.Scales, q.Zeros = cut(q.Scales, 2*groups), cut(q.Zeros, groups)
		p.Int4, line = &q, p.Cols/2
	}
	p.Name = fmt.Sprintf("%s[%d:%d]", p.Name, from, to)
	p.Data = cut(p.Data, line)
	p.Rows = to - from
	return p
}
