package outside

// totals are what a level's client received, and what its server claims for it.
type totals struct {
	requests, tokens, prompts int
	pieces, pieceTokens       int
	known                     bool    // every piece says how many tokens it has
	longest                   int     // prompt, in tokens
	decodeSeconds             float64 // first to last piece, all requests

	k     int
	kFrom string
	width int // drafts of a step, more than k in a tree

	// The claims: counters, or else sums of what was said by request.
	steps, proposed, accepted *float64
	byPosition                []float64
	histogram                 []float64
	outputs                   *float64 // decoding steps with drafts or without
	stated                    []*Answer
	counters                  *Counters
}

// sum adds a level up. opt and the server say what k is; where neither does, it
// is the least that the figures allow.
func sum(ev *Evidence, l *Level, opt Options) *totals {
	t := &totals{known: true, counters: l.Counters}
	for _, a := range l.Answers {
		if a.Err != nil {
			continue
		}
		t.requests++
		t.tokens += max(0, a.tokens())
		t.prompts += max(len(a.Prompt), a.PromptUsed)
		t.longest = max(t.longest, len(a.Prompt))
		t.pieces += len(a.Pieces)
		for _, p := range a.Pieces {
			t.pieceTokens += max(0, p.Tokens)
			t.known = t.known && p.Tokens > 0
		}
		if n := len(a.Pieces); n > 1 {
			t.decodeSeconds += (a.Pieces[n-1].At - a.Pieces[0].At).Seconds()
		}
		if a.Stated != nil {
			t.stated = append(t.stated, a)
		}
	}
	t.claims()
	t.findK(ev.Server, opt)
	return t
}

// claims takes the figures from the counters, and what they lack from the sums
// over the requests.
func (t *totals) claims() {
	if c := t.counters; c != nil {
		t.steps, t.proposed, t.accepted, t.byPosition, t.outputs = c.Steps, c.Proposed, c.Accepted, c.ByPosition, c.Outputs
	}
	if len(t.stated) < t.requests || t.requests == 0 {
		return
	}
	add := func(of func(*Stated) *int64) *float64 {
		total := 0.0
		for _, a := range t.stated {
			v := of(a.Stated)
			if v == nil {
				return nil
			}
			total += float64(*v)
		}
		return &total
	}
	all := true
	for _, a := range t.stated {
		for i, n := range a.Stated.Histogram {
			for len(t.histogram) <= i {
				t.histogram = append(t.histogram, 0)
			}
			t.histogram[i] += float64(n)
		}
		all = all && a.Stated.AllSteps
	}
	steps := add(func(s *Stated) *int64 { return s.Steps })
	if t.steps == nil {
		t.steps = steps
	}
	if t.outputs == nil && all {
		t.outputs = steps
	}
	if t.proposed == nil {
		t.proposed = add(func(s *Stated) *int64 { return s.Proposed })
	}
	if t.accepted == nil {
		t.accepted = add(func(s *Stated) *int64 { return s.Accepted })
	}
}

// joint returns the steps that accepted at least i+1 drafts, by position or from
// the histogram.
func (t *totals) joint() []float64 {
	if len(t.byPosition) > 0 || len(t.histogram) == 0 {
		return t.byPosition
	}
	out := make([]float64, len(t.histogram)-1)
	above := 0.0
	for i := len(t.histogram) - 1; i > 0; i-- {
		above += t.histogram[i]
		out[i-1] = above
	}
	return out
}

// findK finds the draft length.
func (t *totals) findK(s *Server, opt Options) {
	defer func() { t.width = max(t.k, s.Width) }()
	switch {
	case opt.K > 0:
		t.k, t.kFrom = opt.K, "given"
	case s.K > 0:
		t.k, t.kFrom = s.K, "the server's setting"
	case s.Dialect == VLLM && len(t.byPosition) > 0:
		t.k, t.kFrom = len(t.byPosition), "the positions that are counted"
	case len(t.histogram) > 1:
		t.k, t.kFrom = len(t.histogram)-1, "the longest bin of the histograms"
	default:
		t.k, t.kFrom = len(t.byPosition), "the positions that were accepted, at least"
		if t.steps != nil && t.proposed != nil && *t.steps > 0 {
			if n := int((*t.proposed + *t.steps - 1) / *t.steps); n > t.k {
				t.k, t.kFrom = n, "drafts by step, at least"
			}
		}
	}
}
