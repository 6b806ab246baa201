package ref

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// windowForm is the parallel form of the recurrence of one value head over a
// window that starts at a zero state (Yang et al. 2024, arXiv:2412.06464): U
// solves (I + A) U = diag(beta) V. Rows of q, k, v are given after
// normalisation.
func windowForm(q, k, v [][]float64, beta, g []float64) [][]float64 {
	n, vdim := len(q), len(v[0])
	cum := make([]float64, n)
	u := make([][]float64, n)
	out := make([][]float64, n)
	for t := range n {
		cum[t] = g[t]
		if t > 0 {
			cum[t] += cum[t-1]
		}
		u[t], out[t] = make([]float64, vdim), make([]float64, vdim)
		for x := range vdim {
			u[t][x] = beta[t] * v[t][x]
			for j := range t {
				u[t][x] -= beta[t] * math.Exp(cum[t]-cum[j]) * dot(k[t], k[j]) * u[j][x]
			}
			for j := range t + 1 {
				out[t][x] += math.Exp(cum[t]-cum[j]) * dot(q[t], k[j]) * u[j][x]
			}
		}
	}
	return out
}

// unit returns v with length about 1, times scale.
func unit(v []float64, scale float64) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = v[i] / math.Sqrt(dot(v, v)+1e-6) * scale
	}
	return out
}

func TestDeltaEqualsWindowForm(t *testing.T) {
	const n, kh, vh, kd, vd, conv = 40, 2, 4, 6, 5, 4
	const c = 2*kh*kd + vh*vd
	r := newRig(t)
	cs, err := r.be.Caches(kernels.CacheSpec{
		Layers: []kernels.LayerSpec{{Kind: kernels.Delta, KHeads: kh, VHeads: vh, KDim: kd, VDim: vd, Conv: conv}},
		Slots:  1, MaxDraft: 3,
	})
	require.NoError(t, err)
	width := c + vh*vd + 2*vh
	x, taps, aLog, dt, nw := r.random(n*width), r.random(c*conv), r.random(vh), r.random(vh), r.random(vd)
	spec := &kernels.DeltaSpec{
		KHeads: kh, VHeads: vh, KDim: kd, VDim: vd, Conv: conv, Gate: kernels.SiLU,
		Taps: r.load(kernels.Taps, c, conv, taps), ALog: r.load(kernels.Vector, 1, vh, aLog),
		DtBias: r.load(kernels.Vector, 1, vh, dt), Norm: kernels.Norm{W: r.load(kernels.Vector, 1, vd, nw), Eps: 1e-5},
	}
	dst := r.floats(kernels.BF16, n, vh*vd, nil)
	r.q.Delta(dst, r.floats(kernels.BF16, n, width, x), cs.Layer(0), r.chain(0, n), spec)
	got := r.values(dst)

	conved := make([][]float64, n)
	for i := range n {
		for ch := range c {
			var s float64
			for j := range conv {
				if p := i - (conv - 1) + j; p >= 0 {
					s += taps[ch*conv+j] * x[p*width+ch]
				}
			}
			conved[i] = append(conved[i], s/(1+math.Exp(-s)))
		}
	}
	for h := range vh {
		var q, k, v [][]float64
		var beta, g []float64
		for i := range n {
			key := h / (vh / kh) * kd
			q = append(q, unit(conved[i][key:key+kd], 1/math.Sqrt(kd)))
			k = append(k, unit(conved[i][kh*kd+key:kh*kd+key+kd], 1))
			v = append(v, conved[i][2*kh*kd+h*vd:2*kh*kd+(h+1)*vd])
			b, a := x[i*width+c+vh*vd+h], x[i*width+c+vh*vd+vh+h]
			beta = append(beta, 1/(1+math.Exp(-b)))
			g = append(g, -math.Exp(aLog[h])*math.Log(1+math.Exp(a+dt[h])))
		}
		for i, o := range windowForm(q, k, v, beta, g) {
			rms := math.Sqrt(dot(o, o)/vd + float64(float32(1e-5)))
			for j := range o {
				z := x[i*width+c+h*vd+j]
				want := o[j] / rms * nw[j] * z / (1 + math.Exp(-z))
				require.InDelta(t, want, got[i*vh*vd+h*vd+j], 1e-9*math.Max(1, math.Abs(want)), "row %d head %d", i, h)
			}
		}
	}
}

func TestAttendEqualsDefinition(t *testing.T) {
	const n, qh, kvh, d, rot, first = 70, 4, 2, 6, 4, 1
	r := newRig(t)
	cs, err := r.be.Caches(kernels.CacheSpec{
		Layers: []kernels.LayerSpec{{Kind: kernels.Attention, KVHeads: kvh, HeadDim: d}},
		Slots:  1, Pages: 3, SlotPages: 2,
	})
	require.NoError(t, err)
	width := 2*qh*d + 2*kvh*d
	x, rope := r.random(n*width), r.random(n*rot)
	spec := &kernels.AttnSpec{
		QHeads: qh, KVHeads: kvh, HeadDim: d, Scale: 0.4, Gated: true, Rope: r.load(kernels.Table, n, rot, rope),
		Rotary: rot, FirstKey: first,
	}
	dst := r.floats(kernels.BF16, n, qh*d, nil)
	proj := r.floats(kernels.BF16, n, width, x)
	r.q.SetPages(cs, 0, 0, []int32{2, 0})
	r.q.Attend(dst.Top(30), proj.Top(30), cs.Layer(0), r.chain(0, 30), spec)
	r.q.Attend(dst.Slice(30, n), proj.Slice(30, n), cs.Layer(0), r.chain(30, n-30), spec)
	got := r.values(dst)

	rotated := func(i, at int) []float64 {
		v := append([]float64(nil), x[i*width+at:i*width+at+d]...)
		for p := range rot / 2 {
			a, b, c, s := v[p], v[p+rot/2], rope[i*rot+p], rope[i*rot+rot/2+p]
			v[p], v[p+rot/2] = a*c-b*s, b*c+a*s
		}
		return v
	}
	for i := range n {
		for h := range qh {
			want, sum := make([]float64, d), 0.0
			key := 2*qh*d + h/(qh/kvh)*d
			for j := first; j <= i; j++ {
				p := math.Exp(float64(float32(0.4)) * dot(rotated(i, 2*h*d), rotated(j, key)))
				sum += p
				for e := range d {
					want[e] += p * x[j*width+key+kvh*d+e]
				}
			}
			for e := range d {
				gate := x[i*width+(2*h+1)*d+e]
				w := 0.0
				if sum > 0 {
					w = want[e] / sum / (1 + math.Exp(-gate))
				}
				require.InDelta(t, w, got[i*qh*d+h*d+e], 1e-9, "row %d head %d", i, h)
			}
		}
	}
}
