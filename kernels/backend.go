package kernels

import (
	"errors"
	"time"
)

// Info describes a backend for reports and provenance.
type Info struct {
	Name    string // "cpu", "ref", "cuda", "fakedev(cpu)"
	Device  string // processor or GPU as the system names it
	Kernels string // kernel set: "avx512bf16", "avx512f", "avx2", "go", "float64", "sm_90a"
	Threads int    // worker threads; 0 where it has no meaning
	// Arithmetic names the class of machines that give the same bits, for
	// instance "cpu-bf16-1". Two runs are comparable bit for bit when it is
	// equal.
	Arithmetic string
	// Graphs says that captured programs are much cheaper than recording.
	Graphs bool
}

// Counters is what a backend has executed since it was made: the evidence of
// the work audit. They count real execution, not requests.
type Counters struct {
	Ops         uint64 // operations executed
	Launches    uint64 // device launches; on the CPU, parallel sections
	MatMulRows  uint64 // rows summed over all matrix products
	MACs        uint64 // multiply-adds of matrix products
	WeightBytes uint64 // bytes of weights read by matrix products
	AttendRows  uint64 // rows summed over Attend calls
	KVTokens    uint64 // (row, key) pairs visited by Attend
	DeltaRows   uint64 // rows summed over Delta calls
	LogitRows   uint64 // rows summed over Stats calls
}

// Sub returns c - d, field by field.
func (c Counters) Sub(d Counters) Counters {
	return Counters{
		c.Ops - d.Ops, c.Launches - d.Launches, c.MatMulRows - d.MatMulRows, c.MACs - d.MACs,
		c.WeightBytes - d.WeightBytes, c.AttendRows - d.AttendRows, c.KVTokens - d.KVTokens,
		c.DeltaRows - d.DeltaRows, c.LogitRows - d.LogitRows,
	}
}

// Add returns c + d, field by field.
func (c Counters) Add(d Counters) Counters {
	return Counters{
		c.Ops + d.Ops, c.Launches + d.Launches, c.MatMulRows + d.MatMulRows, c.MACs + d.MACs,
		c.WeightBytes + d.WeightBytes, c.AttendRows + d.AttendRows, c.KVTokens + d.KVTokens,
		c.DeltaRows + d.DeltaRows, c.LogitRows + d.LogitRows,
	}
}

// Memory is the bytes that a backend holds, by purpose.
type Memory [NumPurposes]int64

// Total sums the purposes.
func (m Memory) Total() int64 {
	var t int64
	for _, b := range m {
		t += b
	}
	return t
}

// ErrOutOfMemory is in the chain of errors of Load, Alloc and Caches that were refused
// for lack of memory. The backend goes on as before.
var ErrOutOfMemory = errors.New("out of memory")

// OpTime is the time that one operation of a queue took on the device.
type OpTime struct {
	Name string
	At   time.Duration // when it began: see Traced
	Took time.Duration
}

// Traced is a Backend that can time its operations.
type Traced interface {
	Backend
	// Trace begins, or ends, to time each operation that is recorded from now on;
	// those of captured programs are not.
	Trace(on bool) error
	// Traced waits for all operations, and returns those since the call before, in
	// order. Their times At count from when that call, or Trace, returned.
	Traced() ([]OpTime, error)
}

// Backend owns memory and runs queues. Its methods are called from one
// goroutine at a time.
type Backend interface {
	// Info describes the backend.
	Info() Info
	// Load takes a parameter in. The error names the tensor.
	Load(t Tensor) (Weight, error)
	// Alloc returns a zeroed buffer of rows x cols elements. Never called
	// while a pass is recorded.
	Alloc(p Purpose, k Kind, rows, cols int) (Buf, error)
	// Free returns a buffer's memory.
	Free(b Buf)
	// Caches allocates the caches of an engine.
	Caches(spec CacheSpec) (Caches, error)
	// Queue returns the backend's queue; there is one.
	Queue() Queue
	// Work returns the counters of executed work. It waits for the queue.
	Work() Counters
	// Memory returns the bytes held.
	Memory() Memory
	// Close frees everything. Handles are dead afterwards.
	Close() error
}
