package main

import (
	"bytes"
	"fmt"
	"go/format"
	"strings"
)

// zero clears a register.
func (v *vector) zero(r int) {
	if v.wide() {
		v.op("VPXORD", r, r, r)
	} else {
		v.op("VXORPS", r, r, r)
	}
}

// proto returns the parameter list of the assembly function of o, its offset
// for each parameter and the bytes of all.
func (o op) proto() (list string, offsets []int, size int) {
	var parts []string
	for _, p := range o.params {
		typ, width := "*float32", 8
		switch p.kind {
		case halves:
			typ = "*uint16"
		case lanes:
			typ = "*lanes"
		case scalar:
			typ, width = "float32", 4
		}
		size = (size + width - 1) &^ (width - 1)
		offsets = append(offsets, size)
		size += width
		parts = append(parts, p.name+" "+typ)
	}
	size = (size + 7) &^ 7
	return "(" + strings.Join(append(parts, "n int"), ", ") + ")", append(offsets, size), size + 8
}

// opFile writes all elementwise kernels for one isa.
func opFile(i isa) []byte {
	a := newAsm()
	a.WriteByte('\n')
	a.emitConstants()
	for _, o := range ops {
		a.op(o, i)
	}
	a.matrices(i)
	a.above(i)
	if i == avx2 {
		a.readAll()
	}
	return []byte(a.String())
}

// op writes one kernel: a loop over whole vectors and, for AVX-512, a masked
// tail. AVX2 expects a multiple of its vector, or of 16 where there are lanes.
func (a *asm) op(o op, i isa) {
	list, offsets, size := o.proto()
	a.text("func "+o.name+i.name+list, o.name+i.name, 0, size)
	v := &vector{asm: a, isa: i}
	var p []string
	sum, scalars := "", 0
	for k, q := range o.params {
		switch q.kind {
		case scalar:
			a.f("VBROADCASTSS %s+%d(FP), %s%d", q.name, offsets[k], i.reg, scalarRegs[scalars])
			scalars++
		case lanes:
			sum = fmt.Sprintf("%s+%d(FP)", q.name, offsets[k])
			a.f("MOVQ %s, AX", sum)
			a.moveLanes(i, "VMOVUPS %[1]d(AX), %[2]s%[3]d")
		default:
			r := pointers[len(p)]
			p = append(p, r)
			a.f("MOVQ %s+%d(FP), %s", q.name, offsets[k], r)
		}
	}
	a.f("MOVQ n+%d(FP), CX", offsets[len(o.params)])
	a.f("XORL AX, AX")
	step, steps := i.lanes, 1
	if sum != "" && !v.wide() {
		step, steps = 16, 2
	}
	loop, tail, end := a.label("loop"), a.label("tail"), a.label("end")
	a.f("MOVQ CX, BX")
	a.f("ANDQ $~%d, BX", step-1)
	a.f("JZ %s", tail)
	a.at(loop)
	for v.half = range steps {
		o.body(v, p)
	}
	v.half = 0
	a.f("ADDQ $%d, AX", step)
	a.f("CMPQ AX, BX")
	a.f("JLT %s", loop)
	a.at(tail)
	if v.wide() {
		a.f("ANDL $15, CX")
		a.f("JZ %s", end)
		a.f("MOVL $1, BX")
		a.f("SHLL CX, BX")
		a.f("DECL BX")
		a.f("KMOVW BX, K1")
		v.masked = true
		o.body(v, p)
		a.at(end)
	}
	if sum != "" {
		a.f("MOVQ %s, AX", sum)
		a.moveLanes(i, "VMOVUPS %[2]s%[3]d, %[1]d(AX)")
	}
	a.ret()
}

// moveLanes moves the lanes of a sum between memory and registers.
func (a *asm) moveLanes(i isa, format string) {
	for k := range 16 / i.lanes {
		a.f(format, 32*k, i.reg, sumReg+k)
	}
}

// opStubs writes the declarations of the elementwise kernels and the wrappers.
func opStubs() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n\npackage vec\n\n", marker)
	for _, i := range []isa{avx512, avx2} {
		for _, o := range ops {
			list, _, _ := o.proto()
			fmt.Fprintf(&b, "//go:noescape\nfunc %s%s%s\n\n", o.name, i.name, list)
			if o.wrap {
				o.wrapper(&b, i)
			}
		}
		for _, s := range otherStubs {
			fmt.Fprintf(&b, "//go:noescape\nfunc %s\n\n", strings.ReplaceAll(s, "ISA", i.name))
		}
	}
	fmt.Fprintf(&b, "//go:noescape\nfunc readAll(x *byte, blocks int) uint64\n")
	return format.Source(b.Bytes())
}

// wrapper writes the primitive of Set over the kernel.
func (o op) wrapper(b *bytes.Buffer, i isa) {
	title := strings.ToUpper(o.name[:1]) + o.name[1:]
	var params, args, rest, checks []string
	for k, p := range o.params {
		switch p.kind {
		case scalar:
			params = append(params, p.name+" float32")
			args, rest = append(args, p.name), append(rest, p.name)
			continue
		case halves:
			params = append(params, p.name+" []uint16")
		default:
			params = append(params, p.name+" []float32")
		}
		args = append(args, "&"+p.name+"[0]")
		rest = append(rest, p.name+"[n:]")
		if k > 0 {
			checks = append(checks, fmt.Sprintf("%s = %s[:len(dst)]", p.name, p.name))
		}
	}
	n := "len(dst)"
	if i.lanes == 8 {
		n += " &^ 7"
	}
	fmt.Fprintf(b, "func %s%s(%s) {\n%s\n", i.prefix, title, strings.Join(params, ", "), strings.Join(checks, "\n"))
	fmt.Fprintf(b, "n := %s\nif n > 0 {\n%s%s(%s, n)\n}\n", n, o.name, i.name, strings.Join(args, ", "))
	if i.lanes == 8 {
		fmt.Fprintf(b, "go%s(%s)\n", title, strings.Join(rest, ", "))
	}
	fmt.Fprintf(b, "}\n\n")
}
