package kerneltest

import (
	"bytes"
	"math"

	"exacta.dev/exacta/kernels"
)

// placed is a batch laid out on the host.
type placed struct {
	pieces      []piece
	spans, rows int
	span, off   []int // of each piece: its span index and first row
}

// lay chooses places for the pieces.
func (m *machine) lay(pieces []piece, spans, rows int, shuffle bool) *placed {
	l := &placed{pieces: pieces, spans: spans, rows: rows, span: make([]int, len(pieces)), off: make([]int, len(pieces))}
	order, slots := make([]int, len(pieces)), make([]int, spans)
	for i := range order {
		order[i] = i
	}
	for i := range slots {
		slots[i] = i
	}
	spare := rows
	for _, p := range pieces {
		spare -= len(p.rows)
	}
	if shuffle {
		m.rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		m.rnd.Shuffle(len(slots), func(i, j int) { slots[i], slots[j] = slots[j], slots[i] })
	}
	at := 0
	for i, p := range order {
		if shuffle {
			gap := m.rnd.IntN(spare + 1)
			at += gap
			spare -= gap
		}
		l.span[p], l.off[p] = slots[i], at
		at += len(pieces[p].rows)
	}
	return l
}

// write fills the tables. Idle spans carry nonsense where it must not matter:
// another slot, a start far away.
func (l *placed) write(m *machine, b kernels.Batch) {
	seq, start, length, off := make([]int32, l.spans), make([]int32, l.spans), make([]int32, l.spans), make([]int32, l.spans)
	kept, path := make([]int32, l.spans), make([]int32, l.rows)
	token, pos, parent, span := make([]int32, l.rows), make([]int32, l.rows), make([]int32, l.rows), make([]int32, l.rows)
	for i := range seq {
		seq[i] = -1
		if i%2 == 0 {
			seq[i], start[i] = 0, 37
		}
		kept[i] = int32(i % 2)
	}
	for i := range span {
		span[i], parent[i] = -1, -1
	}
	for i, p := range l.pieces {
		s := l.span[i]
		seq[s], start[s], length[s], off[s] = int32(p.slot), int32(p.start), int32(len(p.rows)), int32(l.off[i])
		kept[s] = int32(p.kept)
		for j := range p.kept {
			path[l.off[i]+j] = int32(j)
			if p.path != nil {
				path[l.off[i]+j] = int32(p.path[j])
			}
		}
		depth := make([]int, len(p.rows))
		for j := range p.rows {
			up := j - 1
			if p.parent != nil {
				up = p.parent[j]
			}
			if up >= 0 {
				depth[j] = depth[up] + 1
			}
			at := l.off[i] + j
			token[at] = tokenOf(p.rows[j])
			pos[at], parent[at], span[at] = int32(p.start+depth[j]), int32(up), int32(s)
		}
	}
	for _, w := range []struct {
		dst kernels.Buf
		x   []int32
	}{
		{b.Seq, seq}, {b.Start, start}, {b.Len, length}, {b.RowOff, off}, {b.Token, token},
		{b.Pos, pos}, {b.Parent, parent}, {b.Span, span}, {m.kept.Top(l.spans), kept}, {m.path.Top(l.rows), path},
	} {
		m.q.Write(w.dst, packInts(w.x))
	}
}

// tokenOf is the token of a row of projections: a function of the row, as the rows of a
// sequence are.
func tokenOf(row []float32) int32 { return int32(math.Float32bits(row[0]) >> 16 % 11) }

// project returns layer i's projections of the batch; idle rows are NaN.
func (l *placed) project(m *machine, i int) []byte {
	from, cols := 0, m.layers[i].proj
	for _, before := range m.layers[:i] {
		from += before.proj
	}
	size := kernels.BF16.Size() * cols
	out := bytes.Repeat([]byte{0xc1, 0x7f}, l.rows*cols)
	for p, piece := range l.pieces {
		for j, row := range piece.rows {
			copy(out[(l.off[p]+j)*size:], pack(kernels.BF16, row[from:from+cols]))
		}
	}
	return out
}
