package suffixtree

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// counts is the naive twin: how often each substring occurs in the texts.
func counts(texts [][]int32, depth int) map[string]int32 {
	out := map[string]int32{}
	for _, x := range texts {
		for i := range x {
			for n := 1; n <= depth && i+n <= len(x); n++ {
				out[key(x[i:i+n])]++
			}
		}
	}
	return out
}

func key(tokens []int32) string {
	b := make([]byte, len(tokens))
	for i, id := range tokens {
		b[i] = byte(id)
	}
	return string(b)
}

// slow is the guess by counting substrings.
func slow(texts [][]int32, tail []int32, depth, vocab int, l Limits) Guess {
	c := counts(texts, depth)
	var best Guess
	for m := min(depth-1, len(tail)); m > 0; m-- {
		at := slices.Clone(tail[len(tail)-m:])
		if c[key(at)] == 0 {
			continue
		}
		g, p := Guess{Match: m}, 1.0
		for len(g.Tokens) < min(l.Tokens, int(l.Factor*float64(m))) && len(at) < depth {
			next, most := int32(-1), int32(0)
			for id := range int32(vocab) {
				if n := c[key(append(slices.Clone(at), id))]; n > most {
					next, most = id, n
				}
			}
			if next < 0 {
				break
			}
			p *= float64(most) / float64(c[key(at)])
			if p < l.MinProb {
				break
			}
			at = append(at, next)
			g.Tokens, g.Probs, g.Score = append(g.Tokens, next), append(g.Probs, p), g.Score+p
		}
		if g.Score > best.Score {
			best = g
		}
	}
	return best
}

func TestTreeAgainstCounting(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 0))
	for range 200 {
		depth, vocab := 2+r.IntN(6), 2+r.IntN(4)
		tree := New(depth)
		var held [][]int32
		for range 6 {
			x := make([]int32, r.IntN(30))
			var text Text
			for i := range x {
				x[i] = r.Int32N(int32(vocab))
				tree.Append(&text, x[i])
			}
			held = append(held, x)
			l := Limits{Tokens: 1 + r.IntN(6), Factor: 0.5 + 2*r.Float64(), MinProb: r.Float64() / 2}
			require.Equal(t, slow(held, x, depth, vocab, l), tree.Continue(&text, l))
			other := []int32{r.Int32N(int32(vocab)), r.Int32N(int32(vocab)), r.Int32N(int32(vocab))}
			require.Equal(t, slow(held, other, depth, vocab, l), tree.Lookup(other, l))
			if r.IntN(3) == 0 {
				tree.Remove(held[0])
				held = held[1:]
				require.Equal(t, slow(held, other, depth, vocab, l), tree.Lookup(other, l))
			}
			require.Len(t, counts(held, depth), tree.Nodes())
		}
	}
}

func TestRemoveAllLeavesNothing(t *testing.T) {
	tree := New(8)
	x := []int32{1, 2, 1, 2, 1, 2, 3}
	for range 3 {
		var text Text
		for _, id := range x {
			tree.Append(&text, id)
		}
	}
	for range 3 {
		tree.Remove(x)
	}
	require.Zero(t, tree.Nodes())
	require.Empty(t, tree.Lookup([]int32{1, 2}, Limits{Tokens: 4, Factor: 4}).Tokens)
}

func BenchmarkAppend(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 0))
	tree, text := New(24), Text{}
	for b.Loop() {
		tree.Append(&text, r.Int32N(64))
		if tree.Nodes() > 1<<20 {
			tree, text = New(24), Text{}
		}
	}
}

// A tree of guesses has the likeliest tokens after those that it has, and with one
// branch's room it is the chain.
func TestSpread(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	for range 300 {
		depth, vocab := 3+r.IntN(6), 2+r.IntN(4)
		tree := New(depth)
		var x Text
		var text []int32
		for range 5 + r.IntN(60) {
			text = append(text, int32(r.IntN(vocab)))
			tree.Append(&x, text[len(text)-1])
		}
		l := Limits{Tokens: 1 + r.IntN(9), Factor: 1 + r.Float64(), MinProb: 0.2 * r.Float64(), Branches: 2 + r.IntN(3)}
		c := counts([][]int32{text}, depth)
		g := tree.Continue(&x, l)
		require.Len(t, g.Parents, len(g.Tokens))
		path := func(i int32) (tokens []int32) {
			for ; i >= 0; i = g.Parents[i] {
				tokens = append([]int32{g.Tokens[i]}, tokens...)
			}
			return tokens
		}
		match := text[len(text)-g.Match:]
		share := func(tokens []int32) float64 {
			return float64(c[key(append(slices.Clone(match), tokens...))]) / float64(c[key(match)])
		}
		score, least := 0.0, 1.0
		taken := map[string]bool{}
		for i := range g.Tokens {
			require.Less(t, g.Parents[i], int32(i))
			p := path(int32(i))
			require.LessOrEqual(t, len(p), int(l.Factor*float64(g.Match)))
			require.False(t, taken[key(p)], "one token twice after the same ones")
			taken[key(p)] = true
			require.InDelta(t, share(p), g.Probs[i], 1e-12)
			score, least = score+g.Probs[i], min(least, g.Probs[i])
		}
		require.InDelta(t, score, g.Score, 1e-12)
		if len(g.Tokens) < l.Tokens {
			continue
		}
		for i := int32(-1); i < int32(len(g.Tokens)); i++ { // nothing likelier was left out for want of room
			siblings := 0
			for _, p := range g.Parents {
				if p == i {
					siblings++
				}
			}
			for id := range int32(vocab) {
				p := append(path(i), id)
				if siblings < l.Branches && !taken[key(p)] && len(p) <= int(l.Factor*float64(g.Match)) && len(match)+len(p) <= depth {
					require.LessOrEqual(t, share(p), least+1e-12)
				}
			}
		}
		one := l
		one.Branches = 1
		require.Nil(t, tree.Continue(&x, one).Parents)
	}
}
