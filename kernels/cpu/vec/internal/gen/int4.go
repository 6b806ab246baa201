package main

import (
	"bytes"
	"fmt"
	"go/format"
)

// Arguments of the kernels of 4-bit weights: xStride in elements, units of 32 k, per
// is the units of a group.
const (
	int4Args  = "(out *float32, outStride int, data, meta *byte, x *float32, xStride, units, per int)"
	int4Bytes = 64
	int4Meta  = 96 // bytes of the scales and zero points of a group of 32 outputs
)

// int4Rows are the rows of the largest kernel of an isa.
func int4Rows(i isa) int {
	if i.lanes == 16 {
		return 8
	}
	return 4
}

// int4Kernel writes the kernel of two vectors of outputs and rows rows. A vector of
// data has 8 nibbles of each output, the first k lowest; they become scale*q -
// scale*zero by one multiply-add, in which nothing is rounded. Registers:
// accumulators, two of scales, two of offsets, the data of AVX-512, two of weights.
func (a *asm) int4Kernel(i isa, rows int) {
	name := fmt.Sprintf("int4%s%d", i.name, rows)
	a.text("func "+name+int4Args, name, 8, int4Bytes)
	for k, r := range []string{"DX", "R9", "SI", "R10", "DI", "R8", "CX", "R11"} {
		arg := []string{"out", "outStride", "data", "meta", "x", "xStride", "units", "per"}[k]
		a.f("MOVQ %s+%d(FP), %s", arg, 8*k, r)
	}
	a.f("SHLQ $2, R9")
	a.f("SHLQ $2, R8")
	a.mxcsrHead()
	a.f("LEAQ (R8)(R8*2), R13")
	a.f("LEAQ (DI)(R8*4), BX")
	v := &vector{asm: a, isa: i}
	for r := range 2 * rows {
		v.op(v.xor(), r, r, r)
	}
	k := int4Regs{scale: 2 * rows}
	if v.wide() {
		k.data, k.weight, k.table = k.scale+4, k.scale+6, 31
		a.f("VMOVUPS int4Table<>(SB), Z31")
	} else {
		k.weight, k.spare, k.table = k.scale+4, k.scale+6, 15
		a.f("VBROADCASTSS int4Mask<>(SB), Y15")
	}
	unit, have, end := a.label("unit"), a.label("have"), a.label("end")
	a.f("XORL R12, R12")
	a.f("TESTQ CX, CX")
	a.f("JLE %s", end)
	a.at(unit)
	a.f("TESTQ R12, R12")
	a.f("JNZ %s", have)
	v.int4Group(k)
	a.f("MOVQ R11, R12")
	a.at(have)
	for b := range 4 {
		v.int4Block(k, rows, b)
	}
	a.f("ADDQ $512, SI")
	a.f("ADDQ $128, DI")
	a.f("ADDQ $128, BX")
	a.f("DECQ R12")
	a.f("DECQ CX")
	a.f("JNZ %s", unit)
	a.at(end)
	a.gemmStore(i.reg, rows, 2, 4*i.lanes)
	a.mxcsrTail()
	a.ret()
}

// int4Regs are the first registers of what an int4 kernel keeps; table is the table
// of the 16 numbers, or the mask of a nibble.
type int4Regs struct{ scale, data, weight, spare, table int }

func (v *vector) xor() string {
	if v.wide() {
		return "VPXORD"
	}
	return "VXORPS"
}

// int4Group loads the scales of the next group and makes the offsets.
func (v *vector) int4Group(k int4Regs) {
	scales, zeros := []int{0, 48}, []int{32, 80}
	if !v.wide() {
		scales, zeros = []int{0, 16}, []int{32, 40}
	}
	for h := range 2 {
		s := k.scale + h
		v.f("VPMOVZXWD %d(R10), %s%d", scales[h], v.reg, s)
		v.shift("VPSLLD", 16, s, s)
		v.f("VPMOVZXBD %d(R10), %s%d", zeros[h], v.reg, s+2)
		v.f("VCVTDQ2PS %[1]s%[2]d, %[1]s%[2]d", v.reg, s+2)
		v.op("VMULPS", s, s+2, s+2)
	}
	v.f("ADDQ $%d, R10", int4Meta)
}

