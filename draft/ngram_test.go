package draft

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// look is a look-up in an index that is built at once.
func look(tokens []int32, cfg NGram, k int) []int32 {
	ix := &ngramIndex{after: map[gram]int{}}
	ix.grow(tokens, cfg)
	return ix.lookup(nil, tokens, cfg, k)
}

// slowLook does as the documentation says, by scanning.
func slowLook(tokens []int32, cfg NGram, k int) []int32 {
	for n := cfg.MaxMatch; n >= cfg.MinMatch; n-- {
		for end := len(tokens) - 1; end >= n; end-- {
			if !slices.Equal(tokens[end-n:end], tokens[len(tokens)-n:]) {
				continue
			}
			if k == 0 {
				return nil
			}
			text := slices.Clone(tokens)
			for i := range k {
				text = append(text, text[end+i])
			}
			return text[len(tokens):]
		}
	}
	return nil
}

func TestNGramByHand(t *testing.T) {
	cfg := NGram{MinMatch: 2, MaxMatch: 4}
	for _, c := range []struct {
		name   string
		tokens []int32
		k      int
		want   []int32
	}{
		{"too short", []int32{1}, 3, nil},
		{"nothing before", []int32{1, 2, 3}, 3, nil},
		{"one token alone is no match", []int32{1, 5, 1}, 3, nil},
		{"a match", []int32{1, 2, 7, 8, 9, 1, 2}, 3, []int32{7, 8, 9}},
		{"k cuts", []int32{1, 2, 7, 8, 9, 1, 2}, 1, []int32{7}},
		{"no drafts wanted", []int32{1, 2, 7, 8, 9, 1, 2}, 0, nil},
		{"the latest counts", []int32{1, 2, 3, 9, 1, 2, 4, 9, 1, 2}, 1, []int32{4}},
		{"the longest counts", []int32{8, 1, 2, 3, 9, 1, 2, 4, 8, 1, 2}, 1, []int32{3}},
		{"it runs into itself", []int32{1, 2, 1, 2}, 5, []int32{1, 2, 1, 2, 1}},
		{"one token repeated", []int32{6, 6, 6}, 4, []int32{6, 6, 6, 6}},
	} {
		require.Equal(t, c.want, look(c.tokens, cfg, c.k), c.name)
	}
}

// An index that grows with the sequence gives what scanning gives.
func TestNGramAgainstTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 300 {
		cfg := NGram{MinMatch: 1 + r.IntN(3)}
		cfg.MaxMatch = cfg.MinMatch + r.IntN(maxNGram-cfg.MinMatch+1)
		vocab := 2 + r.IntN(6)
		ix := &ngramIndex{after: map[gram]int{}}
		var tokens []int32
		for range 60 {
			for range 1 + r.IntN(4) {
				tokens = append(tokens, int32(r.IntN(vocab)))
			}
			k := r.IntN(9)
			ix.grow(tokens, cfg)
			got := ix.lookup(nil, tokens, cfg, k)
			require.Equal(t, slowLook(tokens, cfg, k), got, "%+v %v", cfg, tokens)
			found += len(got)
		}
	}
	require.Greater(t, found, 10_000)
}

// slowPlaces does as the documentation says, by scanning.
func slowPlaces(tokens []int32, cfg NGram) (places []int) {
	for n := cfg.MaxMatch; n >= cfg.MinMatch; n-- {
		seen := 0
		for end := len(tokens) - 1; end >= n && seen < mostOccurrences; end-- {
			if !slices.Equal(tokens[end-n:end], tokens[len(tokens)-n:]) {
				continue
			}
			seen++
			known := slices.ContainsFunc(places, func(p int) bool { return tokens[p] == tokens[end] })
			if !known && len(places) < cfg.Branches {
				places = append(places, end)
			}
		}
	}
	return places
}

