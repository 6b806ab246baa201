package tokenizer

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// designs are the tokenizers of testdata/make_goldens.py, one for each family
// of tokenizers; f_flags has added tokens with every flag, l_folded the
// normalisers that no family uses.
var designs = []string{
	"a_llama3", "b_qwen3", "c_qwen35", "d_smollm2", "e_deepseek", "f_flags",
	"g_glm", "h_gpt2", "i_llama2", "j_gemma", "k_metaspace", "l_folded",
}

// golden is what the reference gave for one design.
type golden struct {
	MadeBy map[string]any `json:"made_by"`
	IDs    [][]int32      `json:"ids"`
	Decode []struct {
		IDs  []int32 `json:"ids"`
		Skip bool    `json:"skip"`
		Text string  `json:"text"`
	} `json:"decode"`
	SweepText   string   `json:"sweep_text"`
	SweepIDs    []string `json:"sweep_ids"`
	SweepPieces []string `json:"sweep_pieces"`
}

func readGz(t testing.TB, path string, out any) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(z).Decode(out))
}

func design(t testing.TB, name string) *Tokenizer {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	require.NoError(t, err)
	tok, err := Load(text)
	require.NoError(t, err)
	return tok
}

func goldens(t testing.TB, name string) (strings []string, g golden) {
	t.Helper()
	readGz(t, "testdata/strings.json.gz", &strings)
	readGz(t, filepath.Join("testdata", name+".golden.json.gz"), &g)
	require.Len(t, g.IDs, len(strings))
	require.NotEmpty(t, g.MadeBy["tokenizers"])
	return strings, g
}

func TestGoldenEncode(t *testing.T) {
	for _, name := range designs {
		t.Run(name, func(t *testing.T) {
			texts, g := goldens(t, name)
			require.Greater(t, len(texts), 2000)
			tok := design(t, name)
			bad := 0
			for i, text := range texts {
				if got := tok.Encode(text, true); fmt.Sprint(got) != fmt.Sprint(g.IDs[i]) {
					if bad++; bad <= 5 {
						t.Errorf("%q\n got %v %s\nwant %v %s", text, got, show(tok, got), g.IDs[i], show(tok, g.IDs[i]))
					}
				}
			}
			require.Zero(t, bad, "strings that differ from the reference, of %d", len(texts))
		})
	}
}

func TestGoldenDecode(t *testing.T) {
	for _, name := range designs {
		t.Run(name, func(t *testing.T) {
			_, g := goldens(t, name)
			tok := design(t, name)
			invalid := 0
			for _, d := range g.Decode {
				require.Equal(t, d.Text, tok.Decode(d.IDs, d.Skip), "ids %v skip %v", d.IDs, d.Skip)
				if strings.ContainsRune(d.Text, '\ufffd') {
					invalid++
				}
			}
			if _, has := tok.ID("<0x80>"); !has && !tok.decoding.bytes {
				return // no token is a byte
			}
			require.Greater(t, invalid, 100, "ids that make invalid UTF-8 must be among the goldens")
		})
	}
}

// sweepBlocks lists the blocks of 4,096 code points to compare: up to U+1FFFF
// and the last planes' beginnings, where everything but ideographs is; all of
// them with EXACTA_SOAK=1, the first few with -short.
func sweepBlocks(all int) (blocks []int) {
	for b := range all {
		if testing.Short() && b >= 4 {
			break
		}
		if b < 0x20 || b%0x10 == 0 || os.Getenv("EXACTA_SOAK") == "1" {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// TestGoldenSweep compares the ids of every code point in several contexts, and
// the lengths of the pieces, by the hash of each block of 4,096.
func TestGoldenSweep(t *testing.T) {
	const block = 4096
	for _, name := range designs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, g := goldens(t, name)
			if g.SweepText == "" {
				return // its steps are those of another design
			}
			tok := design(t, name)
			require.Len(t, g.SweepIDs, 0x110000/block)
			require.Len(t, g.SweepPieces, 0x110000/block)
			for _, b := range sweepBlocks(len(g.SweepIDs)) {
				ids, pieces := sha256.New(), sha256.New()
				for c := rune(b * block); c < rune((b+1)*block); c++ {
					if c >= 0xd800 && c <= 0xdfff {
						continue
					}
					text := strings.ReplaceAll(g.SweepText, "{0}", string(c))
					ids.Write(raw(append(tok.Encode(text, false), -1)))
					pieces.Write(raw(append(pieceSizes(tok, 0, text), -1)))
				}
				require.Equal(t, g.SweepPieces[b], hex.EncodeToString(pieces.Sum(nil))[:16], "pieces, code points from %#x on", b*block)
				require.Equal(t, g.SweepIDs[b], hex.EncodeToString(ids.Sum(nil))[:16], "ids, code points from %#x on", b*block)
			}
		})
	}
}

// pieceSizes gives the sizes in bytes of the words that the splitters make.
func pieceSizes(tok *Tokenizer, stage int, s string) (sizes []int32) {
	if stage == len(tok.stages) {
		return []int32{int32(len(s))}
	}
	for len(s) > 0 {
		n := tok.stages[stage].split.next(s)
		sizes = append(sizes, pieceSizes(tok, stage+1, s[:n])...)
		s = s[n:]
	}
	return sizes
}

func raw(ids []int32) []byte {
	out := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		out = binary.LittleEndian.AppendUint32(out, uint32(id))
	}
	return out
}

// show spells ids for a failure.
func show(tok *Tokenizer, ids []int32) string {
	var parts []string
	for _, id := range ids {
		parts = append(parts, tok.Spelling(id))
	}
	return strings.Join(parts, "|")
}
