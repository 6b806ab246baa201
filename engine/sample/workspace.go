package sample

// Workspace holds the buffers that processing a row needs, as large as the
// largest vocabulary seen. Samplers that are used by one goroutine share one;
// what a sampler returns from it is valid until the next call on any of them.
type Workspace struct {
	weight []float64 // of each token, relative to the largest; then filtered
	probs  []float32
	heap   []int32 // candidates of top-k and top-p
	kept   []int32 // what they left, by falling weight
	keptW  []float64
}

// NewWorkspace returns an empty workspace.
func NewWorkspace() *Workspace { return &Workspace{} }

func (w *Workspace) resize(vocab int) {
	if cap(w.weight) < vocab {
		w.weight = make([]float64, vocab)
	}
	w.weight = w.weight[:vocab]
}

func (w *Workspace) row(vocab int) []float32 {
	if cap(w.probs) < vocab {
		w.probs = make([]float32, vocab)
	}
	return w.probs[:vocab]
}
