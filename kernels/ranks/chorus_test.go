package ranks_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/ranks"
)

// chorus drives all ranks of a group from one goroutine, so that what is written
// for one backend runs on several: every call goes to all ranks at once, and
// their answers must agree, to the last bit of what is read.
type chorus struct {
	g *ranks.Group
	q *voices
}

func newChorus(g *ranks.Group) *chorus {
	c := &chorus{g: g}
	c.q = &voices{c: c}
	return c
}

// all calls f for each rank and returns the first error, in order of rank.
func (c *chorus) all(f func(be *ranks.Backend) error) error {
	errs := make([]error, c.g.Size())
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = f(c.g.Backend(i)) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// agreed calls f for each rank and requires equal answers.
func agreed[T comparable](c *chorus, f func(be *ranks.Backend) (T, error)) (T, error) {
	out := make([]T, c.g.Size())
	err := c.all(func(be *ranks.Backend) (err error) {
		out[be.Rank()], err = f(be)
		return err
	})
	for i, v := range out {
		if err == nil && v != out[0] {
			err = fmt.Errorf("rank %d answers %v, rank 0 %v", i, v, out[0])
		}
	}
	return out[0], err
}

func (c *chorus) Info() kernels.Info { return c.g.Backend(0).Info() }

func (c *chorus) Load(t kernels.Tensor) (kernels.Weight, error) {
	return agreed(c, func(be *ranks.Backend) (kernels.Weight, error) { return be.Load(t) })
}

func (c *chorus) Alloc(p kernels.Purpose, k kernels.Kind, rows, cols int) (kernels.Buf, error) {
	return agreed(c, func(be *ranks.Backend) (kernels.Buf, error) { return be.Alloc(p, k, rows, cols) })
}

func (c *chorus) Free(b kernels.Buf) {
	_ = c.all(func(be *ranks.Backend) error { be.Free(b); return nil })
}

func (c *chorus) Queue() kernels.Queue { return c.q }

func (c *chorus) Work() kernels.Counters {
	out := make([]kernels.Counters, c.g.Size())
	_ = c.all(func(be *ranks.Backend) error { out[be.Rank()] = be.Work(); return nil })
	for _, w := range out {
		w.Launches = out[0].Launches
		if w != out[0] {
			return kernels.Counters{}
		}
	}
	return out[0]
}

// Memory sums the ranks.
func (c *chorus) Memory() kernels.Memory {
	var sum kernels.Memory
	for i := range c.g.Size() {
		for p, n := range c.g.Backend(i).Memory() {
			if p == int(kernels.Weights) || i == 0 {
				sum[p] += n
			}
		}
	}
	return sum
}

func (c *chorus) Close() error { return c.all((*ranks.Backend).Close) }

// Caches returns the caches of rank 0, standing for all.
func (c *chorus) Caches(spec kernels.CacheSpec) (kernels.Caches, error) {
	all := make([]kernels.Caches, c.g.Size())
	err := c.all(func(be *ranks.Backend) (err error) {
		all[be.Rank()], err = be.Caches(spec)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, x := range all {
		if x.ID() != all[0].ID() || x.Len() != all[0].Len() {
			return nil, errors.New("the ranks number their caches differently")
		}
	}
	return &choir{Caches: all[0], c: c, all: all}, nil
}

type choir struct {
	kernels.Caches
	c   *chorus
	all []kernels.Caches
}

func (x *choir) Close() error {
	return x.c.all(func(be *ranks.Backend) error { return x.all[be.Rank()].Close() })
}

// of returns the caches of one rank.
func of(c kernels.Caches, be *ranks.Backend) kernels.Caches { return c.(*choir).all[be.Rank()] }

// voices is the queue of all ranks.
type voices struct {
	c         *chorus
	into      *[]func(be *ranks.Backend, q kernels.Queue) // while a program is captured
	readings  []*reading
	delivered uint64
	apart     error // ranks that read different bits
}

func (v *voices) do(f func(be *ranks.Backend, q kernels.Queue)) {
	if v.into != nil {
		*v.into = append(*v.into, f)
		return
	}
	_ = v.c.all(func(be *ranks.Backend) error { f(be, be.Queue()); return nil })
}

func (v *voices) Embed(dst kernels.Buf, table kernels.Weight, ids kernels.Buf) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Embed(dst, table, ids) })
}

