package main

import "fmt"

// otherStubs are the kernels that are not elementwise.
var otherStubs = []string{
	"matVecISA(dst, a *float32, stride int, v *float32, rows, n int)",
	"matVec2ISA(d0, d1, a *float32, stride int, v0, v1 *float32, rows, n int)",
	"matVecAdd2ISA(d0, d1, a *float32, stride int, v0, v1 *float32, rows, n int)",
	"aboveISA(x *float32, blocks int, threshold float32) int",
}

// matrices writes the FP32 matrix kernels; n is a multiple of 16.
func (a *asm) matrices(i isa) {
	a.matVec(i, "matVec", 1, false)
	a.matVec(i, "matVec2", 2, false)
	a.matVec(i, "matVecAdd2", 2, true)
}

// matVec writes MatVec for one or two vectors, from zero or from what is there: blocks of columns, as wide as
// the accumulators allow and then narrower, by halves, down to 16, each a chain
// down the rows.
func (a *asm) matVec(i isa, name string, vectors int, add bool) {
	name, args := name+i.name, "(dst, a *float32, stride int, v *float32, rows, n int)"
	if vectors == 2 {
		args = "(d0, d1, a *float32, stride int, v0, v1 *float32, rows, n int)"
	}
	out, in, off := []string{"DI", "R8"}[:vectors], []string{"DX", "R9"}[:vectors], 0
	a.text("func "+name+args, name, 0, 32+16*vectors)
	arg := func(name, reg string) {
		a.f("MOVQ %s+%d(FP), %s", name, off, reg)
		off += 8
	}
	names := [][]string{{"dst"}, {"d0", "d1"}}[vectors-1]
	vnames := [][]string{{"v"}, {"v0", "v1"}}[vectors-1]
	for k, n := range names {
		arg(n, out[k])
	}
	arg("a", "SI")
	arg("stride", "R10")
	a.f("SHLQ $2, R10")
	for k, n := range vnames {
		arg(n, in[k])
	}
	arg("rows", "R11")
	arg("n", "CX")
	wide := 8
	if i.lanes == 8 {
		wide = 8 / vectors
	}
	for regs := wide; regs*i.lanes >= 16; regs /= 2 {
		a.columns(i, regs, out, in, add)
	}
	a.ret()
}

// columns writes the loop over blocks of regs vectors of columns while CX has
// that many.
func (a *asm) columns(i isa, regs int, out, in []string, add bool) {
	block, row, store, end := a.label("block"), a.label("row"), a.label("store"), a.label("end")
	width, n := 4*i.lanes, len(out)
	acc := func(v, j int) int { return v*regs + j }
	tmp := n*regs + n
	a.at(block)
	a.f("SUBQ $%d, CX", regs*i.lanes)
	a.f("JLT %s", end)
	v := &vector{asm: a, isa: i}
	for k, p := range out {
		for j := range regs {
			if add {
				v.f("VMOVUPS %d(%s), %s%d", j*width, p, i.reg, acc(k, j))
			} else {
				v.zero(acc(k, j))
			}
		}
	}
	a.f("MOVQ SI, BX")
	a.f("XORL AX, AX")
	a.f("TESTQ R11, R11")
	a.f("JLE %s", store)
	a.at(row)
	for k, p := range in {
		a.f("VBROADCASTSS (%s)(AX*4), %s%d", p, i.reg, n*regs+k)
	}
	for j := range regs {
		src := fmt.Sprintf("%d(BX)", j*width)
		if n > 1 {
			a.f("VMOVUPS %s, %s%d", src, i.reg, tmp+1)
			src = fmt.Sprintf("%s%d", i.reg, tmp+1)
		}
		for k := range n {
			a.f("VMULPS %s, %s%d, %s%d", src, i.reg, n*regs+k, i.reg, tmp)
			v.op("VADDPS", tmp, acc(k, j), acc(k, j))
		}
	}
	a.f("ADDQ R10, BX")
	a.f("INCQ AX")
	a.f("CMPQ AX, R11")
	a.f("JLT %s", row)
	a.at(store)
	for k, p := range out {
		for j := range regs {
			a.f("VMOVUPS %s%d, %d(%s)", i.reg, acc(k, j), j*width, p)
		}
		a.f("ADDQ $%d, %s", regs*width, p)
	}
	a.f("ADDQ $%d, SI", regs*width)
	a.f("JMP %s", block)
	a.at(end)
	a.f("ADDQ $%d, CX", regs*i.lanes)
}

