package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// pieceDesigns are the SentencePiece vocabularies of testdata/make_pieces.py.
var pieceDesigns = []string{"m_pieces", "n_ties", "o_holes"}

// The ids of SentencePiece vocabularies are those of the C++ library, on strings of
// every kind.
func TestPieces(t *testing.T) {
	for _, name := range pieceDesigns {
		t.Run(name, func(t *testing.T) {
			texts, g := pieceGoldens(t, name)
			tok := design(t, name)
			bad := 0
			for i, text := range texts {
				got := tok.Encode(text, true)
				if fmt.Sprint(got) != fmt.Sprint(g.IDs[i]) {
					if bad++; bad <= 5 {
						t.Errorf("%q\n got %v %s\nwant %v %s", text, got, show(tok, got), g.IDs[i], show(tok, g.IDs[i]))
					}
				}
			}
			require.Zero(t, bad, "strings that differ from the reference, of %d", len(texts))
		})
	}
}

func pieceGoldens(t *testing.T, name string) (texts []string, g golden) {
	t.Helper()
	readGz(t, "testdata/strings.json.gz", &texts)
	readGz(t, "testdata/"+name+".golden.json.gz", &g)
	require.Len(t, g.IDs, len(texts))
	require.NotEmpty(t, g.MadeBy["sentencepiece"])
	return texts, g
}

// hashedIDs is what the reference gave for the mixed text.
type hashedIDs struct {
	IDs       int    `json:"ids"`
	Documents []byte `json:"documents"` // 4 bytes of the hash of each document's ids
}

// They are the library's on 2 MB of mixed text, with bad bytes replaced, and with bad
// bytes as they are where the vocabulary has bytes. Text without added tokens comes
// back.
func TestPiecesMixed(t *testing.T) {
	text, err := os.ReadFile("testdata/pieces.golden.json")
	require.NoError(t, err)
	var g struct {
		Text    string                          `json:"text"`
		Designs map[string]map[string]hashedIDs `json:"designs"`
	}
	require.NoError(t, json.Unmarshal(text, &g))
	docs := mixedText()
	sum := sha256.Sum256([]byte(strings.Join(docs, "\x00")))
	require.Equal(t, g.Text, hex.EncodeToString(sum[:]), "the text is not the one that the reference was asked about")
	replaced := make([]string, len(docs))
	for i, d := range docs {
		replaced[i] = lossy([]byte(d))
	}
	require.Len(t, g.Designs, len(pieceDesigns))
	for name, want := range g.Designs {
		t.Run(name, func(t *testing.T) {
			tok := design(t, name)
			checkPieces(t, tok, replaced, want["lossy"])
			if _, ok := tok.ID("<0x80>"); ok {
				checkPieces(t, tok, docs, want["raw"])
				checkPiecesBack(t, tok, replaced)
			}
		})
	}
}

func checkPieces(t *testing.T, tok *Tokenizer, docs []string, want hashedIDs) {
	t.Helper()
	require.Len(t, want.Documents, 4*len(docs))
	total, differ := 0, 0
	for i, doc := range docs {
		ids := tok.Encode(doc, false)
		total += len(ids)
		if h := sha256.Sum256(raw(ids)); string(h[:4]) != string(want.Documents[4*i:4*i+4]) {
			if differ++; differ <= 3 {
				t.Errorf("document %d differs: %.300q", i, doc)
			}
		}
	}
	require.Zero(t, differ, "documents that differ from the reference, of %d", len(docs))
	require.Equal(t, want.IDs, total)
}

func checkPiecesBack(t *testing.T, tok *Tokenizer, docs []string) {
	t.Helper()
	back := 0
	for _, doc := range docs {
		if start, _, _ := tok.rawAdded.find(doc, 0); start != nil || strings.Contains(doc, "\u2581") {
			continue
		}
		back++
		require.Equal(t, doc, tok.Decode(tok.Encode(doc, false), false))
	}
	require.Greater(t, back, 200)
}

