package sched

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPurity: the scheduler and its caches have no clock, I/O, randomness or
// goroutine, and no order of a map reaches a result.
func TestPurity(t *testing.T) {
	allowed := []string{
		"bufio", "cmp", "errors", "fmt", "io", "slices", "strconv", "strings",
		"exacta.dev/exacta/kernels", "exacta.dev/exacta/engine/cache",
	}
	for _, dir := range []string{".", "../cache"} {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		names = slices.DeleteFunc(names, func(n string) bool { return strings.HasSuffix(n, "_test.go") })
		require.NotEmpty(t, names)
		var files []*ast.File
		for _, name := range names {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			require.NoError(t, err)
			files = append(files, f)
		}
		maps := mapFields(files)
		require.NotEmpty(t, maps)
		for i, file := range files {
			for _, imp := range file.Imports {
				path, err := strconv.Unquote(imp.Path.Value)
				require.NoError(t, err)
				require.Contains(t, allowed, path, "import in %s", names[i])
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType:
					require.Fail(t, "goroutine or channel", names[i])
				case *ast.RangeStmt:
					if s, ok := n.X.(*ast.SelectorExpr); ok {
						require.NotContains(t, maps, s.Sel.Name, "iteration over a map in %s", names[i])
					}
				}
				return true
			})
		}
	}
}

// mapFields returns the names of all struct fields that are maps.
func mapFields(files []*ast.File) []string {
	var names []string
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if f, ok := n.(*ast.Field); ok {
				if _, ok := f.Type.(*ast.MapType); ok {
					for _, name := range f.Names {
						names = append(names, name.Name)
					}
				}
			}
			return true
		})
	}
	return names
}
