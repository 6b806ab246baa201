package vec

import "unsafe"

// The AVX-512 kernels mask their tails, so these wrappers only check lengths.

func avx512SumSquares(x []float32) float32 {
	var l lanes
	if n := len(x); n > 0 {
		sumSquaresAVX512(&l, &x[0], n)
	}
	return l.sum()
}

func avx512SumSquaresBF16(x []uint16) float32 {
	var l lanes
	if n := len(x); n > 0 {
		sumSquaresBF16AVX512(&l, &x[0], n)
	}
	return l.sum()
}

func avx512ExpSub(dst, x []float32, s float32) float32 {
	var l lanes
	x = x[:len(dst)]
	if n := len(dst); n > 0 {
		expSubAVX512(&l, &dst[0], &x[0], s, n)
	}
	return l.sum()
}

func avx512Max(x []float32) float32 {
	l := noMax
	if n := len(x); n > 0 {
		maximumAVX512(&l, &x[0], n)
	}
	return goMax(l[:])
}

func avx512NormGateBF16(dst []uint16, x []float32, s float32, w []float32, z []uint16, silu bool) {
	x, w, z = x[:len(dst)], w[:len(dst)], z[:len(dst)]
	if n := len(dst); n > 0 {
		if silu {
			normSiLUBF16AVX512(&dst[0], &x[0], s, &w[0], &z[0], n)
		} else {
			normSigmoidBF16AVX512(&dst[0], &x[0], s, &w[0], &z[0], n)
		}
	}
}

func avx512RotateHalf(x, cos, sin []float32) {
	h := len(cos)
	x, sin = x[:2*h], sin[:h]
	if n := h; n > 0 {
		rotateAVX512(&x[0], &x[h], &cos[0], &sin[0], n)
	}
}

func avx512Conv4BF16(dst []uint16, taps []float32, in *[4][]uint16) {
	c := len(dst)
	taps = taps[:4*c]
	var p [4]*uint16
	for j, row := range in {
		if row != nil {
			p[j] = unsafe.SliceData(row[:c])
		}
	}
	if n := c; n > 0 {
		conv4BF16AVX512(&dst[0], &taps[0], &taps[c], &taps[2*c], &taps[3*c], p[0], p[1], p[2], p[3], n)
	}
}

func avx512MatVec(dst, a []float32, stride int, v []float32) {
	n := len(dst) &^ 15
	if n > 0 && len(v) > 0 {
		_ = a[(len(v)-1)*stride+len(dst)-1]
		matVecAVX512(&dst[0], &a[0], stride, &v[0], len(v), n)
	} else {
		n = 0
	}
	if n < len(dst) {
		goMatVec(dst[n:], a[min(n, len(a)):], stride, v)
	}
}

func avx512MatVec2(d0, d1, a []float32, stride int, v0, v1 []float32) {
	n := len(d0) &^ 15
	d1, v1 = d1[:len(d0)], v1[:len(v0)]
	if n > 0 && len(v0) > 0 {
		_ = a[(len(v0)-1)*stride+len(d0)-1]
		matVec2AVX512(&d0[0], &d1[0], &a[0], stride, &v0[0], &v1[0], len(v0), n)
	} else {
		n = 0
	}
	if n < len(d0) {
		goMatVec2(d0[n:], d1[n:], a[min(n, len(a)):], stride, v0, v1)
	}
}

func avx512MatVecAdd2(d0, d1, a []float32, stride int, v0, v1 []float32) {
	n := len(d0) &^ 15
	d1, v1 = d1[:len(d0)], v1[:len(v0)]
	if len(v0) == 0 || len(d0) == 0 {
		return
	}
	_ = a[(len(v0)-1)*stride+len(d0)-1]
	if n > 0 {
		matVecAdd2AVX512(&d0[0], &d1[0], &a[0], stride, &v0[0], &v1[0], len(v0), n)
	}
	if n < len(d0) {
		goMatVecAdd2(d0[n:], d1[n:], a[n:], stride, v0, v1)
	}
}

func avx512Top2(x []float32) (i1, i2 int, v1, v2 float32, nans int) {
	t := newTop2()
	for i := 0; i < len(x); {
		// Two elements at least before a threshold means something.
		if blocks := (len(x) - i) / 64; blocks > 0 && t.i2 >= 0 {
			if i += 64 * aboveAVX512(&x[i], blocks, t.v2); i == len(x) {
				break
			}
		}
		n := min(64, len(x)-i)
		t.scan(x[i:i+n], i)
		i += n
	}
	return t.i1, t.i2, t.v1, t.v2, t.nans
}
