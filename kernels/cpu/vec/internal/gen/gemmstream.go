package main

import "fmt"

// The stream kernels take a whole panel from memory for some rows: block by block
// of k they split the activations of all rows once, and then walk the block's part
// of the panel two vectors at a time, while they ask for the lines of the next
// block. The four prefetches of a pair stand between its products: two that follow
// each other at once, for neighbouring lines, were measured to cost a third of the
// bandwidth.
const (
	streamWidth = 2
	streamBlock = 128 // pairs: 32 KiB of the panel
	streamNear  = 4096
)

// streamLines are the rows that have a stream kernel.
const streamLeast, streamMost = 5, 12

// gemmStream writes the stream kernel of a number of rows.
func (a *asm) gemmStream(rows int) {
	s := gemmShape{streamWidth, rows}
	name := fmt.Sprintf("gemmStream%d", rows)
	a.text("func "+name+gemmArgs, name, stageRow*rows*(streamBlock/stagePairs)+96, gemmBytes)
	a.gemmHead()
	a.mxcsrHead()
	a.f("LEAQ 95(SP), R10")
	a.f("ANDQ $~63, R10")
	first, mask := s.vecs*rows, 31
	a.f("VBROADCASTSS highHalf<>(SB), Z%d", mask)
	next, end, fill := a.label("block"), a.label("end"), a.label("fill")
	a.at(next)
	a.f("TESTQ CX, CX")
	a.f("JLE %s", end)
	a.f("MOVQ $%d, AX", streamBlock)
	a.f("CMPQ CX, AX")
	a.f("CMOVQLT CX, AX")
	a.f("SUBQ AX, CX")
	a.f("MOVQ AX, 8(SP)")
	a.f("MOVQ CX, 16(SP)")
	a.f("MOVQ AX, CX")
	a.f("MOVQ R10, R11")
	a.at(fill)
	a.streamTake()
	a.fmaStage(rows, first, mask)
	a.f("ADDQ $%d, R11", rows*stageRow-stageHalf)
	a.f("TESTQ CX, CX")
	a.f("JG %s", fill)
	a.streamParts(s, first, mask)
	a.f("MOVQ 16(SP), CX")
	a.f("MOVB $1, load+56(FP)")
	a.f("JMP %s", next)
	a.at(end)
	a.mxcsrTail()
	a.ret()
}

// streamTake takes at most stagePairs of the CX pairs of a block into R12.
func (a *asm) streamTake() {
	a.f("MOVQ $%d, R12", stagePairs)
	a.f("CMPQ CX, R12")
	a.f("CMOVQLT CX, R12")
	a.f("SUBQ R12, CX")
}

// streamParts computes the 8(SP) pairs of a block for the whole panel, part by
// part; accumulators come from the output and go back to it. 24(SP) counts parts.
func (a *asm) streamParts(s gemmShape, first, mask int) {
	part, chunk := a.label("part"), a.label("chunk")
	a.f("MOVQ $%d, 24(SP)", 4/s.vecs)
	a.at(part)
	a.gemmAccumulators("Z", s.rows, s.vecs, 64)
	a.f("MOVQ 8(SP), CX")
	a.f("MOVQ R10, R11")
	a.at(chunk)
	a.streamTake()
	a.f("MOVQ R11, AX")
	a.fmaPairs(s, min(8, max(2, 64/first)), func(u int) { a.streamStep(s, first, mask, u) })
	a.f("LEAQ %d(AX), R11", s.rows*stageRow)
	a.f("TESTQ CX, CX")
	a.f("JG %s", chunk)
	a.f("MOVQ DX, BX")
	for r := range s.rows {
		for v := range s.vecs {
			a.f("VMOVUPS Z%d, %d(BX)", s.acc(r, v), v*64)
		}
		if r+1 < s.rows {
			a.f("ADDQ R9, BX")
		}
	}
	a.f("MOVQ 8(SP), BX")
	a.f("SHLQ $8, BX")
	a.f("SUBQ BX, SI")
	a.f("ADDQ $%d, SI", 64*s.vecs)
	a.f("ADDQ $%d, DX", 64*s.vecs)
	a.f("DECQ 24(SP)")
	a.f("JNZ %s", part)
	a.f("LEAQ -256(SI)(BX*1), SI")
	a.f("SUBQ $256, DX")
}

// streamStep is one pair of k with its prefetches spread over its rows: the lines
// that the part comes to soon, and its share of the next block.
func (a *asm) streamStep(s gemmShape, first, mask, u int) {
	asks, calls, done := 2*s.vecs, 0, 0
	a.fmaProducts(s, first, mask, u, func() {
		if calls*asks >= done*2*s.rows && done < asks {
			if v := done / 2; done%2 == 0 {
				a.f("PREFETCHT0 %d(SI)", streamNear+256*u+64*v)
			} else {
				a.f("PREFETCHT1 %d(R13)", 64*(s.vecs*u+v))
			}
			done++
		}
		calls++
	})
}
