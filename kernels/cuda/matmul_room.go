//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

// Sizes of the room of matrix products.
const (
	roomPairs  = 1 << 19 // pairs of a row and an expert that are sorted at a time
	roomChunks = 2*maxExperts + roomPairs/smallTile
	chunkBytes = 16 // of Chunk
	roomLeast  = 32 << 20
	roomMost   = 256 << 20
	roomShare  = 512 // of the device's memory, the part that values take
)

// room is device memory that operations use from one kernel to the next: products, and
// Gated DeltaNet.
type room struct {
	block
	flags, partial       driver.Ptr // matmul_hopper.cu
	count, order, chunks driver.Ptr // of a grouped product, see sort_pairs
	values               driver.Ptr // normed rows, the experts' outputs, or what delta_prepare made
	size                 int64      // of values
}

func (r *room) open(q *queue) error {
	dev := q.be.dev
	r.size = min(max(dev.Memory/roomShare, roomLeast), roomMost)
	at := int64(0)
	place := func(n int64) int64 {
		from := at
		at += (n + 255) &^ 255
		return from
	}
	flags, count := place(int64(4*dev.Multiprocessors)), place(4)
	partial := place(int64(dev.Multiprocessors) * hopperPartial)
	order, chunks, values := place(4*roomPairs), place(chunkBytes*roomChunks), place(r.size)
	var err error
	if r.block, err = q.be.mem.take(kernels.Activations, at); err != nil {
		return err
	}
	r.flags, r.count, r.partial = r.at(flags), r.at(count), r.at(partial)
	r.order, r.chunks, r.values = r.at(order), r.at(chunks), r.at(values)
	return q.stream.Fill(r.flags, 0, partial)
}

// rows is how many rows of a size the values hold: a multiple of the largest tile.
func (r *room) rows(bytes int) int {
	n := int(r.size) / bytes
	if n > hopperRows {
		n -= n % hopperRows
	}
	return max(n, 1)
}
