"""Makes the golden files of DeepSeek-V4.

Like make_moe_goldens.py, whose helpers it uses: a tiny random model in transformers'
float32 over one sequence, its BF16 run as the measure of what BF16 costs, and the MTP
module, which transformers leaves out, as its equations around transformers' own
decoder layer. Tensors and the configuration are named as the publisher names them;
but compress_rates says the lengths of groups, which are others than the published.

The first seed is taken for which no choice of a router or of an index is closer than
1e-5 in float32.

    python make_v4_goldens.py
"""

import json
import os
import re

import torch
from make_goldens import LENGTH, VERSIONS, randomise
from make_moe_goldens import MARGIN, chain
from safetensors.torch import save_file
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as v4

VERSIONS = {**VERSIONS, "made_by": "make_v4_goldens.py"}
NAME, SEED = "deepseek_v4", 31

YARN = {"rope_type": "yarn", "factor": 6.0, "original_max_position_embeddings": 48, "beta_fast": 32, "beta_slow": 1}
CONFIG = dict(
    hidden_size=40, num_hidden_layers=5, num_attention_heads=6, head_dim=28, q_lora_rank=22, qk_rope_head_dim=10, o_groups=3,
    o_lora_rank=14, vocab_size=138, rms_norm_eps=1e-6, tie_word_embeddings=False, max_position_embeddings=512,
    sliding_window=19, compress_rates={"compressed_sparse_attention": 3, "heavily_compressed_attention": 11},
    layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention",
                 "heavily_compressed_attention"],
    index_n_heads=14, index_head_dim=18, index_topk=8, hc_mult=3, hc_sinkhorn_iters=4, hc_eps=1e-4, n_routed_experts=11,
    num_experts_per_tok=3, moe_intermediate_size=18, routed_scaling_factor=1.7, swiglu_limit=0.9, num_hash_layers=2,
    rope_theta=1e4, compress_rope_theta=4e4, bos_token_id=0, eos_token_id=3, pad_token_id=None)


def config(**extra):
    c = DeepseekV4Config(**{**CONFIG, "rope_scaling": dict(YARN), **extra})
    c._attn_implementation = c._experts_implementation = "eager"
    return c


def randomise_all(module, seed):
    """Also what randomise leaves too small to matter, and buffers."""
    randomise(module, seed)
    g = torch.Generator().manual_seed(seed + 7)
    with torch.no_grad():
        for name, p in sorted(module.named_parameters()):
            if name.endswith(("position_bias", "sinks", "hc_base")) or re.search(r"_hc\.base$", name):
                p.copy_((0.8 * torch.randn(p.shape, generator=g)).to(torch.bfloat16).float())
            elif name.endswith(("hc_scale", "_hc.scale")):
                p.copy_((1 + 0.3 * torch.randn(p.shape, generator=g)).to(torch.bfloat16).float())
        for name, b in sorted(module.named_buffers()):
            if name.endswith("e_score_correction_bias"):
                b.copy_(0.1 * torch.randn(b.shape, generator=g))
            elif name.endswith("tid2eid"):
                b.copy_(torch.stack([torch.randperm(CONFIG["n_routed_experts"], generator=g)[: b.shape[1]] for _ in range(len(b))]))


