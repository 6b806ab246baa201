package kernels

import "fmt"

// Activation is a function of single numbers: y = Out * act(In * x), where Act is not
// SwiGLU.
type Activation struct {
	Act     Act
	In, Out float32
}

// Check validates the function.
func (a Activation) Check() error {
	if a.Act > Sigmoid {
		return fmt.Errorf("activation %d; it must be a function of one number", a.Act)
	}
	return nil
}

// BlendSpec describes what an n-gram memory adds to n residual streams of width H
// (Qwen4's PLE): with v [H] and n gates g of a row,
//
//	V_h = g_h * v
//	x_h = x_h + V_h + silu(c_h),  c[t] = sum over j < K of Taps[:, K-1-j] * norm(V)[t - j*Dilation]
//
// a depthwise causal convolution over positions along the row's own path, with zeros
// before the start. Norm has groups of H and a weight of n*H elements. All of it is
// FP32, with one rounding of x at the end.
type BlendSpec struct {
	Taps     Weight // Taps [n*H, K]
	Dilation int
	Norm     Norm
}

// Check validates the geometry against a layer's cache.
func (s BlendSpec) Check(l LayerSpec) error {
	switch {
	case s.Norm.W.None() || s.Norm.Group <= 0 || !s.Norm.Bias.None():
		return fmt.Errorf("norm of groups of %d; it must be of groups as wide as a stream, without a bias", s.Norm.Group)
	case l.RowDim <= s.Norm.Group:
		return fmt.Errorf("values of %d and gates; the layer's cache has rows of %d", s.Norm.Group, l.RowDim)
	case s.Dilation <= 0:
		return fmt.Errorf("dilation %d; it must be positive", s.Dilation)
	}
	return nil
}
