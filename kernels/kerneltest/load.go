package kerneltest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// broken is a file that fails.
type broken struct{}

var errBroken = errors.New("the disk is gone")

func (broken) ReadAt([]byte, int64) (int, error) { return 0, errBroken }

// testLoad checks that bad parameters and shapes are errors at once.
func testLoad(t *testing.T, s suite) {
	r := s.rig(t, 80)
	good := func() kernels.Source {
		return source("layers.3.q_proj", kernels.DTypeBF16, 4, 32, make([]float32, 4*32))
	}
	for name, change := range map[string]func(t *kernels.Tensor){
		"no parts":        func(t *kernels.Tensor) { t.Parts = nil },
		"no rows":         func(t *kernels.Tensor) { t.Parts[0].Rows = 0 },
		"odd columns":     func(t *kernels.Tensor) { p := good(); p.Cols = 16; t.Parts = append(t.Parts, p) },
		"unknown type":    func(t *kernels.Tensor) { t.Parts[0].DType = 9 },
		"unknown use":     func(t *kernels.Tensor) { t.Use = 0 },
		"unequal pair":    func(t *kernels.Tensor) { p := good(); p.Rows = 3; t.Parts = append(t.Parts, p); t.Paired = true },
		"unequal experts": func(t *kernels.Tensor) { p := good(); p.Rows = 3; t.Parts = append(t.Parts, p); t.Use = kernels.Bank },
		"half an expert":  func(t *kernels.Tensor) { t.Use, t.Paired = kernels.Bank, true },
		"short expert": func(t *kernels.Tensor) {
			t.Use = kernels.Bank
			p := good()
			p.Data = bytes.NewReader(make([]byte, 4*32*2-1))
			t.Parts = append(t.Parts, p)
		},
		"truncated":       func(t *kernels.Tensor) { t.Parts[0].Data = bytes.NewReader(make([]byte, 4*32*2-1)) },
		"failing to read": func(t *kernels.Tensor) { t.Parts[0].Data = broken{} },
	} {
		x := kernels.Tensor{Name: "stacked.q", Use: kernels.Matrix, Parts: []kernels.Source{good()}}
		change(&x)
		_, err := r.be.Load(x)
		require.ErrorContains(t, err, "stacked.q", name)
		if name == "failing to read" {
			require.ErrorIs(t, err, errBroken)
		}
	}
	_, err := r.be.Alloc(kernels.Activations, kernels.F32, 0, 4)
	require.Error(t, err)
	_, err = r.be.Alloc(kernels.Activations, kernels.Kind(9), 1, 4)
	require.Error(t, err)
	spec := kernels.CacheSpec{Layers: []kernels.LayerSpec{{Kind: kernels.Attention, KVHeads: 1, HeadDim: 32}}, Slots: 1, Pages: 1, SlotPages: 1}
	for name, change := range map[string]func(s *kernels.CacheSpec){
		"no slots":       func(s *kernels.CacheSpec) { s.Slots = 0 },
		"unknown layer":  func(s *kernels.CacheSpec) { s.Layers[0].Kind = 9 },
		"no heads":       func(s *kernels.CacheSpec) { s.Layers[0].KVHeads = 0 },
		"long drafts":    func(s *kernels.CacheSpec) { s.MaxDraft = kernels.WindowTokens },
		"delta of zeros": func(s *kernels.CacheSpec) { s.Layers[0] = kernels.LayerSpec{Kind: kernels.Delta} },
	} {
		bad := spec
		bad.Layers = append([]kernels.LayerSpec(nil), spec.Layers...)
		change(&bad)
		_, err := r.be.Caches(bad)
		require.Error(t, err, name)
	}
	_, err = r.be.Caches(spec)
	require.NoError(t, err)
	require.NoError(t, r.q.Err(), "none of it touches the queue")
}
