package quant

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

// Moments are the second moments of the inputs of a product, sum of x xᵀ, and how
// many inputs there were.
type Moments struct {
	Inputs, Count int
	Sum           []float64 // [Inputs, Inputs], the lower triangle
}

// NewMoments returns moments of nothing.
func NewMoments(inputs int) *Moments {
	return &Moments{Inputs: inputs, Sum: make([]float64, inputs*inputs)}
}

// Add counts rows of inputs in.
func (m *Moments) Add(rows [][]float32) {
	parallel(m.Inputs, func(i int) {
		sum := m.Sum[i*m.Inputs:][:i+1]
		for _, x := range rows {
			if v := float64(x[i]); v != 0 {
				for j := range sum {
					sum[j] += v * float64(x[j])
				}
			}
		}
	})
	m.Count += len(rows)
}

// damping is the share of the mean diagonal that is added to the diagonal. The
// reference implementation of GPTQ adds 0.01; with thousands of inputs of a narrow head
// less is better.
const damping = 0.002

// factor returns the upper triangular U with UᵀU = (moments, damped)^-1, row-major,
// and the diagonal of the moments.
func (m *Moments) factor() (u, diag []float64, err error) {
	n := m.Inputs
	a := append([]float64(nil), m.Sum...)
	diag = make([]float64, n)
	mean := 0.0
	for i := range n {
		diag[i] = a[i*n+i]
		mean += diag[i] / float64(n)
	}
	if !(mean > 0) || math.IsInf(mean, 0) {
		return nil, nil, fmt.Errorf("%d inputs with a mean square of %v; nothing can be learned from them", m.Count, mean)
	}
	for i := range n {
		a[i*n+i] += damping * mean
	}
	if err := cholesky(a, n); err != nil {
		return nil, nil, err
	}
	inv := invert(a, n)
	// U is the transposed factor of the inverse.
	if err := cholesky(inv, n); err != nil {
		return nil, nil, err
	}
	u = make([]float64, n*n)
	for i := range n {
		for j := range i + 1 {
			u[j*n+i] = inv[i*n+j]
		}
	}
	return u, diag, nil
}

// cholesky replaces the lower triangle of a by L with LLᵀ = a.
func cholesky(a []float64, n int) error {
	for j := range n {
		row := a[j*n:][:j]
		d := a[j*n+j]
		for _, v := range row {
			d -= v * v
		}
		if !(d > 0) {
			return fmt.Errorf("moments are not positive definite at column %d", j)
		}
		d = math.Sqrt(d)
		a[j*n+j] = d
		parallel(n-j-1, func(k int) {
			i := j + 1 + k
			s := a[i*n+j]
			for t, v := range a[i*n:][:j] {
				s -= v * row[t]
			}
			a[i*n+j] = s / d
		})
	}
	return nil
}

// invert returns the lower triangle of (LLᵀ)^-1.
func invert(l []float64, n int) []float64 {
	// Columns of L^-1, as rows of t.
	t := make([]float64, n*n)
	parallel(n, func(c int) {
		x := t[c*n:][:n]
		x[c] = 1 / l[c*n+c]
		for i := c + 1; i < n; i++ {
			s := 0.0
			for k := c; k < i; k++ {
				s += l[i*n+k] * x[k]
			}
			x[i] = -s / l[i*n+i]
		}
	})
	inv := make([]float64, n*n)
	parallel(n, func(i int) {
		for j := range i + 1 {
			s := 0.0
			for k := i; k < n; k++ {
				s += t[i*n+k] * t[j*n+k]
			}
			inv[i*n+j] = s
		}
	})
	return inv
}

// clips are the shares of a group's range that GPTQ tries.
var clips = []float32{1, 0.96, 0.92, 0.88, 0.84, 0.8, 0.75, 0.7, 0.65}

// GPTQ quantises w, [rows, cols] row-major, for inputs of the given moments.
func GPTQ(name string, w []float32, rows, cols int, m *Moments, o Options) (*Matrix, error) {
	if err := o.Check(name, cols); err != nil {
		return nil, err
	}
	if m == nil || m.Inputs != cols {
		return nil, fmt.Errorf("%s has %d columns, but no inputs of that width were recorded", name, cols)
	}
	u, diag, err := m.factor()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	q := newMatrix(rows, cols, o)
	parallel(rows, func(r int) { q.fit(r, w[r*cols:][:cols], u, diag, o) })
	return q, nil
}

// wideFit is the number of columns up to which GPTQ goes through a row several times.
const wideFit = 1024

// fit quantises row r: rows don't influence each other. Where that takes little time,
// it tries each clip for the whole row too, and keeps what loses least.
func (m *Matrix) fit(r int, w []float32, u, diag []float64, o Options) {
	tries := len(clips) + 1
	if m.Cols > wideFit {
		tries = 1
	}
	best, least := row{}, math.Inf(1)
	for i := range tries {
		try := clips
		if i > 0 {
			try = clips[i-1 : i]
		}
		if c := fitRow(w, u, diag, o, try); c.loss < least {
			best, least = c, c.loss
		}
	}
	for i, q := range best.q {
		m.put(r, i, q)
		if i%o.Group == 0 {
			m.putGrid(r, i, best.grids[i/o.Group])
		}
	}
}

// row is a quantised row and what it loses: the squared error of the products.
type row struct {
	q     []byte
	grids []grid
	loss  float64
}

// fitRow goes through a row's columns; each group's grid has the best of the clips.
func fitRow(from []float32, u, diag []float64, o Options, try []float32) row {
	n := len(from)
	w, out := append([]float32(nil), from...), row{q: make([]byte, n)}
	var g grid
	for i := range n {
		if i%o.Group == 0 {
			g = bestGrid(w[i:][:o.Group], diag[i:], o.ZeroPoints, try)
			out.grids = append(out.grids, g)
		}
		var v float32
		out.q[i], v = g.nearest(w[i])
		line := u[i*n:][:n]
		e := float64(w[i]-v) / line[i]
		out.loss += e * e
		for j := i + 1; j < n; j++ {
			w[j] -= float32(e * line[j])
		}
	}
	return out
}

// bestGrid picks the clip with the least error, weighted by the inputs' squares.
func bestGrid(w []float32, weight []float64, zeroPoints bool, clips []float32) grid {
	var best grid
	least := math.Inf(1)
	for _, c := range clips {
		g, sum := newGrid(w, zeroPoints, c), 0.0
		for i, x := range w {
			_, v := g.nearest(x)
			d := float64(x - v)
			sum += d * d * weight[i]
		}
		if sum < least {
			best, least = g, sum
		}
	}
	return best
}

// parallel runs f(0..n-1) on all cores, in runs of neighbours.
func parallel(n int, f func(i int)) {
	workers := min(runtime.GOMAXPROCS(0), n/8+1)
	if workers < 2 {
		for i := range n {
			f(i)
		}
		return
	}
	const run = 8
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				from := int(next.Add(run)) - run
				if from >= n {
					return
				}
				for i := from; i < min(from+run, n); i++ {
					f(i)
				}
			}
		})
	}
	wg.Wait()
}
