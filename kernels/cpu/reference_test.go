package cpu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// attendReference runs the attention of s over a sequence in float64.
func attendReference(l *layerCase, s attnShape, gated bool, seq, n int) (out [][]float64) {
	norms := [2][]float64{wide(random(21, s.dim, 0.5)), wide(random(22, s.dim, 0.5))}
	rope := wide(random(23, testPages*page*s.rotary, 0.6))
	head := func(x []float64, norm, pos int) []float64 {
		y := normed(x, norms[norm], s.dim, 1e-6, true)
		half := s.rotary / 2
		for i := range half {
			c, d := rope[pos*s.rotary+i], rope[pos*s.rotary+half+i]
			y[i], y[i+half] = y[i]*c-y[i+half]*d, y[i+half]*c+y[i]*d
		}
		return y
	}
	qs, d := 1, s.dim
	if gated {
		qs = 2
	}
	var keys, values [][]float64
	for pos := range n {
		in := wide(l.input(seq, pos, false))
		row := make([]float64, s.heads*d)
		kv := in[s.heads*qs*d:]
		for h := range s.kv {
			keys, values = append(keys, head(kv[h*d:][:d], 1, pos)), append(values, kv[(s.kv+h)*d:][:d])
		}
		for h := range s.heads {
			q := head(in[h*qs*d:][:d], 0, pos)
			sum := 0.0
			for t := s.first; t <= pos; t++ {
				i := t*s.kv + h/(s.heads/s.kv)
				dot := 0.0
				for c := range d {
					dot += q[c] * keys[i][c]
				}
				p := math.Exp(testScale * dot)
				sum += p
				for c := range d {
					row[h*d+c] += p * values[i][c]
				}
			}
			for c := range d {
				if sum > 0 {
					row[h*d+c] /= sum
				}
				if gated {
					row[h*d+c] *= sigmoid(in[(2*h+1)*d+c])
				}
			}
		}
		out = append(out, row)
	}
	return out
}

func TestAttendReference(t *testing.T) {
	for _, c := range []struct {
		s     attnShape
		gated bool
		n     int
	}{{attnShape{4, 2, 64, 16, 0}, true, 130}, {attnShape{3, 1, 24, 8, 1}, false, 70}, {attnShape{2, 2, 128, 128, 0}, false, 70}, {attnShape{2, 1, 16, 0, 0}, true, 600}} {
		l := newAttnCase(t, 2, "", c.s, c.gated)
		want := attendReference(l, c.s, c.gated, 5, c.n)
		require.Less(t, distance(want, l.whole(5, c.n)), 0.006, "%v", c)
	}
}

// deltaReference runs the recurrence step by step in float64.
func deltaReference(l *layerCase, kh, vh, kd, vd, conv, seq, n int) (out [][]float64) {
	ch := 2*kh*kd + vh*vd
	taps, norm := wide(random(34, ch*conv, 0.6)), wide(random(31, vd, 1))
	aLog, bias := wide(random(32, vh, 0.5)), wide(random(33, vh, 0.5))
	state := make([]float64, vh*kd*vd)
	var past [][]float64
	unit := func(x []float64, scale float64) []float64 {
		sum := 1e-6
		for _, v := range x {
			sum += v * v
		}
		y := make([]float64, len(x))
		for i, v := range x {
			y[i] = v / math.Sqrt(sum) * scale
		}
		return y
	}
	for pos := range n {
		in := wide(l.input(seq, pos, false))
		past = append(past, in[:ch])
		u := make([]float64, ch)
		for c := range u {
			for j := range conv {
				if p := pos - conv + 1 + j; p >= 0 {
					u[c] += taps[c*conv+j] * past[p][c]
				}
			}
			u[c] = silu(u[c])
		}
		row := make([]float64, vh*vd)
		for h := range vh {
			g := h / (vh / kh)
			q, k := unit(u[g*kd:][:kd], 1/math.Sqrt(float64(kd))), unit(u[kh*kd+g*kd:][:kd], 1)
			v, z := u[2*kh*kd+h*vd:][:vd], in[ch+h*vd:][:vd]
			beta, a := sigmoid(in[ch+vh*vd+h]), in[ch+vh*vd+vh+h]
			decay := math.Exp(-math.Exp(aLog[h]) * math.Log1p(math.Exp(a+bias[h])))
			s := state[h*kd*vd:][:kd*vd]
			for i := range s {
				s[i] *= decay
			}
			o := make([]float64, vd)
			for c := range vd {
				dot := 0.0
				for i := range kd {
					dot += s[i*vd+c] * k[i]
				}
				d := beta * (v[c] - dot)
				for i := range kd {
					s[i*vd+c] += k[i] * d
					o[c] += s[i*vd+c] * q[i]
				}
			}
			sum := 0.0
			for _, x := range o {
				sum += x * x
			}
			for c := range vd {
				row[h*vd+c] = o[c] / math.Sqrt(sum/float64(vd)+1e-6) * norm[c] * silu(z[c])
			}
		}
		out = append(out, row)
	}
	return out
}

func TestDeltaReference(t *testing.T) {
	for _, c := range [][5]int{{2, 4, 64, 64, 4}, {1, 3, 16, 24, 4}, {3, 3, 8, 16, 2}} {
		l := newDeltaCase(t, 2, "", c[0], c[1], c[2], c[3], c[4])
		want := deltaReference(l, c[0], c[1], c[2], c[3], c[4], 5, 200)
		require.Less(t, distance(want, l.whole(5, 200)), 0.006, "%v", c)
	}
}

// distance is |got - want| / |want| over all rows. BF16 keeps 8 bits, so each
// rounding on the way adds about 0.002.
func distance(want [][]float64, got [][]uint16) float64 {
	var off, size float64
	for i, row := range want {
		for j, v := range wide(got[i]) {
			off += (v - row[j]) * (v - row[j])
			size += row[j] * row[j]
		}
	}
	return math.Sqrt(off / size)
}
