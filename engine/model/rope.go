package model

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// ropeTables loads the rotary tables of a model.
func ropeTables(be kernels.Backend, c checkpoint.Config, positions int) (r ropes, err error) {
	if r.main, err = ropeTable(be, c, positions); err != nil || c.Pooled.Window == 0 {
		return r, err
	}
	c.Rope = c.Pooled.GroupRope
	r.groups, err = ropeTable(be, c, positions)
	return r, err
}

// ropeTable loads the rotary table of a configuration for positions
// 0..positions-1: per row the cosines, then the sines, RotaryDim/2 of each,
// computed in float64 and rounded once to float32.
func ropeTable(be kernels.Backend, c checkpoint.Config, positions int) (kernels.Weight, error) {
	half := c.RotaryDim() / 2
	if half == 0 {
		return kernels.Weight{}, nil
	}
	freq, long := ropeFrequencies(c), c.Rope.VectorScale()
	buf := make([]byte, positions*2*half*4)
	for p := range positions {
		row := buf[p*2*half*4:]
		for i, f := range freq {
			sin, cos := math.Sincos(float64(p) * f)
			binary.LittleEndian.PutUint32(row[4*i:], math.Float32bits(float32(long*cos)))
			binary.LittleEndian.PutUint32(row[4*(half+i):], math.Float32bits(float32(long*sin)))
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
// the Llama 3 ramp between kept and divided wavelengths, or YaRN's.
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
		case checkpoint.RopeYaRN:
			f = yarnFrequency(c.Rope, f, i, d)
		}
		freq[i] = f
	}
	return freq
}

// yarnFrequency divides the frequency of channel pair i of d channels where it turns
// less than BetaSlow times over the original context, keeps it where it turns more
// than BetaFast times, and mixes the two over the channels between, whose borders are
// rounded to whole ones as in DeepSeek's code.
func yarnFrequency(r checkpoint.Rope, f float64, i, d int) float64 {
	border := func(turns float64) float64 {
		return float64(d) * math.Log(float64(r.OriginalSize)/(turns*2*math.Pi)) / (2 * math.Log(r.Theta))
	}
	lo := max(math.Floor(border(r.BetaFast)), 0)
	hi := min(math.Ceil(border(r.BetaSlow)), float64(d-1))
	if hi == lo {
		hi += 0.001
	}
	ramp := min(max((float64(i)-lo)/(hi-lo), 0), 1)
	return f/r.Factor*ramp + f*(1-ramp)
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
