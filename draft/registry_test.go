package draft

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRegistry(t *testing.T) {
	require.Subset(t, Names(), []string{"mtp", "ngram", "none"})
	require.IsIncreasing(t, Names())
	for _, i := range List() {
		require.NotEmpty(t, i.Summary)
		s, err := New(i.Name)
		require.NoError(t, err)
		require.NoError(t, s.Validate(), "defaults of %s", i.Name)
		other, err := New(i.Name)
		require.NoError(t, err)
		if reflect.TypeOf(s).Elem().Size() > 0 {
			require.NotSame(t, s, other)
		}
	}
	_, err := New("oracle")
	require.ErrorContains(t, err, `unknown drafter "oracle"; known drafters: `)
	require.ErrorContains(t, err, "mtp, mtp-tree, ngram, none")
	require.Panics(t, func() { Register(List()[0]) })
	require.Panics(t, func() { Register(Info{Name: "unfinished"}) })
}

func TestNone(t *testing.T) {
	s, err := New("none")
	require.NoError(t, err)
	d, err := s.Provision(Env{})
	require.NoError(t, err)
	require.Nil(t, d)
}

// The comment of a configuration's field is its documentation for users: every
// field has one, and yaml and json tags of one snake_case name.
func TestSettingsAreDocumented(t *testing.T) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	types := map[string]*ast.StructType{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.TypeSpec); ok {
				if st, ok := s.Type.(*ast.StructType); ok {
					types[s.Name.Name] = st
				}
			}
			return true
		})
	}
	snake := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	for _, i := range List() {
		typ := reflect.TypeOf(i.New()).Elem()
		if typ.PkgPath() != reflect.TypeFor[NGram]().PkgPath() {
			continue // an example's
		}
		for n, field := range types[typ.Name()].Fields.List {
			require.NotEmpty(t, field.Doc.Text(), "%s.%s has no comment", typ.Name(), typ.Field(n).Name)
			tag := typ.Field(n).Tag
			require.Regexp(t, snake, tag.Get("yaml"))
			require.Equal(t, tag.Get("yaml"), tag.Get("json"))
		}
	}
}
