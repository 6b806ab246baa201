package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// mixedGolden is what the reference gave for the mixed text by one tokenizer.
type mixedGolden struct {
	File      string `json:"file"` // sha256 of the tokenizer.json
	IDs       int    `json:"ids"`
	Documents []byte `json:"documents"` // 4 bytes of the hash of each document's ids
	Decoded   string `json:"decoded"`   // hash of the texts of the ids
	Noise     string `json:"noise"`     // hash of the texts of random ids
	Known     int    `json:"known"`
}

type mixedGoldens struct {
	MadeBy    map[string]string      `json:"made_by"`
	Text      string                 `json:"text"`
	Designs   map[string]mixedGolden `json:"designs"`
	Published map[string]mixedGolden `json:"published"`
}

func readMixed(t testing.TB) (docs []string, g mixedGoldens) {
	t.Helper()
	text, err := os.ReadFile("testdata/mixed.golden.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &g))
	require.NotEmpty(t, g.MadeBy["tokenizers"])
	docs = mixedText()
	sum := sha256.Sum256([]byte(strings.Join(docs, "\x00")))
	require.Equal(t, g.Text, hex.EncodeToString(sum[:]), "the text is not the one that the reference was asked about")
	for i, d := range docs {
		docs[i] = lossy([]byte(d))
	}
	return docs, g
}

// TestMixed compares 2 MB of mixed text, by the committed designs.
func TestMixed(t *testing.T) {
	docs, g := readMixed(t)
	require.Len(t, g.Designs, len(designs))
	for _, name := range designs {
		t.Run(name, func(t *testing.T) {
			checkMixed(t, filepath.Join("testdata", name+".json"), docs, g.Designs[name])
		})
	}
}

// TestMixedPublished compares it by published tokenizers, whose files
// testdata/fetch_published.py brings.
func TestMixedPublished(t *testing.T) {
	folder := os.Getenv("EXACTA_TOKENIZERS")
	if folder == "" {
		t.Skip("EXACTA_TOKENIZERS names no folder with published tokenizers; testdata/fetch_published.py makes one")
	}
	docs, g := readMixed(t)
	require.GreaterOrEqual(t, len(g.Published), 5)
	for name, want := range g.Published {
		t.Run(name, func(t *testing.T) { checkMixed(t, filepath.Join(folder, name+".json"), docs, want) })
	}
}

func checkMixed(t *testing.T, path string, docs []string, want mixedGolden) {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	sum := sha256.Sum256(text)
	require.Equal(t, want.File, hex.EncodeToString(sum[:]), "%s is another file", path)
	tok, err := Load(text)
	require.NoError(t, err)
	require.Equal(t, want.Known, tok.Count())
	require.Len(t, want.Documents, 4*len(docs))
	total, differ := 0, 0
	decoded, noise := sha256.New(), sha256.New()
	for i, doc := range docs {
		ids := tok.Encode(doc, false)
		total += len(ids)
		if h := sha256.Sum256(raw(ids)); string(h[:4]) != string(want.Documents[4*i:4*i+4]) {
			if differ++; differ <= 3 {
				t.Errorf("document %d differs: %.300q", i, doc)
			}
		}
		decoded.Write(append([]byte(tok.Decode(ids, false)), 0))
		noise.Write(append([]byte(tok.Decode(randomIDs(tok, i), i%2 == 0)), 0))
	}
	require.Zero(t, differ, "documents that differ from the reference, of %d", len(docs))
	require.Equal(t, want.IDs, total)
	require.Equal(t, want.Decoded, hex.EncodeToString(decoded.Sum(nil)), "texts of the ids")
	require.Equal(t, want.Noise, hex.EncodeToString(noise.Sum(nil)), "texts of random ids")
}

// randomIDs makes ids, many of them bytes, as testdata/make_mixed.py does.
func randomIDs(tok *Tokenizer, seed int) (ids []int32) {
	l := lot(seed)
	singles := byteIDs(tok)
	for range l.n(40) {
		if len(singles) == 0 || l.n(2) != 0 {
			ids = append(ids, int32(l.n(tok.Count())))
		} else {
			ids = append(ids, singles[l.n(len(singles))])
		}
	}
	return ids
}

func byteIDs(tok *Tokenizer) (ids []int32) {
	for b := range 256 {
		if id, ok := tok.ID(fmt.Sprintf("<0x%02X>", b)); ok {
			ids = append(ids, id)
		}
	}
	if len(ids) == 256 {
		return ids
	}
	ids = nil
	for _, r := range byteRune {
		if id, ok := tok.ID(string(r)); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// TestMixedBytes encodes the text with its bad bytes as they are. The reference
// takes no such text; here byte-level and byte-fallback vocabularies keep every
// byte.
func TestMixedBytes(t *testing.T) {
	bad := 0
	for _, name := range []string{"a_llama3", "e_deepseek", "g_glm", "j_gemma"} {
		tok := design(t, name)
		for _, doc := range mixedText() {
			if !utf8.ValidString(doc) && !strings.Contains(doc, "▁") {
				bad++
				require.Equal(t, doc, string(tok.DecodeBytes(tok.Encode(doc, false), false)), name)
			}
		}
	}
	require.Greater(t, bad, 1000)
}

// BenchmarkMixed is the speed on the mixed text, document by document, on one
// core: of the design of Qwen3.5, or of the file in EXACTA_TOKENIZER.
func BenchmarkMixed(b *testing.B) {
	tok, err := Load(benchFile(b))
	require.NoError(b, err)
	docs, _ := readMixed(b)
	b.SetBytes(int64(len(strings.Join(docs, ""))))
	for b.Loop() {
		for _, d := range docs {
			tok.Encode(d, false)
		}
	}
}
