package main

// The FMA kernels take 32 pairs of k at a time: they split the activations of
// those pairs into float32 (odd elements, then even) on the stack, row by row,
// and then walk the pairs with constant displacements. A stage that is read at
// once is read before its stores have left the core; 32 pairs make that rare.
const (
	stagePairs = 32
	stageHalf  = 4 * stagePairs // bytes of the odd elements of a row
	stageRow   = 2 * stageHalf
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
	chunk, end := a.label("chunk"), a.label("end")
	a.at(chunk)
	a.stageHead(end)
	a.fmaStage(s.rows, first, mask)
	a.stageTail()
	a.fmaPairs(s, min(16, max(2, 48/first)), func(u int) { a.fmaStep(s, first, mask, u) })
	a.f("JMP %s", chunk)
	a.at(end)
	a.gemmStore("Z", s.rows, s.vecs, 64)
	a.mxcsrTail()
	a.ret()
}

// fmaStage splits the activations of the R12 pairs of a stage at R11.
func (a *asm) fmaStage(rows, first, mask int) {
	block, tail, run := a.label("block"), a.label("tail"), a.label("run")
	a.at(block)
	a.f("SUBQ $16, R12")
	a.f("JLT %s", tail)
	a.stage512(rows, first, mask, false)
	a.f("JMP %s", block)
	a.at(tail)
	a.f("ADDQ $16, R12")
	a.f("JZ %s", run)
	a.f("MOVQ CX, BX")
	a.f("MOVQ R12, CX")
	a.f("MOVL $1, R12")
	a.f("SHLL CX, R12")
	a.f("DECL R12")
	a.f("KMOVW R12, K1")
	a.f("MOVQ BX, CX")
	a.stage512(rows, first, mask, true)
	a.at(run)
}

// fmaPairs walks the R12 pairs of a stage at R11.
func (a *asm) fmaPairs(s gemmShape, unroll int, step func(u int)) {
	wide, one, end := a.label("wide"), a.label("one"), a.label("next")
	advance := func(n int) {
		a.f("ADDQ $%d, R11", 4*n)
		a.f("ADDQ $%d, SI", 256*n)
		a.f("ADDQ $%d, R13", 64*s.vecs*n)
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

// stageHead takes at most stagePairs of the CX pairs that are left into R12 and AX, or
// goes to end; R11 is where the stage is written. stageTail leaves the stage's
// start in R11 and its pairs in R12.
func (a *asm) stageHead(end string) {
	a.f("TESTQ CX, CX")
	a.f("JLE %s", end)
	a.f("MOVQ $%d, R12", stagePairs)
	a.f("CMPQ CX, R12")
	a.f("CMOVQLT CX, R12")
	a.f("SUBQ R12, CX")
	a.f("MOVQ R12, AX")
	a.f("MOVQ R10, R11")
}

func (a *asm) stageTail() {
	a.f("MOVQ R10, R11")
	a.f("MOVQ AX, R12")
}

// stage512 splits 16 pairs of each row (the K1 ones if masked) into the stage at
// R11 and moves DI and R11 past them.
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
		a.f("VMOVDQU32 Z%d, %d(R11)", odd, r*stageRow)
		a.f("VMOVDQU32 Z%d, %d(R11)", even, r*stageRow+stageHalf)
		if r+1 < rows {
			a.f("ADDQ R8, BX")
		}
	}
	a.f("ADDQ $64, DI")
	a.f("ADDQ $64, R11")
}

// fmaStep writes one pair of k: the odd elements for every accumulator, then the
// even ones. Vectors are taken in groups that leave a register to broadcast to.
func (a *asm) fmaStep(s gemmShape, first, mask, u int) {
	a.prefetch(s, u)
	if s.vecs == 1 {
		a.fmaStepOne(s, first, mask, u)
		return
	}
	a.fmaProducts(s, first, mask, u, func() {})
}

// fmaProducts is what fmaStep computes. between is called before the products of
// each row.
func (a *asm) fmaProducts(s gemmShape, first, mask, u int, between func()) {
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
				between()
				b := first + group + r%spare
				off := r*stageRow + 4*u
				if even {
					off += stageHalf
				}
				a.f("VBROADCASTSS %d(R11), Z%d", off, b)
				for i := range n {
					a.f("VFMADD231PS Z%d, Z%d, Z%d", first+i, b, s.acc(r, g+i))
				}
			}
		}
	}
}

// fmaStepOne is fmaStep of a single vector, where loads are as scarce as arithmetic:
// the weights are loaded once, and a multiply-add broadcasts its own activation.
func (a *asm) fmaStepOne(s gemmShape, first, mask, u int) {
	a.f("VMOVDQU32 %d(SI), Z%d", 256*u, first)
	a.f("VPANDD Z%d, Z%d, Z%d", first, mask, first+1)
	a.f("VPSLLD $16, Z%d, Z%d", first, first)
	for half, w := range []int{first + 1, first} {
		for r := range s.rows {
			a.f("VFMADD231PS.BCST %d(R11), Z%d, Z%d", r*stageRow+half*stageHalf+4*u, w, s.acc(r, 0))
		}
	}
}
