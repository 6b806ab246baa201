package main

// A param of an elementwise kernel: a slice of float32 or BF16, the lanes of a
// sum, or a scalar.
type param struct {
	name string
	kind kind
}

type kind int

const (
	floats kind = iota
	halves
	lanes
	scalar
)

// op is an elementwise kernel, written for every isa by body. Slices lie at the
// registers pointers[i] in the order of params; scalars are broadcast to the
// registers scalarRegs and the lanes of a sum are in 13 (and 14 for the second
// eight under AVX2, where there is one scalar at most). wrap says that a Go wrapper of the primitive's signature is to be
// written, whose AVX2 tail is the Go function.
type op struct {
	name   string
	params []param
	wrap   bool
	body   func(v *vector, p []string)
}

// pointers are the registers of slices. AX is the index, BX the end, CX the
// length.
var pointers = []string{"DI", "SI", "DX", "R8", "R9", "R10", "R11", "R12", "R13"}

const (
	sumReg    = 13
	scalarReg = 15
)

var scalarRegs = [...]int{scalarReg, 14, 12}

func f(name string) param { return param{name, floats} }
func h(name string) param { return param{name, halves} }
func s(name string) param { return param{name, scalar} }

var ops = []op{
	{"toBF16", []param{h("dst"), f("src")}, true, func(v *vector, p []string) {
		v.load(p[1], 0)
		v.storeBF16(0, 1, 2, 3, p[0])
	}},
	{"fromBF16", []param{f("dst"), h("src")}, true, func(v *vector, p []string) {
		v.loadBF16(p[1], 0)
		v.store(0, p[0])
	}},
	{"scaleWeightBF16", []param{h("dst"), h("x"), s("s"), f("w")}, true, func(v *vector, p []string) {
		v.loadBF16(p[1], 0)
		v.scaleWeight(p[2])
		v.storeBF16(0, 1, 2, 3, p[0])
	}},
	{"scaleWeight", []param{f("dst"), f("x"), s("s"), f("w")}, true, func(v *vector, p []string) {
		v.load(p[1], 0)
		v.scaleWeight(p[2])
		v.store(0, p[0])
	}},
	{"scale", []param{f("dst"), f("x"), s("s")}, true, func(v *vector, p []string) {
		v.load(p[1], 0)
		v.op("VMULPS", scalarReg, 0, 0)
		v.store(0, p[0])
	}},
	{"add", []param{f("dst"), f("x")}, true, func(v *vector, p []string) {
		v.load(p[0], 0)
		v.load(p[1], 1)
		v.op("VADDPS", 1, 0, 0)
		v.store(0, p[0])
	}},
	{"axpy", []param{f("dst"), f("x"), s("a")}, true, func(v *vector, p []string) {
		v.load(p[0], 0)
		v.load(p[1], 1)
		v.op("VMULPS", scalarReg, 1, 1)
		v.op("VADDPS", 1, 0, 0)
		v.store(0, p[0])
	}},
	{"mul", []param{f("dst"), f("x"), f("y")}, true, func(v *vector, p []string) {
		v.load(p[1], 0)
		v.load(p[2], 1)
		v.op("VMULPS", 1, 0, 0)
		v.store(0, p[0])
	}},
	{"deltaRow", []param{f("dst"), f("u"), f("v"), f("fromK"), f("sumK"), f("fromQ"), f("sumQ"), s("grown"), s("beta"), s("mix")}, true, func(v *vector, p []string) {
		for i := range 5 {
			v.load(p[2+i], i)
		}
		v.op("VMULPS", scalarRegs[0], 1, 1)
		v.op("VSUBPS", 1, 0, 0)
		v.op("VSUBPS", 2, 0, 0)
		v.op("VMULPS", scalarRegs[1], 0, 0)
		v.store(0, p[1])
		v.op("VMULPS", scalarRegs[0], 3, 3)
		v.op("VADDPS", 4, 3, 3)
		v.op("VMULPS", scalarRegs[2], 0, 0)
		v.op("VADDPS", 0, 3, 3)
		v.store(3, p[0])
	}},
	{"siLU", []param{f("dst"), f("x")}, true, func(v *vector, p []string) {
		v.load(p[1], 0)
		v.act(0, 0, 1, 2, 3, 4)
		v.store(1, p[0])
	}},
	{"sigmoid", []param{f("dst"), f("x")}, true, func(v *vector, p []string) {
		v.load(p[1], 0)
		v.act(0, -1, 1, 2, 3, 4)
		v.store(1, p[0])
	}},
	{"swiGLUBF16", []param{h("dst"), f("gate"), f("up")}, true, func(v *vector, p []string) {
		v.load(p[1], 0)
		v.act(0, 0, 1, 2, 3, 4)
		v.load(p[2], 0)
		v.op("VMULPS", 0, 1, 1)
		v.storeBF16(1, 2, 3, 4, p[0])
	}},
	{"addBF16", []param{h("dst"), h("res"), f("x")}, true, func(v *vector, p []string) {
		v.loadBF16(p[1], 0)
		v.load(p[2], 1)
		v.op("VADDPS", 1, 0, 0)
		v.storeBF16(0, 1, 2, 3, p[0])
	}},
	{"mulSigmoidBF16", []param{h("dst"), f("x"), h("gate")}, true, func(v *vector, p []string) {
		v.loadBF16(p[2], 0)
		v.act(0, -1, 1, 2, 3, 4)
		v.load(p[1], 0)
		v.op("VMULPS", 1, 0, 0)
		v.storeBF16(0, 1, 2, 3, p[0])
	}},
	{"normSiLUBF16", []param{h("dst"), f("x"), s("s"), f("w"), h("z")}, false, func(v *vector, p []string) {
		v.normGate(p, true)
	}},
	{"normSigmoidBF16", []param{h("dst"), f("x"), s("s"), f("w"), h("z")}, false, func(v *vector, p []string) {
		v.normGate(p, false)
	}},
	{"rotate", []param{f("x0"), f("x1"), f("cos"), f("sin")}, false, func(v *vector, p []string) {
		for i := range 4 {
			v.load(p[i], i)
		}
		v.op("VMULPS", 2, 0, 4)
		v.op("VMULPS", 3, 1, 5)
		v.op("VSUBPS", 5, 4, 4)
		v.op("VMULPS", 2, 1, 1)
		v.op("VMULPS", 3, 0, 0)
		v.op("VADDPS", 0, 1, 1)
		v.store(4, p[0])
		v.store(1, p[1])
	}},
	{"conv4BF16", []param{h("dst"), f("t0"), f("t1"), f("t2"), f("t3"), h("in0"), h("in1"), h("in2"), h("in3")}, false, func(v *vector, p []string) {
		v.zero(0)
		for j := range 4 {
			skip := v.label("skip")
			v.f("TESTQ %s, %s", p[5+j], p[5+j])
			v.f("JZ %s", skip)
			v.loadBF16(p[5+j], 1)
			v.load(p[1+j], 2)
			v.op("VMULPS", 1, 2, 1)
			v.op("VADDPS", 1, 0, 0)
			v.at(skip)
		}
		v.act(0, 0, 1, 2, 3, 4)
		v.storeBF16(1, 2, 3, 4, p[0])
	}},
	{"sumSquares", []param{{"l", lanes}, f("x")}, false, func(v *vector, p []string) {
		v.load(p[0], 0)
		v.op("VMULPS", 0, 0, 0)
		v.accumulate("VADDPS", 0)
	}},
	{"sumSquaresBF16", []param{{"l", lanes}, h("x")}, false, func(v *vector, p []string) {
		v.loadBF16(p[0], 0)
		v.op("VMULPS", 0, 0, 0)
		v.accumulate("VADDPS", 0)
	}},
	{"expSub", []param{{"l", lanes}, f("dst"), f("x"), s("s")}, false, func(v *vector, p []string) {
		v.load(p[1], 0)
		v.op("VSUBPS", scalarReg, 0, 0)
		v.exp(0, 1, 2, 3)
		v.store(1, p[0])
		v.accumulate("VADDPS", 1)
	}},
	{"maximum", []param{{"l", lanes}, f("x")}, false, func(v *vector, p []string) {
		// The second source is the result where either is NaN.
		v.load(p[0], 0)
		if v.masked {
			v.f("VMAXPS Z%d, Z0, K1, Z%d", sumReg, sumReg)
		} else {
			v.op("VMAXPS", sumReg+v.half, 0, sumReg+v.half)
		}
	}},
}

// scaleWeight writes register 0 = (register 0 * scalar) * w.
func (v *vector) scaleWeight(w string) {
	v.op("VMULPS", scalarReg, 0, 0)
	v.load(w, 1)
	v.op("VMULPS", 1, 0, 0)
}

func (v *vector) normGate(p []string, silu bool) {
	v.loadBF16(p[3], 0)
	num := -1
	if silu {
		num = 0
	}
	v.act(0, num, 1, 2, 3, 4)
	v.load(p[1], 0)
	v.op("VMULPS", scalarReg, 0, 0)
	v.load(p[2], 2)
	v.op("VMULPS", 2, 0, 0)
	v.op("VMULPS", 1, 0, 0)
	v.storeBF16(0, 1, 2, 3, p[0])
}

// accumulate adds register x to the lanes; masked lanes keep their value.
func (v *vector) accumulate(op string, x int) {
	if v.masked {
		v.f("%s Z%d, Z%d, K1, Z%d", op, x, sumReg, sumReg)
		return
	}
	v.op(op, x, sumReg+v.half, sumReg+v.half)
}
