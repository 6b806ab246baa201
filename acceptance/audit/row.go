package audit

import (
	"math"

	"exacta.dev/exacta/kernels"
)

// Row is the target's view of one position under teacher forcing.
type Row struct {
	Position   int32 // of the row: it predicts the token at Position+1
	Top1, Top2 int32
	Gap        float32
	Hash       uint64
	NaNs       int32
	// Logits of the row over the tokenizer's vocabulary, valid during the
	// call; nil unless they were asked for.
	Logits []float32
}

// RowOf makes the Row at a position of a statistics row of kernels.Queue.Stats,
// which has kernels.StatCols columns.
func RowOf(position int32, stats []int32) Row {
	return Row{
		Position: position, Top1: stats[kernels.StatTop1], Top2: stats[kernels.StatTop2],
		Gap:  math.Float32frombits(uint32(stats[kernels.StatLogit1])) - math.Float32frombits(uint32(stats[kernels.StatLogit2])),
		Hash: uint64(uint32(stats[kernels.StatHashLo])) | uint64(uint32(stats[kernels.StatHashHi]))<<32,
		NaNs: stats[kernels.StatNaNs],
	}
}
