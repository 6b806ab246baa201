package sample

// topKP keeps of the weights the k largest and, of those, the shortest prefix
// whose sum reaches the share mass of their sum; the others become 0. total is
// the sum of all weights. It returns the sum of what is left.
func (w *Workspace) topKP(total float64, k int, mass float64) float64 {
	all := k >= len(w.weight)
	w.candidates(total, mass, all)
	w.kept, w.keptW = w.kept[:0], w.keptW[:0]
	var sum float64
	if all {
		for goal := float64(mass * total); len(w.heap) > 0 && (sum < goal || len(w.kept) == 0); {
			sum += w.keep()
		}
	} else {
		for len(w.heap) > 0 && len(w.kept) < k {
			sum += w.keep()
		}
		if mass < 1 {
			sum = w.cut(float64(mass * sum))
		}
	}
	clear(w.weight)
	for i, id := range w.kept {
		w.weight[id] = w.keptW[i]
	}
	return sum
}

// candidates makes the heap of the tokens that may be kept. For top-p alone,
// tokens below (1-mass)/vocab of the total together hold less than 1-mass of it,
// so the prefix ends before them; half of that bound allows for rounding.
func (w *Workspace) candidates(total, mass float64, pruned bool) {
	floor := 0.0
	if pruned {
		floor = 0.5 * (1 - mass) * total / float64(len(w.weight))
	}
	w.heap = w.heap[:0]
	for i, v := range w.weight {
		if v > 0 && v >= floor {
			w.heap = append(w.heap, int32(i))
		}
	}
	for i := len(w.heap)/2 - 1; i >= 0; i-- {
		w.sift(i)
	}
}

// keep moves the largest candidate, the lowest id among equals, to kept.
func (w *Workspace) keep() float64 {
	id := w.heap[0]
	n := len(w.heap) - 1
	w.heap[0] = w.heap[n]
	w.heap = w.heap[:n]
	w.sift(0)
	w.kept = append(w.kept, id)
	w.keptW = append(w.keptW, w.weight[id])
	return w.weight[id]
}

// cut shortens kept to the prefix whose sum reaches goal, and returns that sum.
func (w *Workspace) cut(goal float64) float64 {
	var sum float64
	for i, v := range w.keptW {
		if sum += v; sum >= goal {
			w.kept, w.keptW = w.kept[:i+1], w.keptW[:i+1]
			break
		}
	}
	return sum
}

func (w *Workspace) before(a, b int32) bool {
	x, y := w.weight[a], w.weight[b]
	return x > y || x == y && a < b
}

func (w *Workspace) sift(i int) {
	h := w.heap
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && w.before(h[c+1], h[c]) {
			c++
		}
		if !w.before(h[c], h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
