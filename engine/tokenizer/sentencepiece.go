package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// sentencePiece is the type of a model whose merges follow from scores. It is no
// type of the reference: vocabularies of GGUF files are read as one.
const sentencePiece = "SentencePiece"

// maxSplitting bounds the work of finding the parts of pieces: the sum of the squares
// of their lengths in bytes. Published vocabularies need 2^24.
const maxSplitting = 1 << 30

// firstHidden is the id of the first symbol that only stands for a character until
// merges are done; no token has it.
const firstHidden = maxID + 1

// scored is the merges of a SentencePiece model (github.com/google/sentencepiece,
// BPE): two neighbours merge where their texts joined are a piece, that of the
// highest score first, the leftmost of equals. How a piece comes apart in two plays no
// part, so that all its merges have one rank, as all pieces of one score have.
type scored struct {
	ids   map[string]int32 // of the pieces that merges make
	ranks []uint64         // by id
	// hidden is the characters of pieces that are no pieces themselves, by id above
	// firstHidden.
	hidden []rune
	runes  *runeSymbols
}

// addScored enters the merges that the scores mean.
func (t *Tokenizer) addScored(m *modelFile) error {
	runes, ok := t.symbols.(*runeSymbols)
	switch {
	case !ok:
		return errors.New("they are not supported in a byte-level vocabulary")
	case !runes.falls && runes.unk < 0:
		return errors.New("without byte_fallback there must be an unk_token in vocab")
	}
	s, err := newScored(t, m.Scores, runes)
	if err != nil {
		return err
	}
	merges, err := s.merges(t)
	if err != nil {
		return err
	}
	t.model = newBPE(len(merges))
	for _, g := range merges {
		t.model.add(g.pair, g.merge)
	}
	t.hidden = s.hidden
	return nil
}

// newScored ranks the pieces; one without a score is never made by a merge.
func newScored(t *Tokenizer, scores []*float32, runes *runeSymbols) (*scored, error) {
	if len(scores) != len(t.tokens) {
		return nil, fmt.Errorf("the list has %d entries; there are %d ids", len(scores), len(t.tokens))
	}
	s := &scored{ids: map[string]int32{}, ranks: make([]uint64, len(scores)), runes: runes}
	var distinct []float32
	work := 0
	for id, score := range scores {
		tok := &t.tokens[id]
		if score == nil || !tok.present {
			continue
		}
		work += len(tok.spelling) * len(tok.spelling)
		if work > maxSplitting {
			return nil, errors.New("vocab has too many long pieces")
		}
		s.ids[tok.spelling] = int32(id)
		distinct = append(distinct, *score)
	}
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	for _, id := range s.ids {
		at, _ := slices.BinarySearch(distinct, *scores[id])
		s.ranks[id] = uint64(len(distinct) - 1 - at)
	}
	return s, nil
}

// scoredMerge is an entry of the merge table.
type scoredMerge struct{ pair, merge uint64 }

// merges finds the parts of every piece, and fills the seams.
func (s *scored) merges(t *Tokenizer) (out []scoredMerge, err error) {
	var cut *seams
	if s.runes.falls {
		cut = newSeams()
	}
	for piece, id := range s.ids {
		for at := range piece {
			if at == 0 {
				continue
			}
			left, ok := s.symbol(piece[:at])
			if !ok {
				continue
			}
			right, ok := s.symbol(piece[at:])
			if !ok {
				continue
			}
			if len(out) == maxMerges {
				return nil, fmt.Errorf("there are more than %d merges", maxMerges)
			}
			out = append(out, scoredMerge{pairKey(left, right), s.ranks[id]<<32 | uint64(uint32(id))})
			if cut != nil {
				cut.join(piece[:at], piece[at:])
			}
		}
	}
	if cut != nil {
		t.stages = append(t.stages, stage{split: cut})
	}
	return out, nil
}

// symbol is the id of a part of a piece: a piece, or a character, which becomes a
// hidden symbol where the vocabulary lacks it.
func (s *scored) symbol(text string) (id int32, ok bool) {
	r, w := utf8.DecodeRuneInString(text)
	if w != len(text) {
		id, ok = s.ids[text]
		return id, ok
	}
	if id, _ = s.runes.of(text, 0); id < 0 {
		id = firstHidden + int32(len(s.hidden))
		s.hidden = append(s.hidden, r)
		s.runes.put(r, id)
	}
	return id, true
}

// unhide puts what the vocabulary has for a character in place of each hidden symbol
// that no merge took.
func (t *Tokenizer) unhide(ids []int32) []int32 {
	first := slices.IndexFunc(ids, func(id int32) bool { return id >= firstHidden })
	if first < 0 {
		return ids
	}
	runes := t.symbols.(*runeSymbols)
	out := slices.Clone(ids[:first])
	for _, id := range ids[first:] {
		if id >= firstHidden && runes.falls {
			for _, b := range []byte(string(t.hidden[id-firstHidden])) {
				out = append(out, runes.bytes[b])
			}
			continue
		}
		if id >= firstHidden {
			id = runes.unk
		}
		if fused := id == runes.unk && runes.fuse && len(out) > 0 && out[len(out)-1] == id; !fused {
			out = append(out, id)
		}
	}
	return out
}
