package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Weights of 8 and 4 bits lie beside their scales:
//
//	FP8, E4M3       X of F8_E4M3 [N, K], X_scale_inv, X_scale or (X without
//	                "weight") scale: one number, one a row, one a block, or one
//	                a group of a row's elements
//	MXFP4, FP4      X or X_packed, two elements a byte, the lower half first, with
//	                E8M0 scales [N, K/32]
//	NVFP4           the same with E4M3 scales [N, K/16], which X_scale_2 multiplies
//	                or X_global_scale divides
//
// as DeepSeek, Qwen and GLM (FP8, E8M0), gpt-oss and DeepSeek V4 (MXFP4), NVIDIA's
// ModelOpt and the compressed-tensors library publish them. An element's value is
// code times scale, in float32, rounded to BF16.

// scaled reads a tensor of that kind as BF16. Rows of a stack of matrices count
// through.
type scaled struct {
	codes  []byte
	fp4    bool
	cols   int // elements of a row
	height int // rows of a matrix

	scales               scales // of each matrix [scaleRows, scaleCols]
	scaleRows, scaleCols int
	blockRows, blockCols int // elements that share a scale
}

// scales are numbers as a file stores them: those of a large table are many more than
// the rows of it that are read.
type scales struct {
	raw   []byte
	size  int // bytes of a number
	widen func(p []byte) float32
	// One for the whole tensor: it multiplies the others, or divides them if over is
	// set; 1 does neither.
	whole float32
	over  bool
}

func (s *scales) count() int { return len(s.raw) / s.size }

func (s *scales) at(i int) float32 {
	v := s.widen(s.raw[i*s.size:])
	if s.over {
		return v / s.whole
	}
	return v * s.whole
}

// readRows implements rowReader.
func (s *scaled) readRows(dst []byte, first, n int) error {
	wide := make([]float32, s.cols)
	for i := range n {
		r := first + i
		matrix, row := r/s.height, r%s.height
		first := (matrix*s.scaleRows + row/s.blockRows) * s.scaleCols
		if s.fp4 {
			for j, b := range s.codes[r*s.cols/2 : (r+1)*s.cols/2] {
				wide[2*j], wide[2*j+1] = e2m1[b&15], e2m1[b>>4]
			}
		} else {
			for j, b := range s.codes[r*s.cols : (r+1)*s.cols] {
				wide[j] = e4m3[b]
			}
		}
		for j := range s.scaleCols {
			scale := s.scales.at(first + j)
			for k, v := range wide[j*s.blockCols : min((j+1)*s.blockCols, s.cols)] {
				wide[j*s.blockCols+k] = v * scale
			}
		}
		putBF16(dst[2*i*s.cols:], wide)
	}
	return nil
}

// e2m1 are the values of FP4.
var e2m1 = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}

// e4m3 are the values of FP8 with four bits of exponent (of the kind without
// infinities).
var e4m3 = func() (table [256]float32) {
	for b := range table {
		exp, frac := b>>3&15, float64(b&7)
		v := math.Ldexp(1+frac/8, exp-7)
		switch {
		case exp == 0:
			v = math.Ldexp(frac/8, -6)
		case b&127 == 127:
			v = math.NaN()
		}
		if b >= 128 {
			v = math.Copysign(v, -1)
		}
		table[b] = float32(v)
	}
	return table
}()

// e8m0 is the power of two that a scale of eight bits of exponent means.
func e8m0(b byte) float32 {
	if b == 255 {
		return float32(math.NaN())
	}
	return float32(math.Ldexp(1, int(b)-127))
}

// scaleSuffixes are how the scales of weight X are called, after X or, for the last,
// after X without "weight".
var scaleSuffixes = []string{"_scale_inv", "_scale", "scale"}