// Trees have the continuations that scanning finds, the first the longest and what a
// chain would say, no token twice after the pending one, and k tokens in all.
func TestNGramTrees(t *testing.T) {
	ix := &ngramIndex{after: map[gram]int{}}
	text := []int32{1, 2, 7, 5, 1, 2, 8, 6, 3, 2, 9, 4, 1, 2}
	cfg := NGram{MinMatch: 1, MaxMatch: 2, Branches: 3}
	ix.grow(text, cfg)
	tokens, parents := ix.tree(text, cfg, 8)
	require.Equal(t, []int32{8, 6, 3, 2, 9, 7, 5, 9}, tokens) // 9 after 2 alone
	require.Equal(t, []int32{-1, 0, 1, 2, 3, -1, 5, -1}, parents)
	tokens, _ = ix.tree(text, cfg, 3)
	require.Equal(t, []int32{8, 6, 3}, tokens, "too few to branch")

	r := rand.New(rand.NewPCG(3, 4))
	branched := 0
	for range 200 {
		cfg := NGram{MinMatch: 1 + r.IntN(2), Branches: 2 + r.IntN(4)}
		cfg.MaxMatch = cfg.MinMatch + r.IntN(4)
		ix, vocab := &ngramIndex{after: map[gram]int{}}, 2+r.IntN(6)
		var tokens []int32
		for range 40 {
			for range 1 + r.IntN(4) {
				tokens = append(tokens, int32(r.IntN(vocab)))
			}
			k := r.IntN(20)
			ix.grow(tokens, cfg)
			require.Equal(t, slowPlaces(tokens, cfg), ix.places(tokens, cfg), "%+v %v", cfg, tokens)
			drafts, parents := ix.tree(tokens, cfg, k)
			chain := ix.lookup(nil, tokens, cfg, k)
			require.Len(t, drafts, len(chain))
			var roots []int32
			for i, p := range parents {
				if p < 0 {
					require.NotContains(t, roots, drafts[i])
					roots = append(roots, drafts[i])
				}
				if len(roots) == 1 {
					require.Equal(t, chain[i], drafts[i])
				}
			}
			if len(roots) > 1 {
				branched++
			}
		}
	}
	require.Greater(t, branched, 2000)
}

// The index takes each token once: proposals along a long sequence cost what
// the sequence costs, not its square.
func TestNGramGrowsOnce(t *testing.T) {
	cfg := NGram{MinMatch: 2, MaxMatch: 4}
	ix := &ngramIndex{after: map[gram]int{}}
	tokens := []int32{0}
	for i := range int32(1000) {
		tokens = append(tokens, i)
		ix.grow(tokens, cfg)
		require.Equal(t, len(tokens), ix.indexed)
	}
	// n-grams of 2, 3 and 4 tokens that end before the last token, all different.
	n := len(tokens) - 1
	require.Equal(t, (n-1)+(n-2)+(n-3), len(ix.after))
}

func TestNGramValidate(t *testing.T) {
	require.NoError(t, (&NGram{MinMatch: 1, MaxMatch: 8, Branches: 1}).Validate())
	for _, c := range []NGram{{0, 4, 1}, {5, 4, 1}, {2, 9, 1}, {-1, -1, 1}, {2, 4, 0}, {2, 4, 17}} {
		want := c.Validate()
		if c.Branches == 1 {
			require.ErrorContains(t, want, "want 1 <= min_match <= max_match <= 8")
		} else {
			require.ErrorContains(t, want, "it must be 1..16")
		}
		_, err := c.Provision(Env{})
		require.EqualError(t, err, "draft ngram: "+want.Error())
	}
}

func FuzzNGram(f *testing.F) {
	f.Add([]byte{1, 2, 1, 2, 1}, 2, 4, 5)
	f.Fuzz(func(t *testing.T, raw []byte, lo, hi, k int) {
		cfg := NGram{MinMatch: lo, MaxMatch: hi, Branches: 1}
		if cfg.Validate() != nil || k < 0 || k > 64 || len(raw) > 500 {
			return
		}
		tokens := make([]int32, len(raw))
		for i, b := range raw {
			tokens[i] = int32(b % 5)
		}
		require.Equal(t, slowLook(tokens, cfg, k), look(tokens, cfg, k))
	})
}

func BenchmarkNGramPropose(b *testing.B) {
	cfg := NGram{MinMatch: 2, MaxMatch: 4}
	r := rand.New(rand.NewPCG(1, 2))
	tokens := make([]int32, 100_000)
	for i := range tokens {
		tokens[i] = int32(r.IntN(300))
	}
	ix := &ngramIndex{after: map[gram]int{}}
	ix.grow(tokens, cfg)
	var dst []int32
	for b.Loop() {
		dst = ix.lookup(dst[:0], tokens, cfg, 4)
	}
}
