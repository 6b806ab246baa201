package grammar

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"
	"unicode"
)

// Bounds of a pattern: its length in bytes, and that of its program.
const (
	maxPattern = 16 << 10
	maxProgram = 1 << 17
)

// PatternError says what is wrong with a pattern and where.
type PatternError struct {
	Pattern string
	Column  int // of the byte at which it goes wrong, from 1
	What    string
}

// Error implements error.
func (e *PatternError) Error() string {
	return fmt.Sprintf("grammar %s, column %d: %s", quoted(e.Pattern), e.Column, e.What)
}

func quoted(pattern string) string {
	const most = 60
	if len(pattern) > most {
		return fmt.Sprintf("%q...", pattern[:most])
	}
	return fmt.Sprintf("%q", pattern)
}

// Check returns nil if the pattern can be compiled, and else a PatternError.
func Check(pattern string) error {
	_, err := compile(pattern)
	return err
}

// parse parses a pattern as regexp.Compile does.
func parse(pattern string) (*syntax.Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, &PatternError{pattern, maxPattern + 1, fmt.Sprintf("%d bytes; a pattern has at most %d", len(pattern), maxPattern)}
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	var wrong *syntax.Error
	if errors.As(err, &wrong) {
		return nil, &PatternError{pattern, mistakeColumn(pattern, wrong), wrong.Code.String() + fragment(pattern, wrong.Expr)}
	}
	if err != nil {
		return nil, &PatternError{pattern, 1, err.Error()}
	}
	if what, op := unsupported(re); what != "" {
		return nil, &PatternError{pattern, opColumn(pattern, op), what + " is not supported; a pattern matches the whole output"}
	}
	return re, nil
}

// fragment is the part of the pattern that the parser names, unless it is all.
func fragment(pattern, expr string) string {
	if expr == "" || expr == pattern {
		return ""
	}
	return fmt.Sprintf(": `%s`", expr)
}

// mistakeColumn finds where a mistake is: at the fragment that the parser names;
// of parentheses, for which it names the whole pattern, at the one that closes
// nothing, or at the end where one is missing.
func mistakeColumn(pattern string, wrong *syntax.Error) int {
	if wrong.Code != syntax.ErrUnexpectedParen && wrong.Code != syntax.ErrMissingParen {
		return max(0, strings.Index(pattern, wrong.Expr)) + 1
	}
	if wrong.Code == syntax.ErrUnexpectedParen {
		for n := 1; n < len(pattern); n++ {
			var e *syntax.Error
			if _, err := syntax.Parse(pattern[:n], syntax.Perl); errors.As(err, &e) && e.Code == wrong.Code {
				return n
			}
		}
	}
	return len(pattern)
}

// unsupported names an assertion that looks at neighbouring text.
func unsupported(re *syntax.Regexp) (what string, op syntax.Op) {
	switch re.Op {
	case syntax.OpBeginLine:
		return "^ as the beginning of a line", re.Op
	case syntax.OpEndLine:
		return "$ as the end of a line", re.Op
	case syntax.OpWordBoundary:
		return `\b`, re.Op
	case syntax.OpNoWordBoundary:
		return `\B`, re.Op
	}
	for _, sub := range re.Sub {
		if what, op = unsupported(sub); what != "" {
			return what, op
		}
	}
	return "", 0
}

// opColumn is the end of the shortest beginning of a pattern that has an
// assertion.
func opColumn(pattern string, op syntax.Op) int {
	for n := 1; n < len(pattern); n++ {
		if re, err := syntax.Parse(pattern[:n], syntax.Perl); err == nil {
			if _, found := unsupported(re); found == op {
				return n
			}
		}
	}
	return len(pattern)
}

// kind is what an instruction of the byte program does.
type kind uint8

const (
	fail   kind = iota
	split       // go on at out and at alt
	begin       // go on at out, at the beginning of the text
	finish      // go on at out; nothing follows
	match       // the text matches
	bytes       // take a byte of lo..hi and go on at out
)

// inst is an instruction of the byte program.
type inst struct {
	kind     kind
	lo, hi   byte
	out, alt int32
}

// program is a pattern as a nondeterministic automaton over bytes.
type program struct {
	insts []inst
	start int32
}

// compile translates a pattern.
func compile(pattern string) (*program, error) {
	re, err := parse(pattern)
	if err != nil {
		return nil, err
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, &PatternError{pattern, 1, err.Error()}
	}
	p := &program{insts: make([]inst, len(prog.Inst)), start: int32(prog.Start)}
	for pc := range prog.Inst {
		p.translate(int32(pc), &prog.Inst[pc])
		if len(p.insts) > maxProgram {
			return nil, &PatternError{pattern, 1, fmt.Sprintf("more than %d states; use smaller repetitions or classes", maxProgram)}
		}
	}
	return p, nil
}

// translate fills in instruction pc, which may need others.
func (p *program) translate(pc int32, in *syntax.Inst) {
	out := int32(in.Out)
	switch in.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		p.insts[pc] = inst{kind: split, out: out, alt: int32(in.Arg)}
	case syntax.InstCapture, syntax.InstNop:
		p.insts[pc] = inst{kind: split, out: out, alt: out}
	case syntax.InstEmptyWidth:
		at := inst{kind: begin, out: out}
		if syntax.EmptyOp(in.Arg)&syntax.EmptyEndText != 0 {
			at.kind = finish
		}
		p.insts[pc] = at
	case syntax.InstMatch:
		p.insts[pc] = inst{kind: match}
	case syntax.InstRune1, syntax.InstRune:
		p.runes(pc, out, runesOf(in))
	case syntax.InstRuneAny:
		p.runes(pc, out, []rune{0, unicode.MaxRune})
	case syntax.InstRuneAnyNotNL:
		p.runes(pc, out, []rune{0, '\n' - 1, '\n' + 1, unicode.MaxRune})
	}
}

// runesOf returns the runes of an instruction as pairs lo, hi.
func runesOf(in *syntax.Inst) []rune {
	if len(in.Rune) != 1 {
		return in.Rune
	}
	r := in.Rune[0]
	pairs := []rune{r, r}
	if syntax.Flags(in.Arg)&syntax.FoldCase != 0 {
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			pairs = append(pairs, f, f)
		}
	}
	return pairs
}

// runes makes pc the choice among the encodings of runes, which lead to out.
func (p *program) runes(pc, out int32, pairs []rune) {
	type tail struct {
		r   byteRange
		out int32
	}
	tails := map[tail]int32{} // sequences share what they end with
	at := pc
	for i := 0; i < len(pairs); i += 2 {
		encoded(pairs[i], pairs[i+1], func(seq []byteRange) {
			next := out
			for j := len(seq) - 1; j >= 0; j-- {
				t := tail{seq[j], next}
				if _, known := tails[t]; !known {
					tails[t] = p.add(inst{kind: bytes, lo: t.r.lo, hi: t.r.hi, out: next})
				}
				next = tails[t]
			}
			rest := p.add(inst{})
			p.insts[at] = inst{kind: split, out: next, alt: rest}
			at = rest
		})
	}
}

func (p *program) add(in inst) int32 {
	p.insts = append(p.insts, in)
	return int32(len(p.insts) - 1)
}