// scaledWeights finds the weights that lie beside scales, and makes them tensors of
// BF16. What belongs to them is taken out of ck.tensors; scales of activations and of
// the key-value cache are skipped, as the engine has none, and others that no weight
// goes with are an error.
func (ck *Checkpoint) scaledWeights() error {
	taken := map[string]bool{}
	for _, name := range ck.Names() {
		t := ck.tensors[name]
		base := strings.TrimSuffix(name, "_packed")
		if !strings.HasSuffix(base, ".weight") || t.Stored != "" {
			continue
		}
		scale, found := ck.scaleOf(base)
		if !found {
			continue
		}
		if err := ck.scale(base, t, scale, taken); err != nil {
			return fmt.Errorf("%s: tensor %q: %w", t.File, t.Source, err)
		}
		taken[scale.Name] = true
		if base != name {
			taken[name] = true
		}
	}
	for name := range taken {
		delete(ck.tensors, name)
	}
	if len(taken) == 0 && ck.quantization.Method == "" {
		return nil
	}
	for _, name := range ck.Names() {
		t := ck.tensors[name]
		switch {
		case ignoredScale(name):
			delete(ck.tensors, name)
			ck.skipped = append(ck.skipped, t.Source)
		case strings.Contains(name[strings.LastIndex(name, ".")+1:], "hc_"): // of residual streams
		case strings.Contains(name[strings.LastIndex(name, ".")+1:], "scale"), strings.HasSuffix(name, "_zero_point"):
			return fmt.Errorf("%s: tensor %q belongs to quantised weights in a layout that is not known", t.File, t.Source)
		}
	}
	return nil
}

// ignoredScale reports whether a tensor scales activations or cached keys and values.
func ignoredScale(name string) bool {
	last := name[strings.LastIndex(name, ".")+1:]
	return slices.Contains([]string{"input_scale", "input_global_scale", "activation_scale", "k_scale", "v_scale", "q_scale", "prob_scale", "weight_shape"}, last)
}

// scaleOf finds the scales of a weight.
func (ck *Checkpoint) scaleOf(weight string) (Tensor, bool) {
	for _, suffix := range scaleSuffixes {
		name := weight + suffix
		if suffix == "scale" {
			name = strings.TrimSuffix(weight, "weight") + suffix
		}
		if t, ok := ck.tensors[name]; ok {
			return t, true
		}
	}
	return Tensor{}, false
}

// scale makes the BF16 tensor of a weight and its scales.
func (ck *Checkpoint) scale(name string, t, scale Tensor, taken map[string]bool) error {
	s := &scaled{codes: t.data}
	shape := slices.Clone(t.Shape)
	if len(shape) < 2 {
		return fmt.Errorf("shape %v; a weight with scales must have two dimensions", shape)
	}
	switch t.DType {
	case F8E4M3:
	case U8, I8:
		s.fp4 = true
		shape[len(shape)-1] *= 2
	case F4:
		s.fp4 = true
		if shape[len(shape)-1]%2 != 0 {
			return fmt.Errorf("rows of %d elements; FP4 needs an even number", shape[len(shape)-1])
		}
	default:
		return fmt.Errorf("it is %s and has scales; known are F8_E4M3, and U8, I8 or F4 for FP4", t.DType)
	}
	s.height, s.cols = shape[len(shape)-2], shape[len(shape)-1]
	if err := s.readScales(scale); err != nil {
		return fmt.Errorf("scales %q: %w", scale.Source, err)
	}
	if err := s.shapeScales(shape, scale.Shape, ck.quantization.Block); err != nil {
		return fmt.Errorf("scales %q: %w", scale.Source, err)
	}
	if err := ck.globalScale(name, s, taken); err != nil {
		return err
	}
	stored := string(t.DType)
	if s.fp4 {
		stored = "FP4"
	}
	ck.tensors[name] = Tensor{
		Name: name, Source: t.Source, File: t.File, Stored: stored, DType: BF16, Shape: shape, data: t.data, rows: s, file: t.file,
	}
	return nil
}

