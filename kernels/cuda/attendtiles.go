//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import "exacta.dev/exacta/kernels"

// tiles is a form of the attention kernel on tensor cores.
type tiles struct {
	kernel    kernelID
	dim, rows int // padded width of a head, rows of a tile of queries
	stages    int // tiles of keys and values in shared memory
	shared    int
	blocks    int // that fit a multiprocessor
}

// tileForms are the widths of a head that attend_tiles has, and the rows of a tile of
// queries for each.
var tileForms = []struct {
	dim  int
	rows []int
}{{64, []int{16, 64}}, {128, []int{16, 32, 64}}, {256, []int{16, 32}}}

// keyTile is TILE: the keys of a tile.
const keyTile = 64

// foldChannels is FOLD, the channels that attend_fold takes at a time; beyond foldBlocks
// blocks, each takes several.
const (
	foldChannels = 32
	foldBlocks   = 4096
)

// tileShared is the shared memory of a form with a number of stages.
func tileShared(dim, rows, stages, spans int) int {
	pitch := dim + 8
	halves := rows*pitch + rows*(keyTile+8) + 2*stages*keyTile*pitch
	return 2*halves + 4*(threads/32)*rows + 4*kernels.WindowTokens + 12*spans
}

// tilesOf returns the form that serves an attention layer, if one does: heads of at
// most 256 channels in eights, as wide in keys as in values, of which those that share
// a KV head fit a tile. The layer alone decides whether one does; the rows of a tile
// follow the bucket, and the bits do not.
func (q *queue) tilesOf(s *kernels.AttnSpec, b *kernels.Batch, dst operand) (tiles, bool) {
	each := s.QHeads / max(s.KVHeads, 1)
	if s.HeadDim != s.Values() || s.HeadDim%8 != 0 || each > 16 {
		return tiles{}, false
	}
	if q.bad == nil && (dst.p%16 != 0 || dst.ld%8 != 0) {
		q.fail("dst lies at %#x with rows of %d; it must be aligned to 16 bytes", dst.p, dst.ld)
	}
	kernel := kAttendTiles
	for _, f := range tileForms {
		if s.HeadDim > f.dim {
			kernel += kernelID(len(f.rows))
			continue
		}
		i := 0
		for i+1 < len(f.rows) && b.MaxLen*each > f.rows[i] {
			i++
		}
		t := tiles{kernel: kernel + kernelID(i), dim: f.dim, rows: f.rows[i]}
		if !t.fit(q.be.dev.SharedPerBlock, b.Spans) || 8*b.Spans > scratchBytes {
			q.fail("%d spans with heads of %d need %d bytes of shared memory; a block of this GPU has %d", b.Spans, s.HeadDim, t.shared, q.be.dev.SharedPerBlock)
		}
		return t, true
	}
	return tiles{}, false
}

// sharedReserved is what the system takes of a block's shared memory, with what the
// kernel declares statically.
const sharedReserved = 1024 + 64

// fit chooses the stages: as many as let two blocks share a multiprocessor, else one.
func (t *tiles) fit(limit, spans int) bool {
	for t.stages = 3; t.stages >= 1; t.stages-- {
		t.shared = tileShared(t.dim, t.rows, t.stages, spans)
		if t.blocks = min(4, limit/(t.shared+sharedReserved)); t.blocks >= 2 {
			return true
		}
	}
	t.stages, t.blocks = 1, 1
	return t.shared+sharedReserved <= limit
}
