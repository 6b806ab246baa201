package model

import (
	"fmt"
	"strings"
	"unsafe"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// DeepSeek-V4 (transformers' DeepseekV4ForCausalLM): residual streams with
// coefficients of their own at each place; attention to a window and, in most layers,
// to keys pooled from groups of positions, all of them or those that an index chooses;
// in every layer a mixture of experts with limited inputs, which in the first layers a
// table gives to each token. The streams come together before the final norm. An MTP
// layer with a window alone drafts from the streams. Names are the publisher's.
var deepseekV4Traits = traits{
	names: names{
		embed: "embed.weight", head: "head.weight", norm: "norm.weight", layer: "layers.%d.",
		mixNorm: "attn_norm.weight", feedNorm: "ffn_norm.weight", feed: "ffn.",
		gate: "w1", up: "w3", down: "w2", expert: "%d.%s.weight", bias: "gate.bias",
	},
	shared: "shared_experts",
	mtp: func(checkpoint.Config) mtpNames {
		return mtpNames{
			embedNorm: "mtp.0.enorm.weight", hiddenNorm: "mtp.0.hnorm.weight", norm: "mtp.0.norm.weight",
			fc: "mtp.0.h_proj.weight", embedFC: "mtp.0.e_proj.weight", layer: "mtp.0.", mixer: "mtp.0.", apart: true,
		}
	},
	sites: func(l *loader, prefix string) (site, site) {
		iters := l.src.Config().Streams.Iters
		return l.loadHyper(prefix+"hc_attn_", iters), l.loadHyper(prefix+"hc_ffn_", iters)
	},
	mixer: func(l *loader, prefix string) site {
		return l.loadHyper(strings.TrimPrefix(prefix, "model.")+"hc_head_", 0)
	},
}

// expertTable is the name of the table of each token's experts.
const expertTable = "gate.tid2eid"

// loadPooledBlock loads layer i of the trunk, whose tensors start with prefix, or a
// drafting one behind them.
func (l *loader) loadPooledBlock(prefix string, i int, t traits, r ropes) *block {
	c := l.src.Config()
	b := &block{
		mixNorm: l.norm(prefix+t.names.mixNorm, c.HiddenSize, t),
		mlpNorm: l.norm(prefix+t.names.feedNorm, c.HiddenSize, t),
	}
	b.mixSite, b.feedSite = t.sites(l, prefix)
	l.loadPooled(b, prefix+"attn.", i, r)
	given := i < len(c.MoE.Hash) && c.MoE.Hash[i]
	b.feed = l.loadFeed(prefix+t.names.feed, true, given, t)
	if given && l.err == nil {
		b.feed.moe.table = l.table(prefix+t.names.feed+expertTable, c.VocabSize, c.MoE.PerToken, c.MoE.Experts)
	}
	return b
}

// table loads the experts of each token, ids below experts.
func (l *loader) table(name string, rows, cols, experts int) kernels.Buf {
	if l.err != nil {
		return kernels.Buf{}
	}
	ids, err := l.src.Ints(name, rows*cols)
	if err != nil {
		l.err = err
		return kernels.Buf{}
	}
	narrow := make([]int32, len(ids))
	for i, id := range ids {
		if id < 0 || id >= int64(experts) {
			l.err = fmt.Errorf("%s: tensor %s gives token %d expert %d; there are %d", l.src.Name(), name, i/cols, id, experts)
			return kernels.Buf{}
		}
		narrow[i] = int32(id)
	}
	return l.numbers("tensor "+name, narrow, cols)
}

// numbers makes a table of cols columns; what stands for it in an error.
func (l *loader) numbers(what string, list []int32, cols int) kernels.Buf {
	b, err := l.be.Alloc(kernels.Tables, kernels.I32, len(list)/cols, cols)
	if err != nil {
		l.err = fmt.Errorf("%s: %w", what, err)
		return b
	}
	l.be.Queue().Write(b, unsafe.Slice((*byte)(unsafe.Pointer(&list[0])), 4*len(list)))
	return b
}
