package quant

import (
	"fmt"
	"math"
	"unsafe"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

// recorderRows is the number of rows of a product that are read at once.
const recorderRows = 256

// Recorder is a backend that passes everything on to another and, between Start and
// Stop, adds up the second moments of what matrices are multiplied with. It also keeps
// the description of everything that was loaded. Products of captured programs are not
// seen.
type Recorder struct {
	kernels.Backend
	queue   *recorderQueue
	on      bool
	loads   []Loaded
	scratch map[int]kernels.Buf // by columns
	err     error
}

// Loaded is a parameter that a backend took in.
type Loaded struct {
	kernels.Tensor
	Moments *Moments // of a Matrix that was multiplied with something, else nil
	weight  kernels.Weight
}

// NewRecorder wraps a backend.
func NewRecorder(be kernels.Backend) *Recorder {
	r := &Recorder{Backend: be, scratch: map[int]kernels.Buf{}}
	r.queue = &recorderQueue{Queue: be.Queue(), r: r}
	return r
}

// Start begins to record, Stop ends it.
func (r *Recorder) Start() { r.on = true }

// Stop ends what Start began.
func (r *Recorder) Stop() { r.on = false }

// Err returns the first failure to record.
func (r *Recorder) Err() error { return r.err }

// Loads returns what was loaded, in order, with the moments recorded so far.
func (r *Recorder) Loads() []Loaded { return r.loads }

// Load implements kernels.Backend.
func (r *Recorder) Load(t kernels.Tensor) (kernels.Weight, error) {
	w, err := r.Backend.Load(t)
	if err != nil {
		return w, err
	}
	if _, cols := t.Shape(); t.Use == kernels.Matrix && r.scratch[cols].None() {
		if r.scratch[cols], err = r.Alloc(kernels.Activations, kernels.BF16, recorderRows, cols); err != nil {
			return w, err
		}
	}
	r.loads = append(r.loads, Loaded{Tensor: t, weight: w})
	return w, nil
}

// Queue implements kernels.Backend.
func (r *Recorder) Queue() kernels.Queue { return r.queue }

type recorderQueue struct {
	kernels.Queue
	r *Recorder
}

// MatMul implements kernels.Queue.
func (q *recorderQueue) MatMul(dst kernels.Buf, w kernels.Weight, x kernels.Buf, l kernels.Linear) {
	if q.r.on && q.r.err == nil {
		if err := q.r.record(w, x.Top(int(dst.Rows)), l.In); err != nil {
			q.r.err = fmt.Errorf("record the inputs of a product: %w", err)
		}
	}
	q.Queue.MatMul(dst, w, x, l)
}

// record adds the inputs of a product, normed as the product does.
func (r *Recorder) record(h kernels.Weight, x kernels.Buf, in kernels.Norm) error {
	var w *Loaded
	for i := range r.loads {
		if r.loads[i].weight == h {
			w = &r.loads[i]
		}
	}
	if w == nil {
		return fmt.Errorf("weight %d was not loaded here", h.ID)
	}
	cols := int(x.Cols)
	if w.Moments == nil {
		w.Moments = NewMoments(cols)
	}
	for from := 0; from < int(x.Rows); from += recorderRows {
		n := min(recorderRows, int(x.Rows)-from)
		part, src := r.scratch[cols].Top(n), x.Slice(from, from+n)
		if in.W.None() {
			r.queue.Copy(part, src)
		} else {
			r.queue.Norm(part, src, in)
		}
		raw := make([]uint16, n*cols)
		if err := r.queue.Read(unsafe.Slice((*byte)(unsafe.Pointer(&raw[0])), 2*len(raw)), part).Wait(); err != nil {
			return err
		}
		w.Moments.Add(widen(raw, cols))
	}
	return nil
}

// widen cuts BF16 numbers into rows of float32, without those that are not finite.
func widen(raw []uint16, cols int) (rows [][]float32) {
	for ; len(raw) > 0; raw = raw[cols:] {
		row, sum := make([]float32, cols), 0.0
		for i, b := range raw[:cols] {
			row[i] = math.Float32frombits(uint32(b) << 16)
			sum += float64(row[i]) * float64(row[i])
		}
		if !math.IsNaN(sum) && !math.IsInf(sum, 0) {
			rows = append(rows, row)
		}
	}
	return rows
}

// Watch returns a drafter during whose work r records: everything else of an engine,
// the target above all, goes by.
func Watch(d engine.DeviceDrafter, r *Recorder) engine.Drafter { return &watched{d, r} }

type watched struct {
	engine.DeviceDrafter
	r *Recorder
}

// Committed implements engine.Drafter.
func (w *watched) Committed(s *engine.Step) error {
	w.r.Start()
	defer w.r.Stop()
	return w.DeviceDrafter.Committed(s)
}

// Propose implements engine.Drafter.
func (w *watched) Propose(q kernels.Queue, asks []*engine.Ask) error {
	w.r.Start()
	defer w.r.Stop()
	return w.DeviceDrafter.Propose(q, asks)
}