// int4Block writes 8 k: the odd one of a pair first.
func (v *vector) int4Block(k int4Regs, rows, b int) {
	v.f("PREFETCHT0 %d(SI)", 4096+128*b)
	if v.wide() {
		v.f("PREFETCHT0 %d(SI)", 4096+128*b+64)
		for h := range 2 {
			v.f("VMOVDQU32 %d(SI), Z%d", 128*b+64*h, k.data+h)
		}
	}
	for _, n := range []int{1, 0, 3, 2, 5, 4, 7, 6} {
		w := k.weight
		if v.wide() {
			w += n % 4 * 2
		}
		for h := range 2 {
			if v.wide() {
				v.int4Nibble512(k, n, k.data+h, w+h)
			} else {
				v.int4Nibble256(k, n, 128*b+32*h, w+h)
			}
			v.op("VFMSUB213PS", k.scale+2+h, k.scale+h, w+h)
		}
		for r := range rows {
			x := fmt.Sprintf("%d(%s)%s", 32*b+4*n, []string{"DI", "BX"}[r/4], []string{"", "(R8*1)", "(R8*2)", "(R13*1)"}[r%4])
			if v.wide() {
				for h := range 2 {
					v.f("VFMADD231PS.BCST %s, Z%d, Z%d", x, w+h, 2*r+h)
				}
				continue
			}
			v.f("VBROADCASTSS %s, Y%d", x, k.spare)
			for h := range 2 {
				v.op("VFMADD231PS", w+h, k.spare, 2*r+h)
			}
		}
	}
}

// int4Nibble512 makes nibble n of each element of data a number: the table's index is
// the low four bits alone.
func (v *vector) int4Nibble512(k int4Regs, n, data, w int) {
	if n > 0 {
		v.shift("VPSRLD", 4*n, data, w)
		data = w
	}
	v.f("VPERMPS Z%d, Z%d, Z%d", k.table, data, w)
}

func (v *vector) int4Nibble256(k int4Regs, n, at, w int) {
	if n == 0 {
		v.f("VPAND %d(SI), Y%d, Y%d", at, k.table, w)
	} else {
		v.f("VMOVDQU %d(SI), Y%d", at, w)
		v.shift("VPSRLD", 4*n, w, w)
		if n < 7 {
			v.op("VPAND", k.table, w, w)
		}
	}
	v.f("VCVTDQ2PS Y%[1]d, Y%[1]d", w)
}

// int4File writes the kernels of both isas.
func int4File() []byte {
	a := newAsm()
	for i := range 16 {
		fmt.Fprintf(a, "DATA int4Table<>+%d(SB)/4, $0x%08x\n", 4*i, f32(float64(i)))
	}
	a.WriteString("GLOBL int4Table<>(SB), RODATA|NOPTR, $64\nDATA int4Mask<>+0(SB)/4, $15\nGLOBL int4Mask<>(SB), RODATA|NOPTR, $4\n")
	for _, i := range []isa{avx512, avx2} {
		for rows := 1; rows <= int4Rows(i); rows++ {
			a.int4Kernel(i, rows)
		}
	}
	return []byte(a.String())
}

// int4Stubs writes the declarations and the tables of the kernels by rows.
func int4Stubs() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n\npackage vec\n\n// int4Kernel computes Int4 for one number of rows.\ntype int4Kernel func%s\n\n", marker, int4Args)
	for _, i := range []isa{avx512, avx2} {
		table := ""
		for rows := 1; rows <= int4Rows(i); rows++ {
			fmt.Fprintf(&b, "//go:noescape\nfunc int4%s%d%s\n\n", i.name, rows, int4Args)
			table += fmt.Sprintf("int4%s%d, ", i.name, rows)
		}
		fmt.Fprintf(&b, "// int4%s are the kernels by rows, from 1.\nvar int4%s = []int4Kernel{%s}\n\n", i.name, i.name, table)
	}
	return format.Source(b.Bytes())
}
