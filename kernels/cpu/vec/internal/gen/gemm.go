package main

import "fmt"

// Arguments of every Gemm kernel and their bytes. ahead is the distance in bytes
// from panel at which the kernel begins to prefetch, as many bytes a pair as it
// computes with.
const (
	gemmArgs  = "(out *float32, outStride int, panel, x *uint16, xStride, k2, ahead int, load bool)"
	gemmBytes = 57
)

// gemmShape is one kernel: vecs groups of 16 outputs, rows activations.
type gemmShape struct{ vecs, rows int }

// shapes512 are the tiles of the AVX-512 kernels: 28 accumulators at most.
func shapes512() (s []gemmShape) {
	for m := 1; m <= 7; m++ {
		s = append(s, gemmShape{4, m})
	}
	for m := 1; m <= 14; m++ {
		s = append(s, gemmShape{2, m})
	}
	return s
}

// shapesFMA are those of the FMA kernels, with tiles one vector wide for weights
// that come from memory.
func shapesFMA() []gemmShape {
	s := shapes512()
	for m := 1; m <= 12; m++ {
		s = append(s, gemmShape{1, m})
	}
	return s
}

func (s gemmShape) name(kind string) string { return fmt.Sprintf("gemm%s%dx%d", kind, s.vecs, s.rows) }

// acc is the accumulator of row r, vector v.
func (s gemmShape) acc(r, v int) int { return r*s.vecs + v }

// gemmHead loads the arguments: DX, R9 output and its stride in bytes, SI panel,
// DI activations, R8 their stride in bytes, CX pairs, R13 what to prefetch.
func (a *asm) gemmHead() {
	a.f("MOVQ out+0(FP), DX")
	a.f("MOVQ outStride+8(FP), R9")
	a.f("SHLQ $2, R9")
	a.f("MOVQ panel+16(FP), SI")
	a.f("MOVQ x+24(FP), DI")
	a.f("MOVQ xStride+32(FP), R8")
	a.f("SHLQ $1, R8")
	a.f("MOVQ k2+40(FP), CX")
	a.f("MOVQ ahead+48(FP), R13")
	a.f("ADDQ SI, R13")
}

// gemmAccumulators sets the accumulators to zero or to the output. width is 64
// or 32 bytes, perRow the number of registers of a row.
func (a *asm) gemmAccumulators(reg string, rows, perRow, width int) {
	zero, done := a.label("zero"), a.label("start")
	a.f("CMPB load+56(FP), $0")
	a.f("JEQ %s", zero)
	a.f("MOVQ DX, BX")
	for r := range rows {
		for v := range perRow {
			a.f("VMOVUPS %d(BX), %s%d", v*width, reg, r*perRow+v)
		}
		if r+1 < rows {
			a.f("ADDQ R9, BX")
		}
	}
	a.f("JMP %s", done)
	a.at(zero)
	for i := range rows * perRow {
		if reg == "Z" {
			a.f("VPXORD Z%d, Z%d, Z%d", i, i, i)
		} else {
			a.f("VXORPS Y%d, Y%d, Y%d", i, i, i)
		}
	}
	a.at(done)
}

// gemmStore writes the accumulators to the output.
func (a *asm) gemmStore(reg string, rows, perRow, width int) {
	for r := range rows {
		for v := range perRow {
			a.f("VMOVUPS %s%d, %d(DX)", reg, r*perRow+v, v*width)
		}
		if r+1 < rows {
			a.f("ADDQ R9, DX")
		}
	}
}

// pairLoop runs body for CX pairs, unroll at a time and then one by one, and
// moves the pointers in advance (bytes per pair) along.
func (a *asm) pairLoop(unroll int, body func(u int), advance func(pairs int)) {
	wide, one, end := a.label("wide"), a.label("one"), a.label("end")
	if unroll > 1 {
		a.f("SUBQ $%d, CX", unroll)
		a.f("JLT %stail", wide)
		a.f("PCALIGN $32")
		a.at(wide)
		for u := range unroll {
			body(u)
		}
		advance(unroll)
		a.f("SUBQ $%d, CX", unroll)
		a.f("JGE %s", wide)
		a.at(wide + "tail")
		a.f("ADDQ $%d, CX", unroll)
	}
	a.f("TESTQ CX, CX")
	a.f("JLE %s", end)
	a.at(one)
	body(0)
	advance(1)
	a.f("DECQ CX")
	a.f("JNZ %s", one)
	a.at(end)
}

// prefetch asks for what a later pair will need. A kernel that streams whole
// panels asks for it at R13, some 2 KiB ahead, in the first level cache. One that
// walks a part of a panel asks for its own lines there, and brings an equal share
// of the next block at R13 to the second level.
func (a *asm) prefetch(s gemmShape, u int) {
	hint := "PREFETCHT0"
	if s.vecs < 4 {
		hint = "PREFETCHT1"
		for v := range s.vecs {
			if s.vecs*s.rows == 1 {
				break // does so little that the second level is near enough
			}
			a.f("PREFETCHT0 %d(SI)", 4096+256*u+64*v)
		}
	}
	for v := range s.vecs {
		a.f("%s %d(R13)", hint, 64*(s.vecs*u+v))
	}
}
