package vec

func goToBF16(dst []uint16, src []float32) {
	for i := range dst {
		dst[i] = BF16(src[i])
	}
}

func goFromBF16(dst []float32, src []uint16) {
	for i := range dst {
		dst[i] = F32(src[i])
	}
}

func goScaleWeightBF16(dst, x []uint16, s float32, w []float32) {
	for i := range dst {
		dst[i] = BF16(float32(F32(x[i])*s) * w[i])
	}
}

func goScaleWeight(dst, x []float32, s float32, w []float32) {
	for i := range dst {
		dst[i] = float32(x[i]*s) * w[i]
	}
}

func goScale(dst, x []float32, s float32) {
	for i := range dst {
		dst[i] = x[i] * s
	}
}

func goAdd(dst, x []float32) {
	for i := range dst {
		dst[i] += x[i]
	}
}

func goAxpy(dst, x []float32, a float32) {
	for i := range dst {
		dst[i] += float32(a * x[i])
	}
}

func goMul(dst, x, y []float32) {
	for i := range dst {
		dst[i] = x[i] * y[i]
	}
}

func goDeltaRow(dst, u, v, fromK, sumK, fromQ, sumQ []float32, grown, beta, mix float32) {
	for i := range dst {
		u[i] = (v[i] - float32(grown*fromK[i]) - sumK[i]) * beta
		dst[i] = float32(fromQ[i]*grown) + sumQ[i] + float32(u[i]*mix)
	}
}

func goSiLU(dst, x []float32) {
	for i := range dst {
		dst[i] = SiLU32(x[i])
	}
}

func goSigmoid(dst, x []float32) {
	for i := range dst {
		dst[i] = Sigmoid32(x[i])
	}
}

func goSwiGLUBF16(dst []uint16, g, u []float32) {
	for i := range dst {
		dst[i] = BF16(SiLU32(g[i]) * u[i])
	}
}

func goAddBF16(dst, res []uint16, x []float32) {
	for i := range dst {
		dst[i] = BF16(F32(res[i]) + x[i])
	}
}

func goMulSigmoidBF16(dst []uint16, x []float32, g []uint16) {
	for i := range dst {
		dst[i] = BF16(x[i] * Sigmoid32(F32(g[i])))
	}
}

func goNormGateBF16(dst []uint16, x []float32, s float32, w []float32, z []uint16, silu bool) {
	act := Sigmoid32
	if silu {
		act = SiLU32
	}
	for i := range dst {
		dst[i] = BF16(float32(float32(x[i]*s)*w[i]) * act(F32(z[i])))
	}
}

func goMatVec(dst, a []float32, stride int, v []float32) {
	clear(dst)
	goMatVecAdd(dst, a, stride, v)
}

func goMatVec2(d0, d1, a []float32, stride int, v0, v1 []float32) {
	goMatVec(d0, a, stride, v0)
	goMatVec(d1, a, stride, v1)
}

func goMatVecAdd(dst, a []float32, stride int, v []float32) {
	for i, c := range v {
		goAxpy(dst, a[i*stride:][:len(dst)], c)
	}
}

func goMatVecAdd2(d0, d1, a []float32, stride int, v0, v1 []float32) {
	goMatVecAdd(d0, a, stride, v0)
	goMatVecAdd(d1, a, stride, v1)
}

func goRotateHalf(x, cos, sin []float32) {
	for i := range cos {
		rotatePair(x, cos, sin, i)
	}
}

// rotatePair rotates elements i and i + len(cos).
func rotatePair(x, cos, sin []float32, i int) {
	j := i + len(cos)
	c, s, x0, x1 := cos[i], sin[i], x[i], x[j]
	x[i] = float32(x0*c) - float32(x1*s)
	x[j] = float32(x1*c) + float32(x0*s)
}

func goConv4BF16(dst []uint16, taps []float32, in *[4][]uint16) {
	for c := range dst {
		dst[c] = conv4(taps, in, len(dst), c)
	}
}

// conv4 is channel c of n of Conv4BF16.
func conv4(taps []float32, in *[4][]uint16, n, c int) uint16 {
	var acc float32
	for j, row := range in {
		if row != nil {
			acc += float32(taps[j*n+c] * F32(row[c]))
		}
	}
	return BF16(SiLU32(acc))
}