func (v *voices) Gather(dst, src, rows kernels.Buf) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Gather(dst, src, rows) })
}

func (v *voices) Scatter(dst, src, rows kernels.Buf) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Scatter(dst, src, rows) })
}

func (v *voices) Copy(dst, src kernels.Buf) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Copy(dst, src) })
}

func (v *voices) Norm(dst, x kernels.Buf, n kernels.Norm) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Norm(dst, x, n) })
}

func (v *voices) MatMul(dst kernels.Buf, w kernels.Weight, x kernels.Buf, l kernels.Linear) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.MatMul(dst, w, x, l) })
}

func (v *voices) Route(ids, weights, logits kernels.Buf, s *kernels.RouteSpec) {
	spec := *s
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Route(ids, weights, logits, &spec) })
}

func (v *voices) Experts(dst kernels.Buf, w kernels.Weight, x, ids kernels.Buf, act kernels.Act) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Experts(dst, w, x, ids, act) })
}

func (v *voices) Mix(dst kernels.Buf, w kernels.Weight, x, ids, weights, residual kernels.Buf) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Mix(dst, w, x, ids, weights, residual) })
}

func (v *voices) Blocks(dst kernels.Buf, w kernels.Weight, x kernels.Buf) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Blocks(dst, w, x) })
}

func (v *voices) Hyper(dst, x kernels.Buf, s *kernels.HyperSpec) {
	spec := *s
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Hyper(dst, x, &spec) })
}

func (v *voices) GateUp(dst, x kernels.Buf, limit float32) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.GateUp(dst, x, limit) })
}

func (v *voices) Rotate(dst, src kernels.Buf, b *kernels.Batch, s *kernels.RotateSpec) {
	t, spec := *b, *s
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Rotate(dst, src, &t, &spec) })
}

func (v *voices) Pool(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.PoolSpec) {
	t, spec := *b, *s
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Pool(dst, proj, c, &t, &spec) })
}

func (v *voices) Keep(src kernels.Buf, c kernels.Layer, b *kernels.Batch, index bool) {
	t := *b
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Keep(src, c, &t, index) })
}

func (v *voices) Choose(dst, query, weights kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.ChooseSpec) {
	t, spec := *b, *s
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Choose(dst, query, weights, c, &t, &spec) })
}

func (v *voices) AttendPooled(dst, query, kv kernels.Buf, c, groups kernels.Layer, b *kernels.Batch, s *kernels.PooledSpec) {
	t, spec := *b, *s
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.AttendPooled(dst, query, kv, c, groups, &t, &spec) })
}

func (v *voices) Attend(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.AttnSpec) {
	t, spec := *b, *s
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Attend(dst, proj, c, &t, &spec) })
}

func (v *voices) Select(dst, proj, weights kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.IndexSpec) {
	t, spec := *b, *s
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Select(dst, proj, weights, c, &t, &spec) })
}

func (v *voices) Delta(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.DeltaSpec) {
	t, spec := *b, *s
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Delta(dst, proj, c, &t, &spec) })
}

func (v *voices) Stats(dst, logits kernels.Buf, vocab int, hash bool) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Stats(dst, logits, vocab, hash) })
}

func (v *voices) Chain(b *kernels.Batch, c kernels.Caches, ahead int, first, rest kernels.Buf) {
	t := *b
	v.do(func(be *ranks.Backend, q kernels.Queue) { q.Chain(&t, of(c, be), ahead, first, rest) })
}

