//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import "exacta.dev/exacta/kernels"

// maxLogits is the widest row that the hash can fold: 512 segments.
const maxLogits = 512 * kernels.HashSegment

// What a block of stats_parts finds: TOGETHER segments, and the size of Part.
const (
	statsTogether = 8
	statsPart     = 24 + 8*statsTogether
)

// Stats reduces each row of logits. A NaN is below every number, and of equal
// logits the lowest id comes first.
func (q *queue) Stats(dst, logits kernels.Buf, vocab int, hash bool) {
	q.do(opStats, func() {
		d := q.of(dst, "dst", kernels.I32, 0, kernels.StatCols)
		x := q.of(logits, "logits", kernels.F32, d.rows, -1)
		switch {
		case q.bad != nil:
		case vocab < 2 || vocab > x.cols:
			q.fail("vocabulary of %d in %d columns; it must be from 2 to that", vocab, x.cols)
		case x.cols > maxLogits:
			q.fail("logits have %d columns; at most %d can be hashed", x.cols, maxLogits)
		}
		if q.bad != nil {
			return
		}
		segments := ceil(x.cols, kernels.HashSegment)
		parts := ceil(segments, statsTogether)
		most := int(q.scratch.bytes) / (parts * statsPart)
		for at := 0; at < d.rows && q.bad == nil; at += most {
			n := min(most, d.rows-at)
			a := statsArgs{
				env: q.head(), dst: d.view(), x: x.view(), parts: q.scratch.ptr,
				cols: int32(x.cols), vocab: int32(vocab), hash: flag(hash), segments: int32(segments),
			}
			a.dst.p, a.x.p = d.row(int64(at)), x.row(int64(at))
			*args[statsArgs](q) = a
			q.launch(kStatsParts, parts, n, 0)
			q.launch(kStats, n, 1, 0)
		}
		q.counts().LogitRows += uint64(d.rows)
	})
}
