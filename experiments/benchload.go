package experiments

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
)

// LoadBenchOptions say what exacta bench load measures.
type LoadBenchOptions struct {
	Model   string // empty: a checkpoint of made-up weights, written for the measurement
	Bytes   int64  // of such a checkpoint, about; 0: 2 GB
	Shards  int    // its files; 0: 8
	Kernels string
	Threads int
	Rounds  int  // 0: 5
	Cold    bool // measure loading from the disk, too
}

// LoadBench is what was measured: times are the best of the rounds, the ratio is the
// median of those of each round.
type LoadBench struct {
	Model         string  `json:"model"`
	Kernels       string  `json:"kernels"`
	Threads       int     `json:"threads"`
	Rounds        int     `json:"rounds"`
	Bytes         int64   `json:"bytes"`            // of tensors, as stored
	CopyBytesS    float64 `json:"copy_bytes_per_s"` // of the same bytes, from the same mapping, into fresh memory
	LoadBytesS    float64 `json:"load_bytes_per_s"`
	RatioToCopy   float64 `json:"ratio_to_copy"`
	Weights       int64   `json:"weights_bytes"`       // held after loading
	PeakResident  int64   `json:"peak_resident_bytes"` // of the process while loading; 0 where the system doesn't tell
	ResidentRatio float64 `json:"peak_ratio"`          // to the weights
	// With Cold: the files read by several streams, and loaded, out of the page cache.
	DiskBytesS  float64 `json:"disk_bytes_per_s,omitempty"`
	ColdBytesS  float64 `json:"cold_bytes_per_s,omitempty"`
	RatioToDisk float64 `json:"ratio_to_disk,omitempty"`
}

// BenchLoad measures loading from the page cache: each round opens the checkpoint
// anew, copies its bytes into fresh memory, and loads it; if asked, it then drops the
// files from the page cache, reads them, drops them again and loads the checkpoint.
// progress is told what is being done.
func BenchLoad(ctx context.Context, o LoadBenchOptions, progress func(string)) (_ *LoadBench, err error) {
	res := &LoadBench{Model: o.Model, Rounds: cmp.Or(o.Rounds, 5)}
	if o.Model == "" {
		dir, err := os.MkdirTemp("", "exacta-load-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		progress("writing a checkpoint")
		shards := cmp.Or(o.Shards, 8)
		if err := writeRandom(ctx, dir, cmp.Or(o.Bytes, 2e9), shards); err != nil {
			return nil, fmt.Errorf("write a checkpoint for the measurement: %w", err)
		}
		o.Model, res.Model = dir, fmt.Sprintf("made-up weights in %d files", shards)
	}
	var rounds []loadRates
	for i := range res.Rounds + 1 { // the first brings the files into the page cache
		progress(fmt.Sprintf("round %d of %d", i, res.Rounds))
		if ctx.Err() != nil {
			return nil, ErrInterrupted
		}
		r, err := res.round(o)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			rounds = append(rounds, r)
		}
	}
	res.CopyBytesS, res.LoadBytesS, res.RatioToCopy = against(rounds, func(r loadRates) (limit, own float64) { return r.copied, r.loaded })
	if o.Cold {
		res.DiskBytesS, res.ColdBytesS, res.RatioToDisk = against(rounds, func(r loadRates) (limit, own float64) { return r.disk, r.cold })
	}
	res.ResidentRatio = float64(res.PeakResident) / float64(res.Weights)
	return res, nil
}

// loadRates are what a round measures, in bytes a second.
type loadRates struct{ copied, loaded, disk, cold float64 }

// against returns the best of a limit and of what is measured against it, and the
// median of the ratios of each round.
func against(rounds []loadRates, of func(loadRates) (limit, own float64)) (limit, own, ratio float64) {
	var ratios []float64
	for _, r := range rounds {
		a, b := of(r)
		limit, own, ratios = max(limit, a), max(own, b), append(ratios, b/a)
	}
	return limit, own, median(ratios)
}

// round measures once.
func (res *LoadBench) round(o LoadBenchOptions) (r loadRates, err error) {
	if r.copied, err = res.copy(o); err != nil {
		return r, err
	}
	if r.loaded, err = res.load(o); err != nil || !o.Cold {
		return r, err
	}
	files, err := weightFiles(o.Model)
	if err != nil {
		return r, err
	}
	if err := evictAll(files); err != nil {
		return r, err
	}
	if r.disk, err = readFiles(files); err != nil {
		return r, err
	}
	if err := evictAll(files); err != nil {
		return r, err
	}
	r.cold, err = res.load(o)
	return r, err
}