// What a file of scores may say wrongly.
func TestPiecesRefused(t *testing.T) {
	text, err := os.ReadFile("testdata/m_pieces.json")
	require.NoError(t, err)
	for want, change := range map[string]func(m obj){
		"scores: the list has 1499 entries; there are 1500 ids":    func(m obj) { m["scores"] = m["scores"].([]any)[1:] },
		"scores: without byte_fallback there must be an unk_token": func(m obj) { m["byte_fallback"], m["unk_token"] = false, nil },
		"a model of type SentencePiece has scores, and no merges":  func(m obj) { m["merges"] = []any{"a b"} },
		"a model of type BPE has merges, and no scores":            func(m obj) { m["type"] = "BPE" },
		"scores: vocab has too many long pieces": func(m obj) {
			m["vocab"].(obj)[strings.Repeat("x", 40000)] = 1500
			m["scores"] = append(m["scores"].([]any), 1.0)
		},
		"cannot unmarshal number 1e99 into Go struct field":               func(m obj) { m["scores"].([]any)[5] = json.Number("1e99") },
		`type is "Unigram"; known are "BPE" and exacta's "SentencePiece"`: func(m obj) { m["type"] = "Unigram" },
	} {
		var file obj
		require.NoError(t, json.Unmarshal(text, &file))
		change(file["model"].(obj))
		changed, err := json.Marshal(file)
		require.NoError(t, err)
		_, err = Load(changed)
		require.ErrorContains(t, err, want)
	}
}

// slowly is the rule of SentencePiece's BPE as it is told: characters; then, as long as
// two neighbours' texts joined are a piece with a score, those of the highest score, the
// leftmost of equals; then the ids of what is left.
func slowly(text string, ids map[string]int32, scores []*float32) (out []int32) {
	parts := strings.Split(text, "")
	for {
		best, score := -1, float32(0)
		for i := range len(parts) - 1 {
			id, ok := ids[parts[i]+parts[i+1]]
			if ok && scores[id] != nil && (best < 0 || *scores[id] > score) {
				best, score = i, *scores[id]
			}
		}
		if best < 0 {
			break
		}
		parts[best] += parts[best+1]
		parts = append(parts[:best+1], parts[best+2:]...)
	}
	for _, p := range parts {
		id, ok := ids[p]
		if !ok && len(out) > 0 && out[len(out)-1] == 0 {
			continue // unknown characters are one
		}
		out = append(out, id)
	}
	return out
}

// FuzzPieces makes vocabularies of any pieces and scores, and holds the ids of any text
// to the rule.
func FuzzPieces(f *testing.F) {
	f.Add("a b ab aba bab aab", []byte{1, 2, 3, 3, 9, 1}, "aabbabab xaabab")
	f.Add("aa aaa aaaa é日 日", []byte{3, 200, 4, 4, 0}, strings.Repeat("aaaéé日", 30))
	f.Fuzz(func(t *testing.T, pieces string, scores []byte, text string) {
		if len(text) > 1000 || strings.Contains(text, "<unk>") || !utf8.ValidString(text+pieces) {
			return
		}
		vocab, list := map[string]int32{"<unk>": 0}, []*float32{nil}
		for _, p := range strings.Fields(pieces) {
			if _, ok := vocab[p]; ok || len(list) > len(scores) {
				continue
			}
			vocab[p] = int32(len(list))
			list = append(list, new(float32(int8(scores[len(list)-1]))))
		}
		file, err := json.Marshal(obj{
			"model":   obj{"type": "SentencePiece", "vocab": vocab, "scores": list, "unk_token": "<unk>", "fuse_unk": true},
			"decoder": obj{"type": "Fuse"},
		})
		require.NoError(t, err)
		tok, err := Load(file)
		require.NoError(t, err)
		if text != "" {
			require.Equal(t, slowly(text, vocab, list), tok.Encode(text, false))
		}
	})
}
