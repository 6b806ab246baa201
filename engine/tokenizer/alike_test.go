package tokenizer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tokens are alike where those of Hugging Face's library are, by its decoders and
// normalisers: NFKC, NFD, StripAccents, Lowercase, blanks in a row made one, Strip. The
// sums are of the numbers as 32 bits, little-endian.
func TestAlike(t *testing.T) {
	for file, want := range map[string]struct {
		n   int
		sum string
	}{
		"a_llama3.json":   {1219, "3d9809e6637e310e4cb158cbae5cb7f51746bb9760d846b2081cd434b9ddb782"},
		"b_qwen3.json":    {1179, "00e1d80003f870330642438e9be3f05f6230d1694e83976fa5abcaac62bf2977"},
		"c_qwen35.json":   {1188, "e5fbf587d1f93177940a319454747438552cc68a502871d114578c6da1988177"},
		"d_smollm2.json":  {1178, "639ec073bf191be4fa6ab3fbc5ad970d577566114cb17c6bf5ec3428d84024dd"},
		"e_deepseek.json": {1216, "3f76f57ac902bb2fe8f7586d4c6c3847418472c511a21de550a3a79c2bd6de2d"},
		"f_flags.json":    {1223, "63e521b8e9ca841ad789ca15f227b0e96ec4620af08a40e85de6a4560b1103ed"},
		"i_llama2.json":   {1052, "c70591c85aac8e5aa531582337ff7ddc134da5d92e493e1eabc8c59ef7fcb6c0"},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		require.NoError(t, err)
		tok, err := Load(text)
		require.NoError(t, err)
		ids, n := tok.Alike()
		require.Equal(t, want.n, n, file)
		h := sha256.New()
		for _, id := range ids {
			require.NoError(t, binary.Write(h, binary.LittleEndian, id))
		}
		require.Equal(t, want.sum, hex.EncodeToString(h.Sum(nil)), file)
	}
}

// What Alike looks past, and what it does not.
func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		" The": "the", "ÉTÉ": "ete", "ﬁ": "fi", " \t\n": " ", "\u00a0": " ", "\u3000": " ", "a \r\n b": "a b", "İ": "i", "ſ": "s", "": "", "\u0301": "",
		"\ue000": " ", "\u2028x": "x", "２": "2", "ß": "ß",
	} {
		require.Equal(t, want, plain(text), "%q", text)
	}
}
