package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func tree(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
	require.NoError(t, err)
	return string(text)
}

// between returns what stands between two markers, each of which occurs once.
func between(t *testing.T, text, begin, end string) string {
	t.Helper()
	require.Equal(t, 1, strings.Count(text, begin), begin)
	require.Equal(t, 1, strings.Count(text, end), end)
	_, rest, _ := strings.Cut(text, begin)
	body, _, found := strings.Cut(rest, end)
	require.True(t, found, "%s comes before %s", end, begin)
	return strings.TrimSpace(body)
}

// The drafter and the rule in the README are those that tests compile and run.
func TestReadmeExamples(t *testing.T) {
	for name, file := range map[string]string{"example": "draft/example_test.go", "rule": "verify/rulestest/example_test.go"} {
		want := between(t, tree(t, file), "// README:begin\n", "// README:end\n")
		got := between(t, tree(t, "README.md"), "<!-- "+name+":begin -->", "<!-- "+name+":end -->")
		require.Equal(t, "```go\n"+want+"\n```", got, "copy the text between the markers of %s to README.md", file)
	}
}

// Links of the README lead to files of the tree.
func TestReadmeLinks(t *testing.T) {
	links := regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(tree(t, "README.md"), -1)
	require.Greater(t, len(links), 5)
	for _, l := range links {
		if !strings.Contains(l[1], "://") {
			_, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(l[1])))
			require.NoError(t, err)
		}
	}
}

// Commands that the README names exist: make targets, and the commands of exacta.
func TestReadmeCommands(t *testing.T) {
	text, makefile := tree(t, "README.md"), tree(t, "Makefile")
	targets := regexp.MustCompile(`(?m)^ {4}make ([a-z-]+)`).FindAllStringSubmatch(text, -1)
	require.NotEmpty(t, targets)
	for _, m := range targets {
		require.Contains(t, makefile, "\n"+m[1]+":", "make %s", m[1])
	}
	commands := regexp.MustCompile(`(?m)^ {4}exacta ([a-z]+)`).FindAllStringSubmatch(text, -1)
	require.NotEmpty(t, commands)
	sources, err := filepath.Glob(filepath.Join("..", "..", "cmd", "exacta", "*.go"))
	require.NoError(t, err)
	var all strings.Builder
	for _, f := range sources {
		src, err := os.ReadFile(f)
		require.NoError(t, err)
		all.Write(src)
	}
	for _, m := range commands {
		require.Regexp(t, `Use: +"`+m[1]+`[ "]`, all.String(), "exacta %s", m[1])
	}
}

// A sample of the table stands between its markers.
func TestReadmeTable(t *testing.T) {
	table := between(t, tree(t, "README.md"), "<!-- table:begin -->", "<!-- table:end -->")
	require.Contains(t, table, "strategy")
	require.Contains(t, table, "mtp")
}
