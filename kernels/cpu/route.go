package cpu

import (
	"math"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu/vec"
)

// routeOp is a router over rows of logits.
type routeOp struct {
	ids, weights, logits view
	s                    kernels.RouteSpec
	bias                 []float32
}

// Route records the choice of experts.
func (q *queue) Route(ids, weights, logits kernels.Buf, s *kernels.RouteSpec) {
	const op = "route"
	if q.off() {
		return
	}
	o := routeOp{s: *s, ids: q.typed(op, "ids", ids, kernels.I32), logits: q.typed(op, "logits", logits, kernels.F32)}
	if q.off() {
		return
	}
	rows, experts := o.ids.rows, o.logits.cols
	o.weights = q.shaped(op, "weights", weights, kernels.F32, rows, s.K)
	if q.off() {
		return
	}
	if err := s.Check(experts); err != nil {
		q.bad("route: %v", err)
		return
	}
	if o.ids.cols != s.K || o.logits.rows < rows {
		q.bad("route: ids is [%d, %d], logits [%d, %d]; want ids [%d, %d]", rows, o.ids.cols, o.logits.rows, experts, rows, s.K)
		return
	}
	if !s.Bias.None() {
		w := q.weightOf(op, s.Bias, kernels.Vector)
		if w == nil {
			return
		}
		if len(w.values) != experts {
			q.bad("route: bias %s has %d elements; there are %d experts", w.name, len(w.values), experts)
			return
		}
		o.bias = w.values
	}
	o.s.Groups = max(s.Groups, 1)
	if o.s.Groups == 1 {
		o.s.Kept = 1
	}
	q.require(needs{worker: scratchBytes([]int{experts, experts, experts, o.s.Groups, o.s.Groups}, nil)})
	q.list.routes = append(q.list.routes, o)
	q.push(opRoute, rows*experts <= soloElems/8, len(q.list.routes)-1)
}

func (w *worker) route(o *routeOp) {
	n := o.logits.cols
	lo, hi := w.part(o.ids.rows)
	score, choice, left := w.f32(n), w.f32(n), w.f32(n)
	value, open := w.f32(o.s.Groups), w.f32(o.s.Groups)
	for r := lo; r < hi; r++ {
		x := o.logits.f32(r)
		sum := float32(1)
		switch o.s.Score {
		case kernels.ScoreSoftmax:
			sum = w.set.ExpSub(score, x, w.set.Max(x))
			copy(choice, x)
		case kernels.ScoreSigmoid:
			w.set.Sigmoid(score, x)
			copy(choice, score)
		case kernels.ScoreSqrtSoftplus:
			for i, v := range x {
				score[i] = float32(math.Sqrt(float64(vec.Softplus32(v))))
			}
			copy(choice, score)
		}
		if o.bias != nil {
			w.set.Add(choice, o.bias)
		}
		if o.s.Given {
			w.given(o, r)
		} else {
			o.limit(left, choice, value, open)
			o.choose(r, choice, left)
		}
		o.weigh(r, score, sum)
	}
}

// limit marks the experts that may be chosen by 1 in left, the others by 0.
func (o *routeOp) limit(left, choice, value, open []float32) {
	size := len(left) / o.s.Groups
	if o.s.Groups == 1 {
		fill(left, 1)
		return
	}
	for g := range value {
		fill(left[:size], 1)
		in := choice[g*size:][:size]
		a := largest(in, left[:size])
		left[a] = 0
		value[g] = in[a] + in[largest(in, left[:size])]
	}
	fill(left, 0)
	fill(open, 1)
	for range o.s.Kept {
		g := largest(value, open)
		open[g] = 0
		fill(left[g*size:][:size], 1)
	}
}

// given checks that the experts of row r, which are given, are some.
func (w *worker) given(o *routeOp, r int) {
	for _, e := range o.ids.i32(r) {
		if e < 0 || int(e) >= o.logits.cols {
			w.fail("cpu: route: row %d is given expert %d of %d", r, e, o.logits.cols)
			clear(o.ids.i32(r))
		}
	}
}

// choose writes the experts of row r.
func (o *routeOp) choose(r int, choice, left []float32) {
	for j := range o.ids.i32(r) {
		e := largest(choice, left)
		left[e] = 0
		o.ids.i32(r)[j] = int32(e)
	}
}

// weigh writes the weights of the experts of row r.
func (o *routeOp) weigh(r int, score []float32, sum float32) {
	weights := o.weights.f32(r)
	total := float32(0)
	for j, e := range o.ids.i32(r) {
		weights[j] = score[e] / sum
		total += weights[j]
	}
	if o.s.Score != kernels.ScoreSoftmax {
		total += 1e-20
	}
	for j := range weights {
		if o.s.Normalize {
			weights[j] /= total
		}
		weights[j] *= o.s.Scale
	}
}

// largest returns the first index of the largest element of x among those that left
// marks, of which there is one; a NaN counts as minus infinity.
func largest(x, left []float32) int {
	best, top := -1, float32(math.Inf(-1))
	for i, v := range x {
		if left[i] != 0 && (best < 0 || v > top) {
			best = i
			if v > top {
				top = v
			}
		}
	}
	return best
}

func fill(x []float32, v float32) {
	for i := range x {
		x[i] = v
	}
}

// i32 returns row r of an I32 view.
func (v *view) i32(r int) []int32 { return int32s(v.row(r), v.cols) }