func (v *voices) Shift(dst, src *kernels.Batch, kept, next kernels.Buf) {
	d, s := *dst, *src
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Shift(&d, &s, kept, next) })
}

func (v *voices) Accept(kept, next kernels.Buf, r kernels.RuleID, b *kernels.Batch, target kernels.Buf) {
	t := *b
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Accept(kept, next, r, &t, target) })
}

func (v *voices) Commit(c kernels.Caches, b *kernels.Batch, kept, path kernels.Buf) {
	t := *b
	v.do(func(be *ranks.Backend, q kernels.Queue) { q.Commit(of(c, be), &t, kept, path) })
}

func (v *voices) Reset(c kernels.Caches, slot int) {
	v.do(func(be *ranks.Backend, q kernels.Queue) { q.Reset(of(c, be), slot) })
}

func (v *voices) SetPages(c kernels.Caches, slot, first int, pages []int32) {
	v.do(func(be *ranks.Backend, q kernels.Queue) { q.SetPages(of(c, be), slot, first, pages) })
}

func (v *voices) Save(c kernels.Caches, slot, snapshot int) {
	v.do(func(be *ranks.Backend, q kernels.Queue) { q.Save(of(c, be), slot, snapshot) })
}

func (v *voices) Restore(c kernels.Caches, slot, snapshot, length int) {
	v.do(func(be *ranks.Backend, q kernels.Queue) { q.Restore(of(c, be), slot, snapshot, length) })
}

func (v *voices) Write(dst kernels.Buf, src []byte) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Write(dst, src) })
}

// Read reads on all ranks. Waiting delivers the reads up to the ticket, if the
// ranks read equal bits.
func (v *voices) Read(dst []byte, src kernels.Buf) kernels.Ticket {
	if v.into != nil {
		v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Read(dst, src) })
		return kernels.Ticket{Q: v}
	}
	r := &reading{dst: dst, got: make([][]byte, v.c.g.Size()), tickets: make([]kernels.Ticket, v.c.g.Size())}
	v.do(func(be *ranks.Backend, q kernels.Queue) {
		r.got[be.Rank()] = make([]byte, len(dst))
		r.tickets[be.Rank()] = q.Read(r.got[be.Rank()], src)
	})
	v.readings = append(v.readings, r)
	return kernels.Ticket{Q: v, Seq: v.delivered + uint64(len(v.readings))}
}

// reading is a Read that has not been delivered.
type reading struct {
	dst     []byte
	got     [][]byte
	tickets []kernels.Ticket
}

func (v *voices) WaitFor(seq uint64) error {
	for ; v.delivered < seq; v.delivered++ {
		r := v.readings[0]
		v.readings = v.readings[1:]
		err := v.c.all(func(be *ranks.Backend) error { return r.tickets[be.Rank()].Wait() })
		for i, b := range r.got {
			if err == nil && !bytes.Equal(b, r.got[0]) {
				v.apart = errors.Join(v.apart, fmt.Errorf("rank %d reads other bits than rank 0", i))
			}
		}
		if err == nil {
			copy(r.dst, r.got[0])
		}
	}
	return errors.Join(v.queues(), v.apart)
}

// queues returns the sticky error of the queues.
func (v *voices) queues() error {
	return v.c.all(func(be *ranks.Backend) error { return be.Queue().Err() })
}

// Err delivers all reads.
func (v *voices) Err() error { return v.WaitFor(v.delivered + uint64(len(v.readings))) }

func (v *voices) Capture(key kernels.GraphKey, body func(kernels.Queue)) (kernels.Program, error) {
	var calls []func(be *ranks.Backend, q kernels.Queue)
	body(&voices{c: v.c, into: &calls})
	return agreed(v.c, func(be *ranks.Backend) (kernels.Program, error) {
		return be.Queue().Capture(key, func(q kernels.Queue) {
			for _, f := range calls {
				f(be, q)
			}
		})
	})
}

func (v *voices) Run(p kernels.Program) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Run(p) })
}