class Margins:
    """The closest choice of any router or index that has run."""

    def __init__(self, module, rate):
        self.least, self.rate = float("inf"), rate
        for m in module.modules():
            if isinstance(m, v4.DeepseekV4TopKRouter):
                m.register_forward_hook(self.routed)
            if isinstance(m, v4.DeepseekV4IndexerScorer):
                m.register_forward_hook(self.scored)

    def gap(self, values, k):
        if k < len(values):
            top = values.sort(descending=True)[0]
            self.least = min(self.least, (top[k - 1] - top[k]).item())

    def routed(self, router, args, out):
        for row in router.score_fn(out[0].float()) + router.e_score_correction_bias:
            self.gap(row, router.top_k)

    def scored(self, scorer, args, out):
        for pos, row in enumerate(out[0].float()):
            self.gap(row[: (pos + 1) // self.rate], CONFIG["index_topk"])


NAMES = [
    (r"^lm_head\.", "head."), (r"^model\.embed_tokens\.", "embed."), (r"^model\.hc_head\.hc_", "hc_head_"), (r"^model\.", ""),
    (r"\.input_layernorm\.", ".attn_norm."), (r"\.post_attention_layernorm\.", ".ffn_norm."),
    (r"\.(attn|ffn)_hc\.", r".hc_\1_"), (r"\.self_attn\.", ".attn."), (r"\.mlp\.", ".ffn."),
    (r"\.compressor\.indexer\.scorer\.", ".indexer."), (r"\.compressor\.indexer\.q_b_proj", ".indexer.wq_b"),
    (r"\.compressor\.indexer\.", ".indexer.compressor."),
    (r"compressor\.kv_proj", "compressor.wkv"), (r"compressor\.gate_proj", "compressor.wgate"), (r"compressor\.kv_norm", "compressor.norm"),
    (r"\.position_bias", ".ape"), (r"\.q_a_proj", ".wq_a"), (r"\.q_a_norm", ".q_norm"), (r"\.q_b_proj", ".wq_b"),
    (r"\.kv_proj", ".wkv"), (r"\.o_a_proj", ".wo_a"), (r"\.o_b_proj", ".wo_b"), (r"\.sinks$", ".attn_sink"),
    (r"e_score_correction_bias", "bias"), (r"\.gate_proj", ".w1"), (r"\.up_proj", ".w3"), (r"\.down_proj\.weight", ".w2.weight"),
]


def published(tensors):
    out = {}
    for name, v in tensors.items():
        for pattern, by in NAMES:
            name = re.sub(pattern, by, name)
        if name.endswith("experts.gate_up_proj"):
            for e, w in enumerate(v):
                out[name[: -len("gate_up_proj")] + f"{e}.w1.weight"], out[name[: -len("gate_up_proj")] + f"{e}.w3.weight"] = w.chunk(2, dim=0)
        elif name.endswith("experts.down_proj"):
            for e, w in enumerate(v):
                out[name[: -len("down_proj")] + f"{e}.w2.weight"] = w
        else:
            out[name] = v
    return out


def mtp(seed):
    """The MTP tensors and a function from (streams, next ids, embedding, head) to streams and logits."""
    n = CONFIG["num_hidden_layers"]
    cfg = config(num_hidden_layers=n + 1, layer_types=CONFIG["layer_types"] + ["sliding_attention"], num_hash_layers=2)
    h, rms = cfg.hidden_size, cfg.rms_norm_eps
    parts = torch.nn.ModuleDict({
        "layer": v4.DeepseekV4DecoderLayer(cfg, n), "e_proj": torch.nn.Linear(h, h, bias=False), "h_proj": torch.nn.Linear(h, h, bias=False),
        "enorm": v4.DeepseekV4RMSNorm(h, eps=rms), "hnorm": v4.DeepseekV4RMSNorm(h, eps=rms), "norm": v4.DeepseekV4RMSNorm(h, eps=rms),
        "hc_head": v4.DeepseekV4HyperHead(cfg)})
    randomise_all(parts, seed)
    rotary, margins = v4.DeepseekV4RotaryEmbedding(cfg), Margins(parts, 3)

    def run(hidden, ids, embed, head):
        p = parts
        x = p["e_proj"](p["enorm"](embed(ids))).unsqueeze(2) + p["h_proj"](p["hnorm"](hidden))
        t = ids.shape[1]
        pos = torch.arange(t)[None]
        mask = torch.full((t, t), float("-inf")).triu(1)
        mask = mask.masked_fill(torch.ones(t, t).tril(-cfg.sliding_window).bool(), float("-inf"))[None, None]
        turns = {k: rotary(x, position_ids=pos, layer_type=k) for k in ("main", "compress")}
        out = p["layer"](x, input_ids=ids, position_embeddings=turns, position_ids=pos, attention_mask=mask, past_key_values=None)
        return out, head(p["norm"](p["hc_head"](out)))

    def name(k):
        return "mtp.0." + re.sub(r"^hc_head\.hc_", "hc_head_", k.removeprefix("layer."))

    state = {k: v for k, v in parts.state_dict().items()}
    layer = published({"model.layers.0." + k.removeprefix("layer."): v for k, v in state.items() if k.startswith("layer.")})
    rest = {name(k): v for k, v in state.items() if not k.startswith("layer.")}
    return {**{"mtp.0." + k.removeprefix("layers.0."): v for k, v in layer.items()}, **rest}, run, margins


def attempt(seed):
    model = DeepseekV4ForCausalLM(config())
    randomise_all(model, seed)
    model.eval()
    margins = [Margins(model, 3)]
    ids = torch.randint(4, model.config.vocab_size, (1, LENGTH), generator=torch.Generator().manual_seed(seed + 1))
    tensors, golden, streams = {k: v.clone() for k, v in model.state_dict().items()}, {}, []
    hook = model.model.layers[-1].register_forward_hook(lambda m, args, out: streams.append(out))
    with torch.no_grad():
        golden["logits"] = model(input_ids=ids, use_cache=False).logits[0].float().contiguous()
        hook.remove()
        extra, run, seen = mtp(seed + 2)
        golden["mtp_logits"], golden["mtp_chain"] = chain(run, streams[0][:, :-1], ids[:, 1:], model.model.embed_tokens, model.lm_head)
        margins.append(seen)
        least = min(m.least for m in margins)
        golden["logits_bf16"] = model.to(torch.bfloat16)(input_ids=ids, use_cache=False).logits[0].float().contiguous()
    golden["ids"] = ids[0].to(torch.int32)
    return {**published(tensors), **{k: v.clone() for k, v in extra.items()}}, golden, least


def main():
    seed = SEED
    while True:
        tensors, golden, least = attempt(seed)
        if least >= MARGIN:
            break
        print("seed", seed, "has a choice as close as", least)
        seed += 100
    wide = re.compile(r"(hc_\w+_(fn|base|scale)|attn_sink|ape|gate\.bias)$")
    files = {}
    for k, v in tensors.items():
        files[k] = (v if v.dtype == torch.long else v.float() if wide.search(k) else v.to(torch.bfloat16)).contiguous().clone()
    os.makedirs(NAME, exist_ok=True)
    with open(os.path.join(NAME, "config.json"), "w") as f:
        json.dump({**CONFIG, "rope_scaling": YARN, "model_type": NAME, "architectures": ["DeepseekV4ForCausalLM"], "num_nextn_predict_layers": 1,
                   "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "n_shared_experts": 1, "num_key_value_heads": 1,
                   "attention_bias": False, "hidden_act": "silu", "torch_dtype": "bfloat16"}, f, indent=1, sort_keys=True)
    save_file(files, os.path.join(NAME, "model.safetensors"), metadata={"format": "pt"})
    save_file(golden, os.path.join(NAME, "golden.safetensors"), metadata={**VERSIONS, "seed": str(seed), "margin": f"{least:.3g}"})
    print(NAME, "seed", seed, "closest choice", f"{least:.3g}", {k: tuple(v.shape) for k, v in golden.items()})


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
