package sample

// history is what penalties look at: the distinct tokens of prompt and output,
// with their counts in the output. It stays empty for requests without
// penalties.
type history struct {
	entries []entry
	index   map[int32]int32 // token id -> entry
}

type entry struct {
	id    int32
	count int32 // in the output
}

func (h *history) add(id, count int32) {
	if h.index == nil {
		h.index = make(map[int32]int32)
	}
	i, ok := h.index[id]
	if !ok {
		i = int32(len(h.entries))
		h.index[id] = i
		h.entries = append(h.entries, entry{id: id})
	}
	h.entries[i].count += count
}

// lookup returns the count of id in the output, and whether it is in prompt or
// output at all.
func (h *history) lookup(id int32) (count int32, seen bool) {
	i, ok := h.index[id]
	if !ok {
		return 0, false
	}
	return h.entries[i].count, true
}

// penalise returns the logit of a token of the history that is count times in
// the output.
func (s *Sampler) penalise(logit float64, count int32) float64 {
	if r := s.repetition; r != 1 {
		if logit > 0 {
			logit /= r
		} else {
			logit = float64(logit * r)
		}
	}
	logit -= float64(s.frequency * float64(count))
	if count > 0 {
		logit -= s.presence
	}
	return logit
}

// penalties changes z, the logits of a row, as the history and the drafts before
// the row demand. The result for a token depends on its raw logit and count.
func (s *Sampler) penalties(z []float64, logits []float32, drafts []int32) {
	if !s.penalised {
		return
	}
	for _, e := range s.history.entries {
		if uint(e.id) < uint(len(z)) {
			z[e.id] = s.penalise(s.base(logits, e.id), e.count)
		}
	}
	for _, d := range drafts {
		if uint(d) >= uint(len(z)) {
			continue
		}
		count, _ := s.history.lookup(d)
		for _, e := range drafts {
			if e == d {
				count++
			}
		}
		z[d] = s.penalise(s.base(logits, d), count)
	}
}
