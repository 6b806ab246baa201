package main

// The FMA kernels take 16 pairs of k at a time: they split the activations of
// those pairs into float32 (odd elements, then even) on the stack, row by row,
// and then walk the pairs with constant displacements.
const (
	stageRow   = 128 // bytes of a row in the stage: 16 odd, 16 even elements
	stagePairs = 16
)

// mxcsrHead sets flush-to-zero and denormals-are-zero, keeping the old MXCSR at
// 0(SP) and using 4(SP); mxcsrTail restores it.
func (a *asm) mxcsrHead() {
	a.f("STMXCSR 0(SP)")
	a.f("MOVL 0(SP), AX")
	a.f("ORL $0x8040, AX")
	a.f("MOVL AX, 4(SP)")
	a.f("LDMXCSR 4(SP)")
}

func (a *asm) mxcsrTail() { a.f("LDMXCSR 0(SP)") }

// gemmFMA writes the AVX-512 FMA kernel of one shape.
func (a *asm) gemmFMA(s gemmShape) {
	name := s.name("FMA")
	a.text("func "+name+gemmArgs, name, stageRow*s.rows+64+8, gemmBytes)
	a.gemmHead()
	a.mxcsrHead()
	a.f("LEAQ 71(SP), R10")
	a.f("ANDQ $~63, R10")
	a.gemmAccumulators("Z", s.rows, s.vecs, 64)
	first := s.rows * s.vecs
	mask := 31
	a.f("VBROADCASTSS highHalf<>(SB), Z%d", mask)
	chunk, tail, run, end := a.label("chunk"), a.label("tail"), a.label("run"), a.label("end")
	a.at(chunk)
	a.f("CMPQ CX, $%d", stagePairs)
	a.f("JLT %s", tail)
	a.stage512(s.rows, first, mask, false)
	a.f("MOVQ $%d, R12", stagePairs)
	a.f("SUBQ $%d, CX", stagePairs)
	a.f("JMP %s", run)
	a.at(tail)
	a.f("TESTQ CX, CX")
	a.f("JLE %s", end)
	a.f("MOVL $1, R12")
	a.f("SHLL CX, R12")
	a.f("DECL R12")
	a.f("KMOVW R12, K1")
	a.stage512(s.rows, first, mask, true)
	a.f("MOVQ CX, R12")
	a.f("XORL CX, CX")
	a.at(run)
	a.f("MOVQ R10, R11")
	a.fmaPairs(min(16, max(2, 48/first)), func(u int) { a.fmaStep(s, first, mask, u) })
	a.f("JMP %s", chunk)
	a.at(end)
	a.gemmStore("Z", s.rows, s.vecs, 64)
	a.mxcsrTail()
	a.ret()
}

// fmaPairs walks the R12 pairs of a stage at R11.
func (a *asm) fmaPairs(unroll int, step func(u int)) {
	wide, one, end := a.label("wide"), a.label("one"), a.label("next")
	advance := func(n int) {
		a.f("ADDQ $%d, R11", 4*n)
		a.f("ADDQ $%d, SI", 256*n)
		a.f("SUBQ $%d, R12", n)
	}
	for unroll&(unroll-1) != 0 {
		unroll--
	}
	a.f("SUBQ $%d, R12", unroll)
	a.f("JLT %s", one+"tail")
	a.f("PCALIGN $32")
	a.at(wide)
	for u := range unroll {
		step(u)
	}
	advance(unroll)
	a.f("JGE %s", wide)
	a.at(one + "tail")
	a.f("ADDQ $%d, R12", unroll)
	a.f("JZ %s", end)
	a.at(one)
	step(0)
	advance(1)
	a.f("JNZ %s", one)
	a.at(end)
}

// stage512 splits 16 pairs of each row (the K1 ones if masked) into the stage at
// R10 and moves DI past them.
func (a *asm) stage512(rows, tmp, mask int, masked bool) {
	p := "DI"
	if rows > 1 {
		a.f("MOVQ DI, BX")
		p = "BX"
	}
	for r := range rows {
		odd, even := tmp, tmp+1
		if masked {
			a.f("VMOVDQU32.Z (%s), K1, Z%d", p, even)
		} else {
			a.f("VMOVDQU32 (%s), Z%d", p, even)
		}
		a.f("VPANDD Z%d, Z%d, Z%d", mask, even, odd)
		a.f("VPSLLD $16, Z%d, Z%d", even, even)
		a.f("VMOVDQU32 Z%d, %d(R10)", odd, r*stageRow)
		a.f("VMOVDQU32 Z%d, %d(R10)", even, r*stageRow+64)
		if r+1 < rows {
			a.f("ADDQ R8, BX")
		}
	}
	a.f("ADDQ $64, DI")
}

// fmaStep writes one pair of k: the odd elements for every accumulator, then the
// even ones. Vectors are taken in groups that leave a register to broadcast to.
func (a *asm) fmaStep(s gemmShape, first, mask, u int) {
	group := min(s.vecs, 31-first-1)
	for _, even := range []bool{false, true} {
		for g := 0; g < s.vecs; g += group {
			n := min(group, s.vecs-g)
			for i := range n {
				src := 256*u + 64*(g+i)
				if even {
					a.f("VPSLLD $16, %d(SI), Z%d", src, first+i)
				} else {
					a.f("VPANDD %d(SI), Z%d, Z%d", src, mask, first+i)
				}
			}
			spare := 31 - first - group
			for r := range s.rows {
				b := first + group + r%spare
				off := r*stageRow + 4*u
				if even {
					off += 64
				}
				a.f("VBROADCASTSS %d(R11), Z%d", off, b)
				for i := range n {
					a.f("VFMADD231PS Z%d, Z%d, Z%d", first+i, b, s.acc(r, g+i))
				}
			}
		}
	}
}