// copy measures a copy of all tensors from the mapped files into fresh memory.
func (res *LoadBench) copy(o LoadBenchOptions) (rate float64, err error) {
	ck, err := checkpoint.Open(o.Model)
	if err != nil {
		return 0, err
	}
	be, err := cpu.New(cpu.Options{Threads: o.Threads, Kernels: o.Kernels})
	if err != nil {
		return 0, errors.Join(err, ck.Close())
	}
	defer func() { err = errors.Join(err, be.Close(), ck.Close()) }()
	var parts [][]byte
	for _, name := range ck.Names() {
		t, err := ck.Tensor(name)
		if err != nil {
			return 0, err
		}
		parts = append(parts, t.Bytes())
	}
	n, took, err := be.CopyIn(parts)
	if err != nil {
		return 0, err
	}
	info := be.Info()
	res.Kernels, res.Threads, res.Bytes = info.Kernels, info.Threads, n
	return float64(n) / took.Seconds(), nil
}

// load measures loading.
func (res *LoadBench) load(o LoadBenchOptions) (rate float64, err error) {
	be, err := cpu.New(cpu.Options{Threads: o.Threads, Kernels: o.Kernels})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, be.Close()) }()
	resetPeak()
	start := time.Now()
	e, err := registry.Look(o.Model)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	if _, err := model.Load(be, e.Source, model.Options{MTP: true, MaxTokens: min(e.Source.Config().MaxPositions, 512)}); err != nil {
		return 0, err
	}
	rate = float64(res.Bytes) / time.Since(start).Seconds()
	res.Weights, res.PeakResident = be.Memory()[kernels.Weights], max(res.PeakResident, peakResident())
	return rate, nil
}

// resetPeak makes the system forget the peak of the resident size.
func resetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o200) }

// peakResident is that peak in bytes, or 0 where the system doesn't tell.
func peakResident() int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}

// shapeRecorder is a Source that remembers the shapes that are asked for.
type shapeRecorder struct {
	model.Random
	list *[]checkpoint.Data
}

// Matrix implements model.Source.
func (r shapeRecorder) Matrix(name string, rows, cols int) (kernels.Source, error) {
	src, err := r.Random.Matrix(name, rows, cols)
	shape := []int{rows, cols}
	if rows == 1 {
		shape = []int{cols}
	}
	*r.list = append(*r.list, checkpoint.Data{Name: name, DType: checkpoint.BF16, Shape: shape, From: src.Data})
	return src, err
}

// writeRandom writes a checkpoint of Qwen3's shape with made-up weights of about size
// bytes, in so many files.
func writeRandom(ctx context.Context, dir string, size int64, shards int) error {
	c, err := model.Shape("qwen3-1.7b")
	if err != nil {
		return err
	}
	c.Architecture = "Qwen3ForCausalLM"
	const embedding, layer = 622e6, 101e6 // bytes of that shape
	c.NumLayers = max(1, int(float64(size-embedding)/layer))
	c.LayerTypes = c.LayerTypes[:min(c.NumLayers, len(c.LayerTypes))]
	c.NumLayers = len(c.LayerTypes)
	be, err := cpu.New(cpu.Options{Plan: true})
	if err != nil {
		return err
	}
	var list []checkpoint.Data
	_, err = model.Load(be, shapeRecorder{model.Random{ShapeName: "load", Shape: c, Seed: 1}, &list}, model.Options{MaxTokens: 64})
	if err = errors.Join(err, be.Close()); err != nil {
		return err
	}
	config, err := c.JSON()
	if err != nil {
		return err
	}
	fileOf := map[string]string{}
	for i := range shards {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards)
		part := list[len(list)*i/shards : len(list)*(i+1)/shards]
		for _, d := range part {
			fileOf[d.Name] = name
		}
		if err := writeShard(ctx, filepath.Join(dir, name), part); err != nil {
			return err
		}
	}
	index, err := json.Marshal(map[string]any{"weight_map": fileOf})
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644),
		os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), index, 0o644))
}

func writeShard(ctx context.Context, path string, list []checkpoint.Data) error {
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	err = checkpoint.WriteSafetensors(io.Writer(w), list, nil)
	return errors.Join(err, w.Flush(), f.Close())
}
