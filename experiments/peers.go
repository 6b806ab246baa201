package experiments

// PeerStep is what another engine needs for a decode step.
type PeerStep struct {
	Engine string  `json:"engine"`
	Ms     float64 `json:"ms"`
	Ratio  float64 `json:"ratio"` // of its time to ours
}

// vllm are steps of vLLM 0.33.0 in milliseconds (median in steady decode, torch 2.11,
// CUDA graphs, BF16, random weights, prompts of 512, 256 tokens out) on an H200, by
// model and sequences in flight, without speculation.
var vllm = map[string]map[int]float64{
	"random:qwen3-0.6b": {1: 1.71, 8: 1.88, 32: 2.28, 64: 2.80, 128: 4.27, 256: 7.51},
	"random:qwen3-8b":   {1: 5.24, 8: 5.63, 32: 6.20, 64: 7.17, 128: 9.42, 256: 15.37},
}

// peerContext is the length in the middle of those outputs: figures are compared at
// lengths from the prompt's on to the output's end.
const peerContext, peerSpread = 640, 128

// peer returns a peer's step at the same work on the same device, or nil.
func peer(model, device string, s *StepCost) *PeerStep {
	ms, ok := vllm[model][s.Batch]
	if !ok || device != "NVIDIA H200" || s.Rows != 1 || s.Skipped != "" || s.Context < peerContext-peerSpread || s.Context > peerContext+peerSpread {
		return nil
	}
	return &PeerStep{Engine: "vLLM 0.33.0", Ms: ms, Ratio: ms / s.Ms}
}

// compare puts steps beside each other, and beside peers'.
func (b *stepBench) compare() {
	type work struct{ batch, context int }
	plain := map[work]float64{}
	for _, s := range b.res.Steps {
		if s.Rows == 1 && s.Skipped == "" {
			plain[work{s.Batch, s.Context}] = s.Ms
		}
	}
	for i := range b.res.Steps {
		s := &b.res.Steps[i]
		if ms := plain[work{s.Batch, s.Context}]; ms > 0 && s.Rows > 1 {
			s.ToPlain = s.Ms / ms
		}
		if b.o.Layers == 0 {
			s.Peer = peer(b.o.Model, b.res.Info.Device, s)
		}
	}
}
