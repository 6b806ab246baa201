package model

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// ropeTable loads the rotary table of a configuration for positions
// 0..positions-1: per row the cosines, then the sines, RotaryDim/2 of each,
// computed in float64 and rounded once to float32.
func ropeTable(be kernels.Backend, c checkpoint.Config, positions int) (kernels.Weight, error) {
	half := c.RotaryDim() / 2
	if half == 0 {
		return kernels.Weight{}, nil
	}
	freq := ropeFrequencies(c)
	buf := make([]byte, positions*2*half*4)
	for p := range positions {
		row := buf[p*2*half*4:]
		for i, f := range freq {
			sin, cos := math.Sincos(float64(p) * f)
			binary.LittleEndian.PutUint32(row[4*i:], math.Float32bits(float32(cos)))
			binary.LittleEndian.PutUint32(row[4*(half+i):], math.Float32bits(float32(sin)))
		}
	}
	w, err := be.Load(kernels.Tensor{Name: "rope", Use: kernels.Table, Parts: []kernels.Source{
		{Name: "rope", Rows: positions, Cols: 2 * half, DType: kernels.DTypeF32, Data: bytes.NewReader(buf)},
	}})
	if err != nil {
		return w, fmt.Errorf("rotary table of %d positions: %w", positions, err)
	}
	return w, nil
}

// ropeFrequencies returns the inverse frequencies after scaling: plain, linear,
// or the Llama 3 ramp between kept and divided wavelengths.
func ropeFrequencies(c checkpoint.Config) []float64 {
	d := c.RotaryDim()
	freq := make([]float64, d/2)
	for i := range freq {
		f := math.Pow(c.Rope.Theta, -2*float64(i)/float64(d))
		switch c.Rope.Type {
		case checkpoint.RopeLinear:
			f /= c.Rope.Factor
		case checkpoint.RopeLlama3:
			f = llama3Frequency(c.Rope, f)
		}
		freq[i] = f
	}
	return freq
}

func llama3Frequency(r checkpoint.Rope, f float64) float64 {
	wave := 2 * math.Pi / f
	size := float64(r.OriginalSize)
	switch {
	case wave < size/r.HighFreq:
		return f
	case wave > size/r.LowFreq:
		return f / r.Factor
	}
	s := (size/wave - r.LowFreq) / (r.HighFreq - r.LowFreq)
	return (1-s)*f/r.Factor + s*f
}
