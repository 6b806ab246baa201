package server

import (
	"slices"
	"sync"

	"exacta.dev/exacta/engine/grammar"
)

// grammarCache keeps the grammars that were used last. It is safe for concurrent
// use.
type grammarCache struct {
	mu   sync.Mutex
	used []*grammar.Grammar // the latest last
}

// mostGrammars bounds a grammarCache: a grammar keeps megabytes of masks.
const mostGrammars = 32

func (c *grammarCache) get(pattern string) *grammar.Grammar {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.used, func(g *grammar.Grammar) bool { return g.Pattern() == pattern })
	if i < 0 {
		return nil
	}
	g := c.used[i]
	c.used = append(slices.Delete(c.used, i, i+1), g)
	return g
}

func (c *grammarCache) put(pattern string, g *grammar.Grammar) {
	if c.get(pattern) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.used) == mostGrammars {
		c.used = slices.Delete(c.used, 0, 1)
	}
	c.used = append(c.used, g)
}
