package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every key that a command prints is in its help, and is snake_case.
func TestKeysAreDocumented(t *testing.T) {
	dir, out := tinyRun()
	snake := regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)
	for _, c := range []struct {
		command string
		value   map[string]any
		inner   []string // keys whose contents the help describes too
	}{
		{"run", decode(t, out), []string{"runs"}},
		{"generate", object(t, "generate", "--max-tokens", "4", "x"), []string{"tokens"}},
		{"score", object(t, "score", "--ids", "1,2", "--continue", "1"), []string{"positions", "top", "continuation"}},
		{"stats", object(t, "stats", dir), []string{"points"}},
		{"audit", object(t, "audit", dir), []string{"tokens"}},
		{"hidden", object(t, "hidden", "--limit", "2", "--length", "9", "--out", filepath.Join(t.TempDir(), "states")), []string{"files"}},
		{"bench", object(t, "bench", "kernels", "--rounds", "1", "--steps", "1", "--prompt", "4", "--context", "34"), nil},
	} {
		help := fine(t, c.command, "--help")
		var visit func(v any)
		visit = func(v any) {
			switch v := v.(type) {
			case []any:
				for _, e := range v {
					visit(e)
				}
			case map[string]any:
				for key, e := range v {
					require.Regexp(t, snake, key)
					require.Regexp(t, `\b`+key+`\b`, help, "exacta %s --help does not say what %s is", c.command, key)
					for _, in := range c.inner {
						if key == in {
							visit(e)
						}
					}
				}
			}
		}
		visit(c.value)
		require.Contains(t, strings.SplitN(help, "Usage:", 2)[0], "--json")
	}
}
