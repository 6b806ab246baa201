package main

import "fmt"

// isa is an instruction set that elementwise kernels are written for.
type isa struct {
	name   string // suffix of the assembly functions
	prefix string // prefix of the Go wrappers
	reg    string
	lanes  int
}

var (
	avx512 = isa{"AVX512", "avx512", "Z", 16}
	avx2   = isa{"AVX2", "avx2", "Y", 8}
)

// vector writes vector code for one isa. A register is a number; AX is the
// index of the first element; masked code touches only the elements of K1;
// half selects the second eight of sixteen elements under AVX2.
type vector struct {
	*asm
	isa
	masked bool
	half   int
}

func (v *vector) wide() bool { return v.lanes == 16 }

// op writes name s2, s1, dst: dst = s1 op s2.
func (v *vector) op(name string, s2, s1, dst int) {
	v.f("%s %s%d, %s%d, %s%d", name, v.reg, s2, v.reg, s1, v.reg, dst)
}

// opc is op with a constant for s2.
func (v *vector) opc(name, c string, s1, dst int) {
	if v.wide() {
		name += ".BCST"
	}
	v.f("%s %s, %s%d, %s%d", name, constant(c), v.reg, s1, v.reg, dst)
}

// shift writes an immediate shift.
func (v *vector) shift(name string, n, s, dst int) {
	v.f("%s $%d, %s%d, %s%d", name, n, v.reg, s, v.reg, dst)
}

// bits writes a bitwise operation with a constant; name is AND, OR or XOR.
func (v *vector) bits(name, c string, s, dst int) {
	if v.wide() {
		v.opc("VP"+name+"D", c, s, dst)
	} else {
		v.opc("VP"+name, c, s, dst)
	}
}

// address returns the operand of element AX of the array at p.
func (v *vector) address(p string, size int) string {
	if d := v.half * 8 * size; d > 0 {
		return fmt.Sprintf("%d(%s)(AX*%d)", d, p, size)
	}
	return fmt.Sprintf("(%s)(AX*%d)", p, size)
}

// load reads float32.
func (v *vector) load(p string, dst int) {
	if v.masked {
		v.f("VMOVUPS.Z %s, K1, Z%d", v.address(p, 4), dst)
		return
	}
	v.f("VMOVUPS %s, %s%d", v.address(p, 4), v.reg, dst)
}

// loadBF16 reads BF16 and widens.
func (v *vector) loadBF16(p string, dst int) {
	if v.masked {
		v.f("VPMOVZXWD.Z %s, K1, Z%d", v.address(p, 2), dst)
	} else {
		v.f("VPMOVZXWD %s, %s%d", v.address(p, 2), v.reg, dst)
	}
	v.shift("VPSLLD", 16, dst, dst)
}

// store writes float32.
func (v *vector) store(src int, p string) {
	if v.masked {
		v.f("VMOVUPS Z%d, K1, %s", src, v.address(p, 4))
		return
	}
	v.f("VMOVUPS %s%d, %s", v.reg, src, v.address(p, 4))
}

// storeBF16 rounds x to BF16 as the function BF16 does and writes it. It
// destroys x and needs three more registers.
func (v *vector) storeBF16(x, t, u, w int, p string) {
	v.shift("VPSRLD", 16, x, t)
	v.bits("AND", "intOne", t, u)
	v.opc("VPADDD", "round", u, u)
	v.op("VPADDD", u, x, u)
	v.shift("VPSRLD", 16, u, u)
	if v.wide() {
		v.f("VCMPPS $3, Z%d, Z%d, K2", x, x) // NaN
		v.f("VPORD.BCST %s, Z%d, K2, Z%d", constant("quiet"), t, u)
		v.f("VPTESTNMD.BCST %s, Z%d, K2", constant("inf"), x) // exponent 0
		v.shift("VPSRLD", 31, x, x)
		v.f("VPSLLD $15, Z%d, K2, Z%d", x, u)
		if v.masked {
			v.f("VPMOVDW Z%d, K1, %s", u, v.address(p, 2))
		} else {
			v.f("VPMOVDW Z%d, %s", u, v.address(p, 2))
		}
		return
	}
	v.bits("OR", "quiet", t, t)
	v.f("VCMPPS $3, Y%d, Y%d, Y%d", x, x, w)
	v.f("VBLENDVPS Y%d, Y%d, Y%d, Y%d", w, t, u, u)
	v.bits("AND", "inf", x, t)
	v.zero(w)
	v.op("VPCMPEQD", w, t, t)
	v.shift("VPSRLD", 31, x, x)
	v.shift("VPSLLD", 15, x, x)
	v.f("VBLENDVPS Y%d, Y%d, Y%d, Y%d", t, x, u, u)
	v.f("VEXTRACTI128 $1, Y%d, X%d", u, t)
	v.f("VPACKUSDW X%d, X%d, X%d", t, u, u)
	v.f("VMOVDQU X%d, %s", u, v.address(p, 2))
}

