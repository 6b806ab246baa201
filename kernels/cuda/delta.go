//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"math"

	"exacta.dev/exacta/kernels"
)

// Limits and sizes of the delta kernels: MAX_DIM, MAX_TAPS, CHUNK, LEAP, COLS, KEEP.
const (
	maxDim     = 256
	maxTaps    = 8
	deltaChunk = 16
	deltaLeap  = 4
	deltaCols  = 32
	deltaKeep  = 1024
)

// Delta runs a Gated DeltaNet layer: the recurrence, then what later steps need.
func (q *queue) Delta(dst, proj kernels.Buf, l kernels.Layer, b *kernels.Batch, s *kernels.DeltaSpec) {
	q.do(opDelta, func() {
		c, g := q.layer(l, kernels.Delta)
		if q.bad != nil {
			return
		}
		if s.KHeads != g.KHeads || s.VHeads != g.VHeads || s.KDim != g.KDim || s.VDim != g.VDim || s.Conv != g.Conv {
			q.fail("heads %d of %d and %d of %d, %d taps; the cache has %d of %d and %d of %d, %d taps", s.KHeads, s.KDim,
				s.VHeads, s.VDim, s.Conv, g.KHeads, g.KDim, g.VHeads, g.VDim, g.Conv)
			return
		}
		if s.Gate != kernels.SiLU && s.Gate != kernels.Sigmoid {
			q.fail("gate activation %d; it must be SiLU or Sigmoid", s.Gate)
		}
		d := q.of(dst, "dst", kernels.BF16, b.Rows, s.VHeads*s.VDim)
		p := q.of(proj, "proj", kernels.BF16, b.Rows, channels(g)+s.VHeads*s.VDim+2*s.VHeads)
		taps := q.weight(s.Taps, kernels.Taps, "taps")
		if q.bad == nil && (taps.rows != channels(g) || taps.cols != s.Conv) {
			q.fail("taps are [%d, %d]; they must be [%d, %d]", taps.rows, taps.cols, channels(g), s.Conv)
		}
		n := q.norm(s.Norm, s.VDim, "norm")
		if q.bad == nil && int(n.group) != s.VDim || n.centered != 0 {
			q.fail("norm has groups of %d, centered %t; it must be plain over a head of %d", n.group, n.centered != 0, s.VDim)
		}
		at := c.layers[l.Index]
		a := deltaArgs{
			env: q.head(), dst: d.view(), proj: p.view(), b: q.batch(b),
			taps: taps.ptr, aLog: q.vector(s.ALog, s.VHeads, "a_log"), dtBias: q.vector(s.DtBias, s.VHeads, "dt_bias"), nw: n.w,
			state: c.state.at(at.state * 4), slotState: uint64(2 * c.sizes.state), halfState: uint64(c.sizes.state),
			kRec: c.records.at(at.kRec * 4), uRec: c.records.at(at.uRec * 4), gRec: c.records.at(at.gRec * 4),
			slotRec: uint64(c.sizes.records), conv: c.conv.at(at.conv * 2), slotConv: uint64(c.sizes.conv),
			length: q.be.bufs[c.length.ID].ptr, work: q.room.values, eps: n.eps, qScale: float32(1 / math.Sqrt(float64(s.KDim))),
			kHeads: int32(s.KHeads), vHeads: int32(s.VHeads), kDim: int32(s.KDim), vDim: int32(s.VDim),
			tapsN: int32(s.Conv), gate: int32(s.Gate),
			ring: int32(c.sizes.ring), convRing: int32(c.sizes.convRing), slots: int32(c.spec.Slots),
		}
		chunk := min(deltaChunk, ceil(b.MaxLen, deltaLeap)*deltaLeap)
		for deltaShared(c.sizes.ring, s.KDim, chunk) > q.be.sharedLimit() {
			chunk -= deltaLeap
		}
		a.chunk = int32(chunk)
		heads, jobs := 2*s.KHeads+s.VHeads, s.VHeads+s.KHeads+ceil(channels(g), deltaKeep)
		most := q.room.rows(4 * (channels(g) + s.VHeads))
		for from := 0; from < b.Rows && q.bad == nil; from += most {
			rows := min(most, b.Rows-from)
			a.first, a.rows = int32(from), int32(rows)
			*args[deltaArgs](q) = a
			q.launch(kDeltaPrepare, rows, ceil(heads, threads/32), 0)
			q.launch(kDelta, s.VHeads*ceil(s.VDim, deltaCols), b.Spans, deltaShared(c.sizes.ring, s.KDim, chunk))
			q.launch(kDeltaKeep, rows, ceil(jobs, threads/32), 0)
		}
	})
}

// deltaShared is the shared memory of the delta kernel, whose chunks have so many rows:
// what Head has.
func deltaShared(ring, kDim, chunk int) int {
	keys := ceil(kDim, 4) * 4
	return 4 * ((ring+chunk)*(keys+4) + (ring+keys+2*chunk)*deltaCols + 2*kernels.WindowTokens*deltaLeap*4)
}
