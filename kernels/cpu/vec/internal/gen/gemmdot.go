package main

import "fmt"

// gemmDot writes the VDPBF16PS kernel of one shape. Activations are read where
// they lie: row r at x + r*stride, reached through two bases seven rows apart
// and multiples of the stride.
func (a *asm) gemmDot(s gemmShape) {
	name := s.name("Dot")
	a.text("func "+name+gemmArgs, name, 0, gemmBytes)
	a.gemmHead()
	if s.rows > 3 {
		a.f("LEAQ (R8)(R8*2), R11")
	}
	if s.rows > 5 {
		a.f("LEAQ (R8)(R8*4), R12")
	}
	if s.rows > 7 {
		a.f("LEAQ (DI)(R11*2), R10")
		a.f("ADDQ R8, R10")
	}
	a.gemmAccumulators("Z", s.rows, s.vecs, 64)
	unroll := max(1, min(8, 32/(s.rows*s.vecs)*2))
	a.pairLoop(unroll, func(u int) { a.dotStep(s, u) }, func(pairs int) {
		a.f("ADDQ $%d, SI", 256*pairs)
		a.f("ADDQ $%d, R13", 64*s.vecs*pairs)
		a.f("ADDQ $%d, DI", 4*pairs)
		if s.rows > 7 {
			a.f("ADDQ $%d, R10", 4*pairs)
		}
	})
	a.gemmStore("Z", s.rows, s.vecs, 64)
	a.ret()
}

// rowAddress returns where pair u of row r lies.
func rowAddress(r, u int) mem {
	m := mem{base: "DI", disp: 4 * u, bcast: true}
	if r >= 7 {
		m.base, r = "R10", r-7
	}
	switch r {
	case 1, 2, 4:
		m.index, m.scale = "R8", r
	case 3, 6:
		m.index, m.scale = "R11", r/3
	case 5:
		m.index, m.scale = "R12", 1
	}
	return m
}

// goAddress formats m for Go's assembler.
func (m mem) goAddress() string {
	s := fmt.Sprintf("(%s)", m.base)
	if m.disp != 0 {
		s = fmt.Sprint(m.disp) + s
	}
	if m.index != "" {
		s += fmt.Sprintf("(%s*%d)", m.index, m.scale)
	}
	return s
}

// dotStep writes one pair of k: weights into registers, then row by row. Where
// registers are left, a row's pair is broadcast once for all its vectors;
// the 4x7 tile leaves none and broadcasts in the instruction.
func (a *asm) dotStep(s gemmShape, u int) {
	first := s.rows * s.vecs
	a.prefetch(s, u)
	for v := range s.vecs {
		a.f("VMOVUPS %d(SI), Z%d", 256*u+64*v, first+v)
	}
	spare := 32 - first - s.vecs
	for r := range s.rows {
		m := rowAddress(r, u)
		if spare == 0 {
			for v := range s.vecs {
				a.dotMem(s.acc(r, v), first+v, m)
			}
			continue
		}
		b := first + s.vecs + r%spare
		a.f("VBROADCASTSS %s, Z%d", m.goAddress(), b)
		for v := range s.vecs {
			a.dot(s.acc(r, v), first+v, b)
		}
	}
}
