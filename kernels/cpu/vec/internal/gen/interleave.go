package main

import (
	"bytes"
	"fmt"
	"go/format"
)

// Arguments of the kernels that put 16 rows into the lanes of a panel.
const (
	interleaveArgs  = "(dst *uint32, src *byte, line, blocks int) (odd uint64)"
	interleaveBytes = 40
	laneRows        = 16
	pairBytes       = 4 * 64 // of one pair of k of a panel's 64 rows
)

// interleave writes the kernel of an isa. A block is a square of 16 rows by 16 pairs,
// or, with vectors of 8, four squares of 8: rows are loaded, transposed in registers
// by unpacking pairs, then pairs of pairs, then 128-bit parts. Stores go through the
// caches: the memory of new weights was zeroed by the system a moment ago and is there.
// Adding the lowest exponent bit to an element's exponent bits carries into the sign
// exactly if they are all ones; the carries are gathered on the way, in R9.
func (a *asm) interleave(i isa) {
	name := "interleave" + i.name
	a.text("func "+name+interleaveArgs, name, 0, interleaveBytes)
	for k, r := range []string{"DI", "SI", "CX", "DX"} {
		a.f("MOVQ %s+%d(FP), %s", []string{"dst", "src", "line", "blocks"}[k], 8*k, r)
	}
	loop, end := a.label("loop"), a.label("end")
	a.f("XORL R9, R9")
	a.f("TESTQ DX, DX")
	a.f("JLE %s", end)
	a.at(loop)
	a.f("MOVQ SI, BX")
	for row := 0; row < laneRows; row += i.lanes {
		// Under AVX2 the upper rows are read from BX on where the lower ones ended.
		if i.lanes == laneRows {
			a.square(i, 0, 0)
			continue
		}
		a.f("MOVQ BX, R8")
		a.square(i, row, 0)
		a.f("LEAQ 32(R8), BX")
		a.square(i, row, i.lanes)
		a.f("SUBQ $32, BX")
	}
	a.f("ADDQ $%d, SI", 4*laneRows)
	a.f("ADDQ $%d, DI", pairBytes*laneRows)
	a.f("DECQ DX")
	a.f("JNZ %s", loop)
	a.at(end)
	a.f("MOVQ R9, odd+32(FP)")
	a.ret()
}

// square transposes one square of the isa's lanes: rows from BX on, and stores pairs
// from pair on at the lanes from row on. BX moves past the rows.
func (a *asm) square(i isa, row, pair int) {
	n, move := i.lanes, "VMOVDQU32"
	if n == 8 {
		move = "VMOVDQU"
	}
	// Beside the rows: the mask of the exponent, its lowest bit, the carries.
	mask, one, sum, tmp := 2*n-1, 2*n-2, 2*n-3, 2*n-4
	and, or, xor := "VPANDD", "VPORD", "VPXORD"
	if n == 8 {
		and, or, xor = "VPAND", "VPOR", "VPXOR"
	}
	a.f("VPBROADCASTD interleaveBits<>+0(SB), %s%d", i.reg, mask)
	a.f("VPBROADCASTD interleaveBits<>+4(SB), %s%d", i.reg, one)
	a.f("%[1]s %[2]s%[3]d, %[2]s%[3]d, %[2]s%[3]d", xor, i.reg, sum)
	for r := range n {
		a.f("%s (BX), %s%d", move, i.reg, r)
		a.f("ADDQ CX, BX")
		a.f("%s %s%d, %s%d, %s%d", and, i.reg, mask, i.reg, r, i.reg, tmp)
		a.f("VPADDW %[1]s%[2]d, %[1]s%[3]d, %[1]s%[3]d", i.reg, one, tmp)
		a.f("%[1]s %[2]s%[3]d, %[2]s%[4]d, %[2]s%[4]d", or, i.reg, tmp, sum)
	}
	if n == 8 {
		a.f("VPSRAW $15, Y%[1]d, Y%[1]d", sum)
		a.f("VPMOVMSKB Y%d, R10", sum)
	} else {
		a.f("VPMOVW2M Z%d, K1", sum)
		a.f("KMOVD K1, R10")
	}
	a.f("ORQ R10, R9")
	three := func(op string, s1, s2, d int) { a.f("%s %s%d, %s%d, %s%d", op, i.reg, s2, i.reg, s1, i.reg, d) }
	for r := 0; r < n; r += 2 {
		three("VPUNPCKLDQ", r, r+1, n+r)
		three("VPUNPCKHDQ", r, r+1, n+r+1)
	}
	for r := 0; r < n; r += 4 {
		three("VPUNPCKLQDQ", n+r, n+r+2, r)
		three("VPUNPCKHQDQ", n+r, n+r+2, r+1)
		three("VPUNPCKLQDQ", n+r+1, n+r+3, r+2)
		three("VPUNPCKHQDQ", n+r+1, n+r+3, r+3)
	}
	// Now 128-bit part l of register 4m+c holds pair 4l+c of rows 4m to 4m+3.
	part := func(op string, imm, s1, s2, d int) {
		a.f("%s $0x%02x, %s%d, %s%d, %s%d", op, imm, i.reg, s2, i.reg, s1, i.reg, d)
	}
	store := func(reg, p int) {
		a.f("%s %s%d, %d(DI)", move, i.reg, reg, pairBytes*(pair+p)+4*row)
	}
	for c := range 4 {
		if n == 8 {
			part("VPERM2I128", 0x20, c, 4+c, 8+c)
			part("VPERM2I128", 0x31, c, 4+c, 12+c)
			store(8+c, c)
			store(12+c, 4+c)
			continue
		}
		part("VSHUFI32X4", 0x88, c, 4+c, 16+c)
		part("VSHUFI32X4", 0xdd, c, 4+c, 20+c)
		part("VSHUFI32X4", 0x88, 8+c, 12+c, 24+c)
		part("VSHUFI32X4", 0xdd, 8+c, 12+c, 28+c)
	}
	if n == 8 {
		return
	}
	for c := range 4 {
		part("VSHUFI32X4", 0x88, 16+c, 24+c, c)
		part("VSHUFI32X4", 0x88, 20+c, 28+c, 4+c)
		part("VSHUFI32X4", 0xdd, 16+c, 24+c, 8+c)
		part("VSHUFI32X4", 0xdd, 20+c, 28+c, 12+c)
	}
	for p := range n {
		store(p, p)
	}
}

// interleaveFile writes the kernels of both isas.
func interleaveFile() []byte {
	a := newAsm()
	a.WriteString("DATA interleaveBits<>+0(SB)/4, $0x7f807f80\nDATA interleaveBits<>+4(SB)/4, $0x00800080\nGLOBL interleaveBits<>(SB), RODATA|NOPTR, $8\n")
	a.interleave(avx512)
	a.interleave(avx2)
	return []byte(a.String())
}

// interleaveStubs writes their declarations.
func interleaveStubs() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n\npackage vec\n", marker)
	for _, i := range []isa{avx512, avx2} {
		fmt.Fprintf(&b, "\n//go:noescape\nfunc interleave%s%s\n", i.name, interleaveArgs)
	}
	return format.Source(b.Bytes())
}