// above writes the search of Top2: the index of the first block of 64 elements
// that has one above the threshold or a NaN, or blocks.
func (a *asm) above(i isa) {
	name := "above" + i.name
	a.text("func "+name+"(x *float32, blocks int, threshold float32) int", name, 0, 32)
	a.f("MOVQ x+0(FP), SI")
	a.f("MOVQ blocks+8(FP), CX")
	a.f("VBROADCASTSS threshold+16(FP), %s15", i.reg)
	a.f("XORL AX, AX")
	loop, end := a.label("loop"), a.label("end")
	a.f("JMP %s", loop+"test")
	a.at(loop)
	for j := range 64 / i.lanes { // predicate 0x16: not less or equal
		if i.lanes == 16 {
			a.f("VMOVUPS %d(SI), Z%d", 64*j, j)
			a.f("VCMPPS $0x16, Z15, Z%d, K%d", j, j+1)
			continue
		}
		a.f("VMOVUPS %d(SI), Y%d", 32*j, j)
		a.f("VCMPPS $0x16, Y15, Y%d, Y%d", j, j)
		if j > 0 {
			a.f("VORPS Y%d, Y0, Y0", j)
		}
	}
	if i.lanes == 16 {
		a.f("KORW K1, K2, K1")
		a.f("KORW K3, K4, K3")
		a.f("KORTESTW K1, K3")
	} else {
		a.f("VMOVMSKPS Y0, BX")
		a.f("TESTL BX, BX")
	}
	a.f("JNZ %s", end)
	a.f("ADDQ $256, SI")
	a.f("INCQ AX")
	a.at(loop + "test")
	a.f("CMPQ AX, CX")
	a.f("JLT %s", loop)
	a.at(end)
	a.f("MOVQ AX, ret+24(FP)")
	a.ret()
}

// readAll writes ReadAll over blocks of 512 bytes. Vectors of 256 bits read memory
// a little faster than those of 512, so all sets share it.
func (a *asm) readAll() {
	a.text("func readAll(x *byte, blocks int) uint64", "readAll", 0, 24)
	a.f("MOVQ x+0(FP), SI")
	a.f("MOVQ blocks+8(FP), CX")
	for k := range 8 {
		a.f("VPXOR Y%d, Y%d, Y%d", k, k, k)
	}
	loop, end := a.label("loop"), a.label("end")
	a.f("TESTQ CX, CX")
	a.f("JLE %s", end)
	a.f("PCALIGN $32")
	a.at(loop)
	for k := range 16 {
		a.f("VPXOR %d(SI), Y%d, Y%d", 32*k, k%8, k%8)
	}
	a.f("ADDQ $512, SI")
	a.f("DECQ CX")
	a.f("JNZ %s", loop)
	a.at(end)
	for w := 4; w > 0; w /= 2 {
		for k := range w {
			a.f("VPXOR Y%d, Y%d, Y%d", k+w, k, k)
		}
	}
	a.f("VEXTRACTI128 $1, Y0, X1")
	a.f("VPXOR X1, X0, X0")
	a.f("VPEXTRQ $1, X0, AX")
	a.f("VMOVQ X0, BX")
	a.f("XORQ BX, AX")
	a.f("MOVQ AX, ret+16(FP)")
	a.ret()
}