// exp writes y = Exp32(x), step by step as the Go function. x survives; t and u
// are two more registers.
func (v *vector) exp(x, y, t, u int) {
	v.opc("VMULPS", "expLog2E", x, t)
	v.opc("VADDPS", "expMagic", t, t)
	v.opc("VSUBPS", "expMagic", t, u)
	v.opc("VMULPS", "expLn2Hi", u, y)
	v.op("VSUBPS", y, x, y)
	v.opc("VMULPS", "expLn2Lo", u, u)
	v.op("VSUBPS", u, y, y) // y = r
	v.opc("VMULPS", "expC4", y, u)
	for _, c := range []string{"expC3", "expC2", "expC1"} {
		v.opc("VADDPS", c, u, u)
		v.op("VMULPS", y, u, u)
	}
	v.opc("VADDPS", "expC0", u, u)
	v.shift("VPSLLD", 23, t, t)
	// y = ((u * r^2) + r) + 1, then the exponent.
	v.op("VMULPS", y, y, v.spare())
	v.op("VMULPS", v.spare(), u, u)
	v.op("VADDPS", y, u, y)
	v.opc("VADDPS", "one", y, y)
	v.op("VPADDD", t, y, y)
	if v.wide() {
		v.f("VCMPPS.BCST $0x11, %s, Z%d, K2", constant("expCut"), x) // below
		v.f("VPXORD Z%d, Z%d, K2, Z%d", y, y, y)
		v.f("VCMPPS.BCST $0x1e, %s, Z%d, K2", constant("expMax"), x) // above
		v.f("VBROADCASTSS %s, K2, Z%d", constant("inf"), y)
		v.f("VCMPPS $3, Z%d, Z%d, K2", x, x) // NaN
		v.f("VMOVAPS Z%d, K2, Z%d", x, y)
		return
	}
	v.f("VCMPPS $0x11, %s, Y%d, Y%d", constant("expCut"), x, t)
	v.f("VANDNPS Y%d, Y%d, Y%d", y, t, y)
	v.f("VCMPPS $0x1e, %s, Y%d, Y%d", constant("expMax"), x, t)
	v.f("VBLENDVPS Y%d, %s, Y%d, Y%d", t, constant("inf"), y, y)
	v.f("VCMPPS $3, Y%d, Y%d, Y%d", x, x, t)
	v.f("VBLENDVPS Y%d, Y%d, Y%d, Y%d", t, x, y, y)
}

// spare is the register that exp and act use besides the named ones.
func (v *vector) spare() int { return 11 }

// act writes y = num / (1 + exp(-x)), num being x (SiLU) or, if num is negative,
// one (Sigmoid). x survives; t, u and w are used.
func (v *vector) act(x, num, y, t, u, w int) {
	v.bits("XOR", "sign", x, w)
	v.exp(w, y, t, u)
	v.opc("VADDPS", "one", y, y)
	if num < 0 {
		num = t
		v.f("VBROADCASTSS %s, %s%d", constant("one"), v.reg, t)
	}
	v.op("VDIVPS", y, num, y)
}
