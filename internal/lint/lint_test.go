package lint

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "exacta.dev/exacta/"

// pkg is the part of go list's output that the rules need.
type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,GoFiles,Imports", "./...")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var all []pkg
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else {
			require.NoError(t, err)
		}
		all = append(all, p)
	}
	require.Greater(t, len(all), 10)
	return all
}

// layer orders the top-level folders: a package imports its own layer and lower
// ones.
func layer(path string) int {
	rel := strings.TrimPrefix(path, module)
	switch top, _, _ := strings.Cut(rel, "/"); top {
	case "kernels":
		return 0
	case "engine":
		return 1
	case "draft", "verify":
		return 2
	case "acceptance":
		return 3
	case "experiments":
		return 4
	case "cmd":
		return 5
	}
	return -1
}

func TestImportDirection(t *testing.T) {
	for _, p := range packages(t) {
		from := layer(p.ImportPath)
		for _, imp := range p.Imports {
			if to := layer(imp); strings.HasPrefix(imp, module) && from >= 0 && to >= 0 {
				require.LessOrEqual(t, to, from, "%s imports %s, against kernels <- engine <- draft, verify <- acceptance <- experiments <- cmd", p.ImportPath, imp)
			}
			if p.ImportPath == module+"draft" {
				require.NotContains(t, imp, module+"verify", "draft and verify do not know each other")
			}
			if p.ImportPath == module+"verify" {
				require.NotContains(t, imp, module+"draft", "draft and verify do not know each other")
			}
		}
	}
}

func TestWhoMayImport(t *testing.T) {
	only := map[string]string{
		"github.com/ebitengine/purego": module + "kernels/cuda",
		"gorgonia.org/tensor":          module + "kernels/ref",
		"github.com/spf13/cobra":       module + "cmd/exacta",
		"github.com/parquet-go":        module + "acceptance",
	}
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			for lib, owner := range only {
				if strings.HasPrefix(imp, lib) {
					require.True(t, strings.HasPrefix(p.ImportPath, owner), "%s imports %s; only %s may", p.ImportPath, imp, owner)
				}
			}
			if strings.HasSuffix(p.ImportPath, "engine/sched") || strings.HasSuffix(p.ImportPath, "engine/cache") {
				require.NotContains(t, []string{"time", "os", "net", "math/rand", "sync"}, imp, "%s is a pure core", p.ImportPath)
			}
		}
	}
}

func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		var docs []string
		for _, f := range p.GoFiles {
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.ParseComments|parser.PackageClauseOnly)
			require.NoError(t, err)
			if parsed.Doc != nil && !strings.HasPrefix(parsed.Doc.Text(), "Code generated") {
				docs = append(docs, f)
				require.Greater(t, strings.Count(parsed.Doc.Text(), "."), 1, "%s: the comment of package %s says too little", f, p.ImportPath)
			}
		}
		require.Len(t, docs, 1, "%s: package comments in %s; exactly one file has it", p.ImportPath, slices.Sorted(slices.Values(docs)))
	}
}
