package kernels

import "fmt"

// Kind is the element type that a buffer has on backends that round. The ref
// backend keeps float64 for BF16 and F32 alike.
type Kind uint8

// Element kinds of buffers.
const (
	BF16 Kind = iota + 1 // activations that enter a matrix product
	F32                  // logits and other unrounded values
	I32                  // ids, positions, counts, statistics
)

// Size returns the bytes of one element as Write and Read see it.
func (k Kind) Size() int {
	if k == BF16 {
		return 2
	}
	return 4
}

// String names the kind.
func (k Kind) String() string {
	switch k {
	case BF16:
		return "bf16"
	case F32:
		return "f32"
	case I32:
		return "i32"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Purpose says what memory is for; backends count it by purpose.
type Purpose uint8

// Purposes of memory.
const (
	Weights Purpose = iota
	KV
	State // recurrent states, records, snapshots
	Activations
	Tables
	NumPurposes
)

// String names the purpose as it appears in reports.
func (p Purpose) String() string {
	return [...]string{"weights", "kv", "state", "activations", "tables", "?"}[min(p, NumPurposes)]
}

// Buf is a view of a two-dimensional buffer: Rows rows from Row, Cols columns
// from Col, of the buffer ID. It holds no pointer and is copied freely. The
// zero Buf means "none".
type Buf struct {
	ID        uint32
	Row, Rows int32
	Col, Cols int32
	Kind      Kind
}

// None reports whether b is the zero Buf.
func (b Buf) None() bool { return b.ID == 0 }

// Slice returns the view of rows [from, to) of b.
func (b Buf) Slice(from, to int) Buf {
	if from < 0 || to < from || int32(to) > b.Rows {
		panic(fmt.Sprintf("kernels: rows [%d,%d) of a view of %d rows", from, to, b.Rows))
	}
	b.Row += int32(from)
	b.Rows = int32(to - from)
	return b
}

// Top returns the view of the first n rows of b.
func (b Buf) Top(n int) Buf { return b.Slice(0, n) }

// Columns returns the view of columns [from, to) of b.
func (b Buf) Columns(from, to int) Buf {
	if from < 0 || to < from || int32(to) > b.Cols {
		panic(fmt.Sprintf("kernels: columns [%d,%d) of a view of %d columns", from, to, b.Cols))
	}
	b.Col += int32(from)
	b.Cols = int32(to - from)
	return b
}

// Bytes returns the size of the view as Write and Read see it: dense rows.
func (b Buf) Bytes() int { return int(b.Rows) * int(b.Cols) * b.Kind.Size() }
