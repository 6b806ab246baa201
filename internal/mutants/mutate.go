package mutants

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Mutant is one change of one file.
type Mutant struct {
	// File is the changed file, below the module's root.
	File string
	Line int
	// Text is the line as it was.
	Text string
	// Kind is the kind of change, Change what it does to the text.
	Kind, Change string
	// Source is the whole changed file.
	Source []byte
}

// String names the mutant.
func (m Mutant) String() string {
	return fmt.Sprintf("%s:%d %s: %s in %.70q", m.File, m.Line, m.Kind, m.Change, m.Text)
}

// Files are the files that are mutated: rules, and what an engine does with
// their verdicts.
func Files() []string {
	return []string{
		"verify/greedy.go", "verify/walk.go", "verify/rejection.go", "verify/coupled.go", "verify/residual.go",
		"engine/judge.go", "engine/step.go", "engine/tables.go", "engine/sched/commit.go", "draft/mtp.go",
	}
}

// Mutate returns the mutants of a file below root, in order of the text.
func Mutate(root, file string) ([]Mutant, error) {
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, fmt.Errorf("mutants: %w", err)
	}
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("mutants: %w", err)
	}
	m := &mutator{file: file, text: text, fset: fset}
	for _, d := range tree.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && f.Name.Name != "init" {
			ast.Inspect(f.Body, m.visit)
		}
	}
	return m.out, nil
}

// mutator collects the mutants of a file.
type mutator struct {
	file string
	text []byte
	fset *token.FileSet
	out  []Mutant
}

func (m *mutator) offset(p token.Pos) int { return m.fset.Position(p).Offset }

func (m *mutator) source(n ast.Node) string {
	return string(m.text[m.offset(n.Pos()):m.offset(n.End())])
}

// replace adds the mutant that has text in the place of [from, to).
func (m *mutator) replace(kind string, from, to token.Pos, text string) {
	a, b := m.offset(from), m.offset(to)
	source := append(append(append([]byte(nil), m.text[:a]...), text...), m.text[b:]...)
	begin := bytes.LastIndexByte(m.text[:a], '\n') + 1
	line, _, _ := bytes.Cut(m.text[begin:], []byte("\n"))
	m.out = append(m.out, Mutant{
		File: m.file, Text: strings.TrimSpace(string(line)), Line: m.fset.Position(from).Line, Kind: kind,
		Change: fmt.Sprintf("%.40q becomes %.40q", m.text[a:b], text), Source: source,
	})
}

// swaps are the operators that are exchanged, with the kind of the change.
var swaps = map[token.Token]struct {
	kind string
	to   token.Token
}{
	token.LSS: {"comparison", token.LEQ}, token.LEQ: {"comparison", token.LSS},
	token.GTR: {"comparison", token.GEQ}, token.GEQ: {"comparison", token.GTR},
	token.EQL: {"comparison", token.NEQ}, token.NEQ: {"comparison", token.EQL},
	token.ADD: {"sign", token.SUB}, token.SUB: {"sign", token.ADD},
	token.LAND: {"connective", token.LOR}, token.LOR: {"connective", token.LAND},
}

func (m *mutator) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if s, ok := swaps[n.Op]; ok && !words(n) {
			m.replace(s.kind, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), s.to.String())
		}
	case *ast.BasicLit:
		if v, err := strconv.Atoi(n.Value); err == nil && n.Kind == token.INT {
			m.replace("constant", n.Pos(), n.End(), strconv.Itoa(v+1))
		}
	case *ast.IfStmt:
		m.replace("condition", n.Cond.Pos(), n.Cond.End(), "!("+m.source(n.Cond)+")")
	case *ast.SliceExpr:
		if n.High != nil {
			m.replace("bound", n.High.Pos(), n.High.End(), m.source(n.High)+"-1")
		}
	case *ast.ExprStmt:
		if _, ok := n.X.(*ast.CallExpr); ok {
			m.replace("statement", n.Pos(), n.End(), "")
		}
	case *ast.IncDecStmt:
		m.replace("statement", n.Pos(), n.End(), "")
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			m.replace("statement", n.Pos(), n.End(), m.unused(n))
		}
	case *ast.CallExpr:
		m.swapArguments(n)
	}
	return true
}

// words says whether an expression joins texts.
func words(n *ast.BinaryExpr) bool {
	for _, e := range []ast.Expr{n.X, n.Y} {
		if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING && n.Op == token.ADD {
			return true
		}
	}
	return false
}

// unused is what a removed assignment leaves, so that its names stay in use.
func (m *mutator) unused(n *ast.AssignStmt) string {
	text := ""
	for i, e := range n.Rhs {
		if i > 0 {
			text += "; "
		}
		if call, ok := e.(*ast.CallExpr); ok && len(n.Lhs) > 1 && len(n.Rhs) == 1 {
			for range n.Lhs[1:] {
				text += "_, "
			}
			return text + "_ = " + m.source(call)
		}
		text += "_ = " + m.source(e)
	}
	return text
}

// swapArguments exchanges the first two arguments of a call, where they differ.
func (m *mutator) swapArguments(n *ast.CallExpr) {
	if len(n.Args) < 2 || n.Ellipsis.IsValid() {
		return
	}
	a, b := n.Args[0], n.Args[1]
	if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "min" || f.Name == "max" || f.Name == "append" || f.Name == "make") {
		if f.Name == "min" || f.Name == "max" {
			m.replace("extremum", f.Pos(), f.End(), map[string]string{"min": "max", "max": "min"}[f.Name])
		}
		return
	}
	if m.source(a) != m.source(b) {
		between := string(m.text[m.offset(a.End()):m.offset(b.Pos())])
		m.replace("arguments", a.Pos(), b.End(), m.source(b)+between+m.source(a))
	}
}
