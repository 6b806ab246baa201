package chat

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/chat/jinja"
)

// goldenTokens and goldenNow are what testdata/make_goldens.py renders with.
var goldenTokens = map[string]string{"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}

func goldenNow() time.Time { return time.Date(2026, 7, 5, 9, 8, 7, 0, time.UTC) }

// outcome is what the reference gave: a text, or a kind of error.
type outcome struct {
	Text    *string `json:"text"`
	Error   string  `json:"error"` // syntax, raised or other
	Message string  `json:"message"`
}

func readJSON(t testing.TB, path string, out any) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	if filepath.Ext(path) == ".gz" {
		z, err := gzip.NewReader(f)
		require.NoError(t, err)
		require.NoError(t, json.NewDecoder(z).Decode(out))
		return
	}
	require.NoError(t, json.NewDecoder(f).Decode(out))
}

// render renders a case: an object with messages, and what else there is.
func render(source string, object map[string]json.RawMessage) (string, error) {
	t, err := Parse("golden", source, goldenTokens)
	if err != nil {
		return "", err
	}
	o := Options{Now: goldenNow}
	var m Messages
	for name, raw := range object {
		switch name {
		case "name":
		case "messages":
			l, err := objects(raw, "messages")
			if err != nil {
				return "", err
			}
			m = Messages{l}
		case "tools":
			o.Tools, err = ParseTools(raw)
		case "documents":
			o.Documents, err = ParseDocuments(raw)
		case "add_generation_prompt":
			err = json.Unmarshal(raw, &o.AddGenerationPrompt)
		default:
			err = o.Variables.Set(name, raw)
		}
		if err != nil {
			return "", err
		}
	}
	return t.Render(m, o)
}

// kind is the kind of an error, as in an outcome.
func kind(err error) string {
	var e *jinja.Error
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrTemplate):
		return "raised"
	case errors.As(err, &e) && e.Err == nil:
		return "syntax"
	}
	return "other"
}

func cases(t testing.TB) (names []string, list []map[string]json.RawMessage) {
	readJSON(t, "testdata/cases.json", &list)
	for _, c := range list {
		var name string
		require.NoError(t, json.Unmarshal(c["name"], &name))
		names = append(names, name)
	}
	return names, list
}

// TestTemplates renders the templates of the model families, with tools,
// reasoning and all that their messages have, and compares the texts with those
// of transformers.
func TestTemplates(t *testing.T) {
	var g struct {
		MadeBy    map[string]string             `json:"made_by"`
		Templates map[string]map[string]outcome `json:"templates"`
	}
	readJSON(t, "testdata/chat.golden.json.gz", &g)
	require.NotEmpty(t, g.MadeBy["transformers"])
	names, list := cases(t)
	require.GreaterOrEqual(t, len(g.Templates), 12)
	for name, want := range g.Templates {
		t.Run(name, func(t *testing.T) {
			source, err := os.ReadFile(filepath.Join("testdata/templates", name+".jinja"))
			require.NoError(t, err)
			texts := 0
			for i, c := range names {
				w, ok := want[c]
				require.True(t, ok, c)
				got, err := render(string(source), list[i])
				if w.Text == nil {
					require.Equal(t, w.Error, kind(err), "%s: %v, not %s", c, err, w.Message)
					continue
				}
				texts++
				require.NoError(t, err, c)
				require.Equal(t, *w.Text, got, c)
			}
			require.Greater(t, texts, 20)
		})
	}
}

// TestFeatures renders small templates, each for a few constructs of Jinja.
func TestFeatures(t *testing.T) {
	var list []struct {
		T string                     `json:"t"`
		V map[string]json.RawMessage `json:"v"`
	}
	var g struct {
		Results []outcome `json:"results"`
	}
	readJSON(t, "testdata/features.json", &list)
	readJSON(t, "testdata/features.golden.json", &g)
	require.Len(t, g.Results, len(list))
	for i, f := range list {
		if f.V == nil {
			f.V = map[string]json.RawMessage{}
		}
		f.V["messages"] = []byte("[]")
		got, err := render(f.T, f.V)
		w := g.Results[i]
		if w.Text == nil {
			if err == nil || kind(err) != w.Error && kind(err) == "raised" {
				t.Errorf("%s\n gave %q, %v\nwant an error: %s", f.T, got, err, w.Message)
			}
			continue
		}
		if err != nil || got != *w.Text {
			t.Errorf("%s\n gave %q, %v\nwant %q", f.T, got, err, *w.Text)
		}
	}
}

// otherwise are templates of no family here that the reference and this package
// render otherwise where there are tools: one formats a value into text that is
// marked as safe HTML, which escapes it; one prints the value of a filter that
// is no list in Python and can't be printed.
var otherwise = map[string]bool{"meetkai-functionary-medium-v3.1.jinja": true, "llama-cpp-deepseek-r1.jinja": true}

// TestPublished renders further templates, which are no part of this project:
// *.jinja in the folder that EXACTA_TEMPLATES names.
func TestPublished(t *testing.T) {
	folder := os.Getenv("EXACTA_TEMPLATES")
	if folder == "" {
		t.Skip("EXACTA_TEMPLATES names no folder with templates")
	}
	var g struct {
		Templates map[string]struct {
			File    string            `json:"file"`
			Results map[string]string `json:"results"`
		} `json:"templates"`
	}
	readJSON(t, "testdata/published.golden.json", &g)
	names, list := cases(t)
	same, differ := 0, 0
	for file, want := range g.Templates {
		source, err := os.ReadFile(filepath.Join(folder, file))
		require.NoError(t, err)
		sum := sha256.Sum256(source)
		require.Equal(t, want.File, hex.EncodeToString(sum[:]), "%s is another file", file)
		for i, c := range names {
			got, err := render(string(source), list[i])
			h := sha256.Sum256([]byte(got))
			result := hex.EncodeToString(h[:])[:16]
			if err != nil {
				result = kind(err)
			}
			if result != want.Results[c] && otherwise[file] {
				differ++
				continue
			}
			if result != want.Results[c] {
				t.Errorf("%s, %s: %s, not %s: %v", file, c, result, want.Results[c], err)
				continue
			}
			same++
		}
	}
	require.LessOrEqual(t, differ, 14)
	t.Logf("%d renderings of %d templates are the reference's", same, len(g.Templates))
}
