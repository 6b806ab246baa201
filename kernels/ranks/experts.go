package ranks

import (
	"errors"
	"fmt"

	"exacta.dev/exacta/kernels"
)

// bank checks what Experts and Mix have in common.
func (be *Backend) bank(op string, dst kernels.Buf, h kernels.Weight, x, ids kernels.Buf) (*weight, error) {
	w, err := be.weight(op, h, kernels.Bank)
	if err != nil {
		return nil, err
	}
	switch {
	case int(x.Cols) != w.cols || x.Kind != kernels.BF16:
		err = fmt.Errorf("x is %s with %d columns, want bf16 with %d", x.Kind, x.Cols, w.cols)
	case dst.Cols != int32(w.outputs()) || dst.Kind == kernels.I32:
		err = fmt.Errorf("dst is %s with %d columns, want bf16 or f32 with %d", dst.Kind, dst.Cols, w.outputs())
	case ids.Kind != kernels.I32:
		err = fmt.Errorf("ids is %s, want i32", ids.Kind)
	case dst.ID == x.ID && overlap(dst, x):
		err = errors.New("dst and x overlap")
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", op, w.name, err)
	}
	return w, nil
}

// experts checks Experts as a whole: each rank sees only its part.
func (be *Backend) experts(dst kernels.Buf, h kernels.Weight, x, ids kernels.Buf, act kernels.Act) (*weight, error) {
	w, err := be.bank("experts", dst, h, x, ids)
	switch {
	case err != nil:
		return nil, err
	case act > kernels.SwiGLU || (act == kernels.SwiGLU) != w.paired:
		err = fmt.Errorf("activation %d of a bank that is paired: %t", act, w.paired)
	case dst.Rows < ids.Rows*ids.Cols || x.Rows < ids.Rows:
		err = fmt.Errorf("dst has %d rows, x %d; ids is [%d, %d]", dst.Rows, x.Rows, ids.Rows, ids.Cols)
	}
	if err != nil {
		return nil, fmt.Errorf("experts %s: %w", w.name, err)
	}
	return w, nil
}

// mix checks Mix as a whole.
func (be *Backend) mix(dst kernels.Buf, h kernels.Weight, x, ids, weights, res kernels.Buf) (*weight, error) {
	w, err := be.bank("mix", dst, h, x, ids)
	switch {
	case err != nil:
		return nil, err
	case w.paired:
		err = errors.New("the bank is paired")
	case dst.Rows < ids.Rows || x.Rows < ids.Rows*ids.Cols:
		err = fmt.Errorf("dst has %d rows, x %d; ids is [%d, %d]", dst.Rows, x.Rows, ids.Rows, ids.Cols)
	case weights.Kind != kernels.F32 || weights.Rows != ids.Rows || weights.Cols != ids.Cols:
		err = fmt.Errorf("weights is %s [%d, %d], want f32 [%d, %d]", weights.Kind, weights.Rows, weights.Cols, ids.Rows, ids.Cols)
	case !res.None() && (res.Rows < ids.Rows || res.Cols != dst.Cols || res.Kind == kernels.I32):
		err = fmt.Errorf("residual is %s [%d, %d], dst [%d, %d]", res.Kind, res.Rows, res.Cols, dst.Rows, dst.Cols)
	}
	if err != nil {
		return nil, fmt.Errorf("mix %s: %w", w.name, err)
	}
	return w, nil
}

// Experts computes this rank's columns of dst and gathers the others'.
func (q *queue) Experts(dst kernels.Buf, h kernels.Weight, x, ids kernels.Buf, act kernels.Act) {
	if q.err != nil {
		return
	}
	w, err := q.be.experts(dst, h, x, ids, act)
	if err != nil {
		q.refuse(err)
		return
	}
	n := int(ids.Rows * ids.Cols)
	if n == 0 {
		return
	}
	dst = dst.Top(n)
	if from, to := w.share(q.be.rank); from < to {
		q.in.Experts(dst.Columns(from, to), w.inner, x, ids, act)
	}
	q.columns("experts", w, dst, uint64(n))
}

// Mix computes this rank's columns of dst and gathers the others'.
func (q *queue) Mix(dst kernels.Buf, h kernels.Weight, x, ids, weights, residual kernels.Buf) {
	if q.err != nil {
		return
	}
	w, err := q.be.mix(dst, h, x, ids, weights, residual)
	if err != nil {
		q.refuse(err)
		return
	}
	if ids.Rows == 0 {
		return
	}
	dst = dst.Top(int(ids.Rows))
	if from, to := w.share(q.be.rank); from < to {
		if !residual.None() {
			residual = residual.Columns(from, to)
		}
		q.in.Mix(dst.Columns(from, to), w.inner, x, ids, weights, residual)
	}
	q.columns("mix", w, dst, uint64(ids.Rows*ids.Cols))
}

// diagonal checks Blocks as a whole.
func (be *Backend) diagonal(dst kernels.Buf, h kernels.Weight, x kernels.Buf) (*weight, error) {
	w, err := be.weight("blocks", h, kernels.Diagonal)
	if err != nil {
		return nil, err
	}
	switch {
	case dst.Cols != int32(w.rows) || dst.Kind == kernels.I32:
		err = fmt.Errorf("dst is %s with %d columns, want bf16 or f32 with %d", dst.Kind, dst.Cols, w.rows)
	case int(x.Cols) != w.experts*w.cols || x.Rows < dst.Rows || x.Kind != kernels.BF16:
		err = fmt.Errorf("x is %s [%d, %d], want bf16 [%d, %d]", x.Kind, x.Rows, x.Cols, dst.Rows, w.experts*w.cols)
	case dst.ID == x.ID && overlap(dst, x):
		err = errors.New("dst and x overlap")
	}
	if err != nil {
		return nil, fmt.Errorf("blocks %s: %w", w.name, err)
	}
	return w, nil
}

// Blocks computes this rank's blocks of dst and gathers the others'.
func (q *queue) Blocks(dst kernels.Buf, h kernels.Weight, x kernels.Buf) {
	if q.err != nil {
		return
	}
	w, err := q.be.diagonal(dst, h, x)
	if err != nil {
		q.refuse(err)
		return
	}
	if dst.Rows == 0 {
		return
	}
	if from, to := w.share(q.be.rank); from < to {
		n := w.rows / w.experts
		q.in.Blocks(dst.Columns(from, to), w.inner, x.Columns(from/n*w.cols, to/n*w.cols))
	}
	q.columns("blocks", w, dst, uint64(dst.Rows))
}