// readScales takes scales of any type that they come in.
func (s *scaled) readScales(t Tensor) error {
	s.scales = scales{raw: t.data, size: t.DType.Size(), whole: 1}
	switch {
	case t.rows != nil:
		return fmt.Errorf("they have scales themselves")
	case t.DType == F32:
		s.scales.widen = f32At
	case t.DType == BF16:
		s.scales.widen = func(p []byte) float32 { return bf16ToF32(binary.LittleEndian.Uint16(p)) }
	case t.DType == F16:
		s.scales.widen = func(p []byte) float32 { return f16ToF32(binary.LittleEndian.Uint16(p)) }
	case t.DType == F8E4M3 && s.fp4:
		s.scales.widen = func(p []byte) float32 { return e4m3[p[0]] }
	case t.DType == F8E8M0, t.DType == U8 && s.fp4:
		s.scales.widen = func(p []byte) float32 { return e8m0(p[0]) }
	default:
		return fmt.Errorf("it is %s; known are F32, BF16, F16, F8_E8M0, and F8_E4M3 for FP4", t.DType)
	}
	return nil
}

// shapeScales finds which elements share a scale. block is the configuration's, 0 if
// it gives none.
func (s *scaled) shapeScales(weight, scales []int, block [2]int) error {
	lead := weight[:len(weight)-2]
	wrong := fmt.Errorf("shape %v does not go with a weight %v", scales, weight)
	switch {
	case s.scales.count() == 1: // one for all
		s.scaleRows, s.scaleCols, s.blockRows, s.blockCols = 1, 1, s.height, s.cols
		if len(lead) > 0 {
			return wrong
		}
		return nil
	case len(scales) == len(weight)-1: // one a row
		scales = append(slices.Clone(scales), 1)
	case len(scales) != len(weight):
		return wrong
	}
	if !slices.Equal(lead, scales[:len(lead)]) {
		return wrong
	}
	s.scaleRows, s.scaleCols = scales[len(scales)-2], scales[len(scales)-1]
	if s.scaleRows < 1 || s.scaleCols < 1 {
		return wrong
	}
	fits := func(rows, cols int) bool {
		return (s.height+rows-1)/rows == s.scaleRows && (s.cols+cols-1)/cols == s.scaleCols
	}
	choose := func(rows, cols int) error {
		if !fits(rows, cols) {
			return fmt.Errorf("shape %v does not go with a weight %v in blocks of %d by %d", scales, weight, rows, cols)
		}
		s.blockRows, s.blockCols = rows, cols
		return nil
	}
	switch {
	case s.fp4:
		if s.cols%s.scaleCols != 0 {
			return wrong
		}
		group := s.cols / s.scaleCols
		if group != 16 && group != 32 {
			return fmt.Errorf("groups of %d elements; FP4 has 16 or 32", group)
		}
		return choose(1, group)
	case s.scaleCols == 1 && s.scaleRows == s.height:
		return choose(1, s.cols)
	case s.scaleRows == s.height && s.height > 1 && s.cols%s.scaleCols == 0: // of a row
		return choose(1, s.cols/s.scaleCols)
	case block[0] > 0:
		return choose(block[0], block[1])
	}
	for _, n := range []int{128, 32} {
		if fits(n, n) {
			return choose(n, n)
		}
	}
	return fmt.Errorf("shape %v does not go with a weight %v in blocks of 128 or 32; quantization_config.weight_block_size must say the size", scales, weight)
}

// globalScale applies the scale of a whole NVFP4 tensor.
func (ck *Checkpoint) globalScale(name string, s *scaled, taken map[string]bool) error {
	for _, suffix := range []string{"_scale_2", "_global_scale"} {
		t, ok := ck.tensors[name+suffix]
		if !ok {
			continue
		}
		taken[t.Name] = true
		values, err := t.Float32s()
		switch {
		case err != nil:
			return err
		case len(values) != 1 || !s.fp4:
			return fmt.Errorf("tensor %q must be one number, beside FP4", t.Source)
		}
		s.scales.whole, s.scales.over = values[0], suffix == "_global_scale"
	}
	return nil
}
