package main

import (
	"bytes"
	"fmt"
	"go/format"
)

// gemmFile writes the assembly of one family of Gemm kernels.
func gemmFile(kind string, shapes []gemmShape, kernel func(*asm, gemmShape)) []byte {
	a := newAsm()
	if kind != "Dot" {
		a.highHalf()
	}
	for _, s := range shapes {
		kernel(a, s)
	}
	return []byte(a.String())
}

// highHalf writes the mask of a pair's odd element.
func (a *asm) highHalf() {
	a.WriteString("\nDATA highHalf<>+0(SB)/4, $0xffff0000\nGLOBL highHalf<>(SB), RODATA|NOPTR, $4\n")
}

// streamFile writes the assembly of the stream kernels.
func streamFile() []byte {
	a := newAsm()
	a.highHalf()
	for m := streamLeast; m <= streamMost; m++ {
		a.gemmStream(m)
	}
	return []byte(a.String())
}

// gemmStubs writes the declarations of the kernels and their tables by shape.
func gemmStubs() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n\npackage vec\n\n", marker)
	fmt.Fprintf(&b, "// gemmKernel computes Gemm for one number of rows and vectors.\ntype gemmKernel func%s\n\n", gemmArgs)
	for _, k := range []struct {
		kind   string
		shapes []gemmShape
	}{{"Dot", shapes512()}, {"FMA", shapesFMA()}, {"AVX2", shapesAVX2()}} {
		var most gemmShape
		for _, s := range k.shapes {
			most = gemmShape{max(most.vecs, s.vecs), max(most.rows, s.rows)}
			fmt.Fprintf(&b, "//go:noescape\nfunc %s%s\n\n", s.name(k.kind), gemmArgs)
		}
		typ := "kernelTable"
		if k.kind == "AVX2" {
			typ = fmt.Sprintf("[%d][%d]gemmKernel", most.vecs+1, most.rows+1)
		}
		fmt.Fprintf(&b, "// gemm%s are the kernels by vectors and rows.\nvar gemm%s = %s{\n", k.kind, k.kind, typ)
		for v := most.vecs; v > 0; v-- {
			row := ""
			for _, s := range k.shapes {
				if s.vecs == v {
					row += fmt.Sprintf("%d: %s,\n", s.rows, s.name(k.kind))
				}
			}
			if row != "" {
				fmt.Fprintf(&b, "%d: {\n%s},\n", v, row)
			}
		}
		fmt.Fprintf(&b, "}\n\n")
	}
	row := ""
	for m := streamLeast; m <= streamMost; m++ {
		fmt.Fprintf(&b, "//go:noescape\nfunc gemmStream%d%s\n\n", m, gemmArgs)
		row += fmt.Sprintf("%d: gemmStream%d,\n", m, m)
	}
	fmt.Fprintf(&b, "// gemmStream are the stream kernels by rows.\nvar gemmStream = [%d]gemmKernel{\n%s}\n\n", streamMost+1, row)
	for _, n := range []string{"Dot", "FMA", "AVX2"} {
		fmt.Fprintf(&b, "//go:noescape\nfunc peak%s(iterations int)\n\n", n)
	}
	return format.Source(b.Bytes())
}

// peakAccs is the number of multiply-add instructions in a peak loop, on that
// many accumulators (on half as many, twice, for AVX2).
const peakAccs = 24

// peakFile writes loops of multiply-adds in registers.
func peakFile() []byte {
	a := newAsm()
	for _, n := range []string{"Dot", "FMA", "AVX2"} {
		reg, accs, src := "Z", peakAccs, 31
		if n == "AVX2" {
			reg, accs, src = "Y", peakAccs/2, 15
		}
		a.text("func peak"+n+"(iterations int)", "peak"+n, 0, 8)
		a.f("MOVQ iterations+0(FP), CX")
		for i := range accs {
			a.f("VXORPS X%d, X%d, X%d", i%16, i%16, i%16)
			if i > 15 {
				a.f("VMOVAPS Z0, Z%d", i)
			}
		}
		a.f("VPCMPEQD Y%d, Y%d, Y%d", 15, 15, 15)
		a.f("VPSLLD $25, Y15, Y15")
		a.f("VPSRLD $2, Y15, Y15")
		if reg == "Z" {
			a.f("VBROADCASTSS X15, Z31")
			a.f("VXORPS X15, X15, X15")
		}
		loop, end := a.label("loop"), a.label("end")
		a.f("TESTQ CX, CX")
		a.f("JLE %s", end)
		a.f("PCALIGN $32")
		a.at(loop)
		for range peakAccs / accs {
			for i := range accs {
				if n == "Dot" {
					a.dot(i, src, src)
				} else {
					a.f("VFMADD231PS %s%d, %s%d, %s%d", reg, src, reg, src, reg, i)
				}
			}
		}
		a.f("DECQ CX")
		a.f("JNZ %s", loop)
		a.at(end)
		a.ret()
	}
	return []byte(a.String())
}
