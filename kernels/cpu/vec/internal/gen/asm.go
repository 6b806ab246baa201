package main

import (
	"fmt"
	"math"
	"strings"
)

// asm is the text of one assembly file.
type asm struct {
	strings.Builder
	labels int
}

// newAsm starts a file with its marker line, includes and constants.
func newAsm() *asm {
	a := &asm{}
	a.WriteString(marker + "\n\n#include \"textflag.h\"\n#include \"funcdata.h\"\n")
	return a
}

// f writes one instruction.
func (a *asm) f(format string, args ...any) {
	a.WriteByte('\t')
	fmt.Fprintf(a, format, args...)
	a.WriteByte('\n')
}

// label returns a fresh label name; at puts it.
func (a *asm) label(s string) string {
	a.labels++
	return fmt.Sprintf("%s%d", s, a.labels)
}

func (a *asm) at(label string) { a.WriteString(label + ":\n") }

// text opens a function with its prototype as a comment.
func (a *asm) text(proto, name string, frame, args int) {
	a.labels = 0
	flag := "NOSPLIT"
	if frame > 256 {
		flag = "0"
	}
	fmt.Fprintf(a, "\n// %s\nTEXT ·%s(SB), %s, $%d-%d\n", proto, name, flag, frame, args)
	if frame > 0 {
		a.f("NO_LOCAL_POINTERS")
	}
}

// ret closes a function.
func (a *asm) ret() {
	a.f("VZEROUPPER")
	a.f("RET")
}

// raw writes an instruction as bytes, its mnemonic as a comment.
func (a *asm) raw(b []byte, comment string) {
	parts := make([]string, len(b))
	for i, x := range b {
		parts[i] = fmt.Sprintf("BYTE $0x%02x", x)
	}
	a.f("%s // %s", strings.Join(parts, "; "), comment)
}

// dot writes VDPBF16PS d, s1, s2 (Intel's order).
func (a *asm) dot(d, s1, s2 int) {
	a.raw(evexReg(vdpbf16ps, d, s1, s2), fmt.Sprintf("vdpbf16ps zmm%d, zmm%d, zmm%d", d, s1, s2))
}

// dotMem is dot with s2 in memory.
func (a *asm) dotMem(d, s1 int, m mem) {
	a.raw(evexMem(vdpbf16ps, d, s1, m), fmt.Sprintf("vdpbf16ps zmm%d, zmm%d, %v", d, s1, m))
}

// constants are the 32-bit constants of the elementwise kernels, each held
// eight times in a row: a whole operand for AVX2, an element to broadcast for
// AVX-512. The values of exp are those of Exp32 in package vec.
var constants = []struct {
	name string
	bits uint32
}{
	{"expCut", f32(-87.33654)},
	{"expMax", f32(88.72283)},
	{"expLog2E", f32(1.4426950408889634)},
	{"expMagic", f32(12582912)},
	{"expLn2Hi", f32(0.693359375)},
	{"expLn2Lo", f32(-2.12194440054690583e-4)},
	{"expC0", f32(0.4999999403953552)},
	{"expC1", f32(0.1666652113199234)},
	{"expC2", f32(0.04166838899254799)},
	{"expC3", f32(0.008368724025785923)},
	{"expC4", f32(0.0013814583653584123)},
	{"one", f32(1)},
	{"inf", 0x7f800000},
	{"sign", 0x80000000},
	{"round", 0x7fff},
	{"intOne", 1},
	{"quiet", 0x40},
	{"highHalf", 0xffff0000},
}

func f32(x float64) uint32 { return math.Float32bits(float32(x)) }

// emitConstants writes the table of constants.
func (a *asm) emitConstants() {
	for i, c := range constants {
		for j := range 8 {
			fmt.Fprintf(a, "DATA constants<>+%d(SB)/4, $0x%08x\n", 32*i+4*j, c.bits)
		}
	}
	fmt.Fprintf(a, "GLOBL constants<>(SB), RODATA|NOPTR, $%d\n", 32*len(constants))
}

// constant returns the address of a constant.
func constant(name string) string {
	for i, c := range constants {
		if c.name == name {
			return fmt.Sprintf("constants<>+%d(SB)", 32*i)
		}
	}
	panic("no constant " + name) // a mistake in the generator
}
