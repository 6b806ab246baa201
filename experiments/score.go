package experiments

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
)

// TopLogit is one of a row's largest logits.
type TopLogit struct {
	ID    int32   `json:"id"`
	Logit float32 `json:"logit"`
}

// ScoredToken is a token with what the model said of it and at it.
type ScoredToken struct {
	ID int32 `json:"id"`
	// Logprob is the natural log of the token's probability after the tokens
	// before it; null for the first token.
	Logprob *float64 `json:"logprob"`
	// Top are the five largest logits of the row at this token: what may
	// follow it.
	Top []TopLogit `json:"top"`
}

// Continued is a token of the greedy continuation.
type Continued struct {
	ID  int32   `json:"id"`
	Gap float32 `json:"gap"` // largest minus second largest logit
}

// ScoreResult is what exacta score prints.
type ScoreResult struct {
	Model        string        `json:"model"`
	Backend      string        `json:"backend"`
	Positions    []ScoredToken `json:"positions"`
	Continuation []Continued   `json:"continuation"`
	logits       []float32
	vocab        int
}

// scoreChunk is the number of rows per pass; the bits do not depend on it.
const scoreChunk = 64

// Score runs ids through a model and continues them greedily by more tokens.
// All logits rows of ids are kept if keep is set (LogitsData).
func Score(ctx context.Context, m *model.Model, ids []int32, more int, keep bool) (res *ScoreResult, err error) {
	if more < 0 {
		return nil, fmt.Errorf("a continuation of %d tokens; it must be 0 or more", more)
	}
	r, err := newFeeder(m, len(ids)+more)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	c := m.Config
	res = &ScoreResult{Continuation: []Continued{}, Model: m.Name, Backend: m.Backend().Info().Name, vocab: c.VocabSize}
	var last []float32
	for from := 0; from < len(ids); from += scoreChunk {
		if ctx.Err() != nil {
			return nil, ErrInterrupted
		}
		chunk := ids[from:min(len(ids), from+scoreChunk)]
		rows, err := r.feed(from, chunk)
		if err != nil {
			return nil, err
		}
		for i := range chunk {
			row := rows[i*c.VocabSize : (i+1)*c.VocabSize]
			tok := ScoredToken{ID: chunk[i], Top: topLogits(row, 5)}
			if last != nil {
				lp := logProb(last, chunk[i])
				tok.Logprob = &lp
			}
			last = append(last[:0], row...)
			res.Positions = append(res.Positions, tok)
		}
		if keep {
			res.logits = append(res.logits, rows...)
		}
	}
	for i := range more {
		top := topLogits(last, 2)
		next := Continued{ID: top[0].ID}
		if len(top) > 1 { // there is no second id in a vocabulary of one
			next.Gap = top[0].Logit - top[1].Logit
		}
		res.Continuation = append(res.Continuation, next)
		if i+1 == more {
			break
		}
		if ctx.Err() != nil {
			return nil, ErrInterrupted
		}
		rows, err := r.feed(len(ids)+i, []int32{top[0].ID})
		if err != nil {
			return nil, err
		}
		last = append(last[:0], rows...)
	}
	return res, nil
}

// LogitsData returns the kept rows as a tensor "logits" [positions, vocabulary],
// F32.
func (r *ScoreResult) LogitsData() checkpoint.Data {
	return checkpoint.Float32Data("logits", []int{len(r.logits) / r.vocab, r.vocab}, r.logits)
}

// logProb returns log softmax(row)[id], in float64.
func logProb(row []float32, id int32) float64 {
	top := float64(slices.Max(row))
	sum := 0.0
	for _, v := range row {
		sum += math.Exp(float64(v) - top)
	}
	return float64(row[id]) - top - math.Log(sum)
}

// topLogits returns the n largest, ties to the lower id.
func topLogits(row []float32, n int) []TopLogit {
	var top []TopLogit
	for id, v := range row {
		at := len(top)
		for at > 0 && v > top[at-1].Logit {
			at--
		}
		if at < n {
			top = slices.Insert(top, at, TopLogit{int32(id), v})[:min(n, len(top)+1)]
		}
	}
	return top
}
