package main

import "fmt"

// shapesAVX2 are the tiles of the AVX2 kernels: 12 accumulators at most, each
// of 8 outputs. A single row takes a whole panel, so that memory is read once
// and forward; more rows take fewer vectors, so that a split weight serves more
// multiply-adds.
func shapesAVX2() (s []gemmShape) {
	s = append(s, gemmShape{4, 1}, gemmShape{2, 1}, gemmShape{2, 2}, gemmShape{2, 3})
	for m := 1; m <= 6; m++ {
		s = append(s, gemmShape{1, m})
	}
	return s
}

// gemmAVX2 writes the AVX2 FMA kernel of one shape. Registers: accumulators,
// then two of weights, one broadcast, and the mask of the odd elements in Y15.
func (a *asm) gemmAVX2(s gemmShape) {
	name := s.name("AVX2")
	halves := 2 * s.vecs
	first := s.rows * halves
	a.text("func "+name+gemmArgs, name, stageRow*s.rows+32+8, gemmBytes)
	a.gemmHead()
	a.mxcsrHead()
	a.f("LEAQ 39(SP), R10")
	a.f("ANDQ $~31, R10")
	a.gemmAccumulators("Y", s.rows, halves, 32)
	a.f("VBROADCASTSS highHalf<>(SB), Y15")
	chunk, end := a.label("chunk"), a.label("end")
	a.at(chunk)
	a.stageHead(end)
	block, tail, run := a.label("block"), a.label("tail"), a.label("run")
	a.at(block)
	a.f("SUBQ $16, R12")
	a.f("JLT %s", tail)
	a.stageAVX2(s.rows, first)
	a.f("JMP %s", block)
	a.at(tail)
	a.f("ADDQ $16, R12")
	a.f("JZ %s", run)
	a.stageScalar(s.rows, first)
	a.at(run)
	a.stageTail()
	a.fmaPairs(s, min(8, max(2, 32/first)), func(u int) { a.fmaStepAVX2(s, first, u) })
	a.f("JMP %s", chunk)
	a.at(end)
	a.gemmStore("Y", s.rows, halves, 32)
	a.mxcsrTail()
	a.ret()
}

// stageAVX2 splits 16 pairs of each row into the stage at R11 and moves DI and R11
// past them.
func (a *asm) stageAVX2(rows, tmp int) {
	a.f("MOVQ DI, BX")
	for r := range rows {
		for h := range 2 {
			a.f("VMOVDQU %d(BX), Y%d", 32*h, tmp)
			a.f("VPAND Y%d, Y15, Y%d", tmp, tmp+1)
			a.f("VPSLLD $16, Y%d, Y%d", tmp, tmp)
			a.f("VMOVDQU Y%d, %d(R11)", tmp+1, r*stageRow+32*h)
			a.f("VMOVDQU Y%d, %d(R11)", tmp, r*stageRow+stageHalf+32*h)
		}
		if r+1 < rows {
			a.f("ADDQ R8, BX")
		}
	}
	a.f("ADDQ $64, DI")
	a.f("ADDQ $64, R11")
}

// stageScalar stages the last R12 pairs of each row, pair by pair, and moves DI
// past them.
func (a *asm) stageScalar(rows, tmp int) {
	loop := a.label("pair")
	a.at(loop)
	a.f("MOVQ DI, BX")
	for r := range rows {
		a.f("VBROADCASTSS (BX), X%d", tmp)
		a.f("VPSLLD $16, X%d, X%d", tmp, tmp+1)
		a.f("VPAND X%d, X15, X%d", tmp, tmp)
		a.f("VMOVSS X%d, %d(R11)", tmp, r*stageRow)
		a.f("VMOVSS X%d, %d(R11)", tmp+1, r*stageRow+stageHalf)
		if r+1 < rows {
			a.f("ADDQ R8, BX")
		}
	}
	a.f("ADDQ $4, DI")
	a.f("ADDQ $4, R11")
	a.f("DECQ R12")
	a.f("JNZ %s", loop)
}

// fmaStepAVX2 writes one pair of k for one vector of 16 outputs after another.
func (a *asm) fmaStepAVX2(s gemmShape, first, u int) {
	a.prefetch(s, u)
	for _, even := range []bool{false, true} {
		for v := range s.vecs {
			for h := range 2 {
				src := fmt.Sprintf("%d(SI)", 256*u+64*v+32*h)
				if even {
					a.f("VMOVDQU %s, Y%d", src, first+h)
					a.f("VPSLLD $16, Y%d, Y%d", first+h, first+h)
				} else {
					a.f("VPAND %s, Y15, Y%d", src, first+h)
				}
			}
			for r := range s.rows {
				off := r*stageRow + 4*u
				if even {
					off += stageHalf
				}
				a.f("VBROADCASTSS %d(R11), Y%d", off, first+2)
				for h := range 2 {
					a.f("VFMADD231PS Y%d, Y%d, Y%d", first+h, first+2, r*2*s.vecs+2*v+h)
				}
			}
		}
	}
}
