package main

import "fmt"

// Intel numbers of the general registers, by Go's names. SP, BP, R14 and R15 are
// left to Go.
var gpr = map[string]int{
	"AX": 0, "CX": 1, "DX": 2, "BX": 3, "SP": 4, "BP": 5, "SI": 6, "DI": 7,
	"R8": 8, "R9": 9, "R10": 10, "R11": 11, "R12": 12, "R13": 13,
}

// opcode is an EVEX instruction that Go's assembler lacks: its opcode table,
// mandatory prefix, opcode byte and whether it has a second source s1.
type opcode struct {
	name        string
	table, pp   byte
	op          byte
	threeSource bool
}

// The BF16 instructions. Operands below are in Intel's order: destination d,
// then s1, then s2, which may be in memory.
var (
	vdpbf16ps      = opcode{"VDPBF16PS", 2, 2, 0x52, true}
	vcvtne2ps2bf16 = opcode{"VCVTNE2PS2BF16", 2, 3, 0x72, true}
	vcvtneps2bf16  = opcode{"VCVTNEPS2BF16", 2, 2, 0x72, false}
)

// mem is a memory operand. An empty index is none. bcast broadcasts one 32-bit
// element to all lanes.
type mem struct {
	base, index string
	scale, disp int
	bcast       bool
}

// String formats the operand for a comment.
func (m mem) String() string {
	s := "[" + m.base
	if m.index != "" {
		s += fmt.Sprintf("+%s*%d", m.index, m.scale)
	}
	if m.disp != 0 {
		s += fmt.Sprintf("%+d", m.disp)
	}
	s += "]"
	if m.bcast {
		s += "{1to16}"
	}
	return s
}

// inverted returns bit n of v, flipped, at position at: EVEX stores the high bits of
// register numbers inverted.
func inverted(v, n, at int) byte { return byte(^v>>n&1) << at }

// evexReg encodes the 512-bit register form.
func evexReg(o opcode, d, s1, s2 int) []byte {
	b := evexPrefix(o, d, s1, false)
	b[1] |= inverted(s2, 3, 5) | inverted(s2, 4, 6)
	return append(b, o.op, 0xc0|byte(d&7)<<3|byte(s2&7))
}

// evexMem encodes the 512-bit form with s2 in memory.
func evexMem(o opcode, d, s1 int, m mem) []byte {
	b := evexPrefix(o, d, s1, m.bcast)
	base, index := gpr[m.base], 4 // 4: no index
	if m.index != "" {
		index = gpr[m.index]
	}
	b[1] |= inverted(base, 3, 5) | inverted(index, 3, 6)
	n := 64
	if m.bcast {
		n = 4
	}
	var mod byte
	var disp []byte
	switch q := m.disp / n; {
	case m.disp == 0 && base&7 != 5:
	case m.disp%n == 0 && q >= -128 && q <= 127:
		mod, disp = 1, []byte{byte(q)}
	default:
		d := uint32(int32(m.disp))
		mod, disp = 2, []byte{byte(d), byte(d >> 8), byte(d >> 16), byte(d >> 24)}
	}
	rm := base & 7
	if m.index != "" || rm == 4 {
		rm = 4
	}
	b = append(b, o.op, mod<<6|byte(d&7)<<3|byte(rm))
	if rm == 4 {
		b = append(b, log2(m.scale)<<6|byte(index&7)<<3|byte(base&7))
	}
	return append(b, disp...)
}

// evexPrefix returns the four prefix bytes with the bits of s2 still open.
func evexPrefix(o opcode, d, s1 int, bcast bool) []byte {
	if !o.threeSource {
		s1 = 0 // stored inverted: 1111 and 1
	}
	p0 := inverted(d, 3, 7) | inverted(d, 4, 4) | o.table
	p1 := byte(^s1&15)<<3 | 1<<2 | o.pp
	p2 := byte(2)<<5 | inverted(s1, 4, 3)
	if bcast {
		p2 |= 1 << 4
	}
	return []byte{0x62, p0, p1, p2}
}

func log2(scale int) byte {
	switch scale {
	case 2:
		return 1
	case 4:
		return 2
	case 8:
		return 3
	}
	return 0
}
