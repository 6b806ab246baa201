package faults

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Faults are in no program but by the command that shows them: nobody else
// imports this package.
func TestWhoImports(t *testing.T) {
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		for _, imp := range f.Imports {
			if imp.Path.Value == `"exacta.dev/exacta/internal/faults"` {
				require.Equal(t, filepath.Join("cmd", "exacta", "faults.go"), rel)
			}
		}
		return nil
	})
	require.NoError(t, err)
}
