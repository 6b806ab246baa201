"""Makes the golden files of the families with mixtures of experts.

Like make_goldens.py, whose helpers it uses: a tiny random model in transformers'
float32 over one sequence, its BF16 run as the measure of what BF16 costs, and the
MTP module, which transformers leaves out, as its equations around transformers' own
decoder layer. The files name their tensors as the published ones do: one tensor an
expert, or a stack, with the module of GLM and DeepSeek behind the trunk's layers.

The first seed is taken for which no choice of a router is closer than 1e-5 in
float32: closer ones may fall otherwise in float64, and the comparison would be of
two models.

    python make_moe_goldens.py [name ...]
"""

import json
import os
import sys

import torch
from make_goldens import LENGTH, VERSIONS, randomise
from safetensors.torch import save_file
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, DeepseekV32Config, DeepseekV32ForCausalLM
from transformers import GlmMoeDsaConfig, GlmMoeDsaForCausalLM, Glm4MoeConfig, Glm4MoeForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, Qwen3NextConfig, Qwen3NextForCausalLM
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as dsv3
from transformers.models.deepseek_v32 import modeling_deepseek_v32 as dsv32
from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa as dsa
from transformers.models.glm4_moe import modeling_glm4_moe as glm4
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as q35moe
from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig
from transformers.models.qwen3_next import modeling_qwen3_next as qnext

VERSIONS = {**VERSIONS, "made_by": "make_moe_goldens.py"}
MARGIN = 1e-5
COMMON = {"max_position_embeddings": 512, "bos_token_id": None, "eos_token_id": 3, "pad_token_id": None}


def qwen3_moe():
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(
        hidden_size=48, intermediate_size=72, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=20,
        vocab_size=130, rms_norm_eps=1e-6, tie_word_embeddings=True, moe_intermediate_size=22, num_experts=9,
        num_experts_per_tok=3, norm_topk_prob=True, mlp_only_layers=[1],
        rope_parameters={"rope_type": "default", "rope_theta": 1e6}, **COMMON))


HYBRID = dict(
    hidden_size=48, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=40, vocab_size=144,
    rms_norm_eps=1e-6, tie_word_embeddings=False, linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_value_head_dim=24,
    linear_num_key_heads=2, linear_num_value_heads=6, moe_intermediate_size=22, shared_expert_intermediate_size=34,
    num_experts=11, num_experts_per_tok=3,
    rope_parameters={"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.25}, **COMMON)


def qwen3_next():
    return Qwen3NextForCausalLM(Qwen3NextConfig(intermediate_size=72, **HYBRID))


def qwen3_5_moe():
    return q35moe.Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**HYBRID))


def glm4_moe():
    return Glm4MoeForCausalLM(Glm4MoeConfig(
        hidden_size=48, intermediate_size=72, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=20,
        vocab_size=134, rms_norm_eps=1e-5, tie_word_embeddings=False, attention_bias=True, use_qk_norm=True,
        moe_intermediate_size=18, n_routed_experts=15, num_experts_per_tok=4, n_shared_experts=2, n_group=5, topk_group=3,
        routed_scaling_factor=1.5, first_k_dense_replace=1, norm_topk_prob=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.5}, **COMMON))


YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 32,
        "beta_slow": 1, "mscale": 0.9, "mscale_all_dim": 0.7}


def deepseek_v3(q_rank, rope):
    return DeepseekV3ForCausalLM(DeepseekV3Config(
        hidden_size=48, intermediate_size=72, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=q_rank,
        kv_lora_rank=20, qk_nope_head_dim=14, qk_rope_head_dim=8, v_head_dim=18, vocab_size=136, rms_norm_eps=1e-6,
        tie_word_embeddings=False, moe_intermediate_size=18, n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=1,
        n_group=4, topk_group=2, routed_scaling_factor=2.5, first_k_dense_replace=1, norm_topk_prob=True, rope_parameters=rope,
        **COMMON))


SPARSE = dict(
    hidden_size=48, intermediate_size=72, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=26, kv_lora_rank=20,
    qk_nope_head_dim=14, qk_rope_head_dim=8, v_head_dim=18, vocab_size=136, tie_word_embeddings=False, moe_intermediate_size=18,
    n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=1, first_k_dense_replace=1, norm_topk_prob=True,
    index_topk=24, index_n_heads=14, index_head_dim=18, **COMMON)


def deepseek_v32():
    return DeepseekV32ForCausalLM(DeepseekV32Config(
        num_hidden_layers=3, rms_norm_eps=1e-6, n_group=4, topk_group=2, routed_scaling_factor=2.5, rope_parameters=YARN, **SPARSE))


def glm_moe_dsa():
    return GlmMoeDsaForCausalLM(GlmMoeDsaConfig(
        num_hidden_layers=5, rms_norm_eps=1e-5, n_group=1, topk_group=1, routed_scaling_factor=1.5,
        indexer_types=["full", "full", "shared", "shared", "full"], rope_parameters={"rope_type": "default", "rope_theta": 8e4}, **SPARSE))


class Margins:
    """The closest choice of any router that has run."""

    def __init__(self, model):
        self.least = float("inf")
        for m in model.modules():
            if type(m).__name__.lower().endswith("topkrouter"):
                m.register_forward_hook(self.seen)
            if type(m).__name__.endswith("Indexer"):
                m.register_forward_hook(self.chosen, with_kwargs=True)

    def gap(self, values, k):
        if k < values.shape[-1]:
            top = values.sort(dim=-1, descending=True)[0]
            self.least = min(self.least, (top[:, k - 1] - top[:, k]).min().item())

    def chosen(self, x, args, kwargs, out):
        """The choice of an index again, with the gap behind the last key of each row."""
        hidden, latent, (cos, sin) = args[0], args[1], args[2]
        rope, n = x.qk_rope_head_dim, hidden.shape[1]
        rotate = dsa.apply_rotary_pos_emb_interleave if "Glm" in type(x).__name__ else dsv32.apply_rotary_pos_emb
        q, k = x.wq_b(latent).view(1, n, x.n_heads, x.head_dim), x.k_norm(x.wk(hidden)).unsqueeze(2)
        qr, kr = rotate(q[..., :rope], k[..., :rope], cos, sin, unsqueeze_dim=2)
        q, k = torch.cat([qr, q[..., rope:]], dim=-1).float(), torch.cat([kr, k[..., rope:]], dim=-1).squeeze(2).float()
        w = x.weights_proj(hidden.to(x.weights_proj.weight.dtype)).float() * x.n_heads**-0.5
        each = torch.relu(torch.einsum("bshd,btd->bsht", q, k) * x.head_dim**-0.5)
        scores = torch.einsum("bsh,bsht->bst", w, each)[0]
        for row in range(x.index_topk, n):
            self.gap(scores[row : row + 1, : row + 1], x.index_topk)

    def seen(self, router, args, out):
        logits = out[0].float()
        if not hasattr(router, "e_score_correction_bias"):
            self.gap(logits.softmax(dim=-1), router.top_k)
            return
        choice = logits.sigmoid() + router.e_score_correction_bias
        grouped = choice.view(len(choice), router.num_group, -1)
        value = grouped.topk(2, dim=-1)[0].sum(dim=-1)
        self.gap(value, router.topk_group)
        keep = torch.zeros_like(value).scatter_(1, value.topk(router.topk_group, dim=-1)[1], 1).bool()
        self.gap(choice.masked_fill(~keep[..., None].expand_as(grouped).reshape(choice.shape), -1e9), router.top_k)


def bias_routers(module, seed):
    """e_score_correction_bias is a buffer, which randomise leaves alone."""
    g = torch.Generator().manual_seed(seed)
    for name, b in sorted(module.named_buffers()):
        if name.endswith("e_score_correction_bias"):
            b.copy_(0.1 * torch.randn(b.shape, generator=g))


def eager(config, layers, kinds):
    out = type(config)(**{**config.to_dict(), "num_hidden_layers": layers, "layer_types": kinds})
    out._attn_implementation = out._experts_implementation = "eager"
    return out


def module(names, layer, norm, rotary, config, seed):
    """The MTP tensors and a function from (hidden, next ids, embedding, head) to logits."""
    h = config.hidden_size
    norms = {n: norm(h, eps=config.rms_norm_eps) for n in ("e", "h", "out")}
    fc = torch.nn.Linear(2 * h, h, bias=False)
    parts = {"layer": layer, "fc": fc, "norm_e": norms["e"], "norm_h": norms["h"], "norm_out": norms["out"]}
    all_ = torch.nn.ModuleDict(parts)
    randomise(all_, seed)
    bias_routers(all_, seed)
    margins = Margins(all_)

    def run(hidden, ids, embed, head):
        z = fc(torch.cat([norms["e"](embed(ids)), norms["h"](hidden)], dim=-1))
        n = ids.shape[1]
        pos = torch.arange(n)[None]
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        z = layer(z, position_embeddings=rotary(z, pos), attention_mask=mask, position_ids=pos)
        z = z[0] if isinstance(z, tuple) else z
        out = norms["out"](z)
        return out, head(out)

    tensors = {names[k.split(".")[0]] + k.split(".", 1)[1]: v for k, v in all_.state_dict().items()}
    run.layer = layer
    return tensors, run, margins


QWEN = {"fc": "mtp.fc.", "norm_e": "mtp.pre_fc_norm_embedding.", "norm_h": "mtp.pre_fc_norm_hidden.", "norm_out": "mtp.norm.",
        "layer": "mtp.layers.0."}


def qwen_mtp(m, decoder, rms, rotary, mrope):
    def make(config, seed):
        cfg = eager(config, 1, ["full_attention"])
        rot = rotary(cfg)
        turn = (lambda z, pos: rot(z, pos[None].expand(3, 1, pos.shape[1]))) if mrope else rot
        return module(QWEN, decoder(cfg, 0), rms, turn, cfg, seed)

    return make


def next_mtp(decoder, rms, rotary):
    def make(config, seed):
        at = f"model.layers.{config.num_hidden_layers}."
        names = {"fc": at + "eh_proj.", "norm_e": at + "enorm.", "norm_h": at + "hnorm.", "norm_out": at + "shared_head.norm.", "layer": at}
        cfg = eager(config, config.num_hidden_layers, None)
        return module(names, decoder(cfg, config.num_hidden_layers - 1), rms, rotary(cfg), cfg, seed)

    return make


def split_experts(tensors):
    """One tensor an expert, as most publishers have it."""
    out = {}
    for name, v in tensors.items():
        if name.endswith("experts.gate_up_proj"):
            for e, w in enumerate(v):
                gate, up = w.chunk(2, dim=0)
                at = name[: -len("gate_up_proj")] + f"{e}."
                out[at + "gate_proj.weight"], out[at + "up_proj.weight"] = gate, up
        elif name.endswith("experts.down_proj"):
            for e, w in enumerate(v):
                out[name[: -len("down_proj")] + f"{e}.down_proj.weight"] = w
        else:
            out[name] = v
    return out


def chain(run, hidden, ids, embed, head, share=None, k=5):
    """The logits of all rows, and k drafts behind the last: each takes the hidden state before it,
    and, of an index that is shared, the keys that the last row chose."""
    n = ids.shape[1]
    if share is not None:
        share.register_forward_hook(lambda m, args, out: torch.cat([out[:, :n], out[:, n - 1 : n].expand(-1, out.shape[1] - n, -1)], dim=1))
    out, logits = run(hidden, ids, embed, head)
    first, drafts = logits[0].contiguous(), [int(logits[0, -1].argmax())]
    while len(drafts) < k:
        hidden = torch.cat([hidden, out[:, -1:]], dim=1)
        ids = torch.cat([ids, torch.tensor([[drafts[-1]]])], dim=1)
        out, logits = run(hidden, ids, embed, head)
        drafts.append(int(logits[0, -1].argmax()))
    return first, torch.tensor(drafts, dtype=torch.int32)


def attempt(make, mtp, seed, share=False):
    model = make()
    model.config._experts_implementation = model.config._attn_implementation = "eager"
    randomise(model, seed)
    bias_routers(model, seed)
    model.eval()
    margins = [Margins(model)]
    ids = torch.randint(4, model.config.vocab_size, (1, LENGTH), generator=torch.Generator().manual_seed(seed + 1))
    tensors, golden = {k: v.clone() for k, v in model.state_dict().items()}, {}
    with torch.no_grad():
        golden["logits"] = model(input_ids=ids).logits[0].float().contiguous()
        if mtp:
            hidden = model.model(input_ids=ids).last_hidden_state
            extra, run, seen = mtp(model.config, seed + 2)
            golden["mtp_logits"], golden["mtp_chain"] = chain(
                run, hidden[:, :-1], ids[:, 1:], model.model.embed_tokens, model.lm_head, run.layer.self_attn.indexer if share else None)
            tensors.update({k: v.clone() for k, v in extra.items()})
            margins.append(seen)
        least = min(m.least for m in margins)
        golden["logits_bf16"] = model.to(torch.bfloat16)(input_ids=ids).logits[0].float().contiguous()
    golden["ids"] = ids[0].to(torch.int32)
    return model, tensors, golden, least


def store(name, make, seed, mtp=None, stacked=False, extra=None):
    while True:
        model, tensors, golden, least = attempt(make, mtp, seed, "index_share_for_mtp_iteration" in (extra or {}))
        if least >= MARGIN:
            break
        seed += 100
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    if not stacked:
        tensors = split_experts(tensors)
    config = {**model.config.to_dict(), **(extra or {}), "architectures": [type(model).__name__]}
    os.makedirs(name, exist_ok=True)
    with open(os.path.join(name, "config.json"), "w") as f:
        json.dump(config, f, indent=1, sort_keys=True, default=str)
    wide = ("A_log", "e_score_correction_bias")
    kept = {k: v.float() if k.endswith(wide) else v.to(torch.bfloat16) if v.is_floating_point() else v for k, v in tensors.items()}
    save_file({k: v.contiguous().clone() for k, v in kept.items()},
              os.path.join(name, "model.safetensors"), metadata={"format": "pt"})
    save_file(golden, os.path.join(name, "golden.safetensors"), metadata={**VERSIONS, "seed": str(seed), "margin": f"{least:.3g}"})
    print(name, "seed", seed, "closest choice", f"{least:.3g}", {k: tuple(v.shape) for k, v in golden.items()})


FAMILIES = {
    "qwen3_moe": lambda: store("qwen3_moe", qwen3_moe, 21),
    "qwen3_next": lambda: store("qwen3_next", qwen3_next, 22, mtp=qwen_mtp(
        qnext, qnext.Qwen3NextDecoderLayer, qnext.Qwen3NextRMSNorm, qnext.Qwen3NextRotaryEmbedding, False)),
    "qwen3_5_moe": lambda: store("qwen3_5_moe", qwen3_5_moe, 23, stacked=True, extra={"mtp_num_hidden_layers": 1}, mtp=qwen_mtp(
        q35moe, q35moe.Qwen3_5MoeDecoderLayer, q35moe.Qwen3_5MoeRMSNorm, q35moe.Qwen3_5MoeTextRotaryEmbedding, True)),
    "glm4_moe": lambda: store("glm4_moe", glm4_moe, 24, mtp=next_mtp(
        glm4.Glm4MoeDecoderLayer, glm4.Glm4MoeRMSNorm, glm4.Glm4MoeRotaryEmbedding)),
    "deepseek_v3": lambda: store("deepseek_v3", lambda: deepseek_v3(26, YARN), 25, mtp=next_mtp(
        dsv3.DeepseekV3DecoderLayer, dsv3.DeepseekV3RMSNorm, dsv3.DeepseekV3RotaryEmbedding)),
    "deepseek_v3_no_rank": lambda: store(
        "deepseek_v3_no_rank", lambda: deepseek_v3(None, {"rope_type": "default", "rope_theta": 1e4}), 26),
    "deepseek_v32": lambda: store("deepseek_v32", deepseek_v32, 27, mtp=next_mtp(
        dsv32.DeepseekV32DecoderLayer, dsv32.DeepseekV32RMSNorm, dsv32.DeepseekV32RotaryEmbedding)),
    "glm_moe_dsa": lambda: store("glm_moe_dsa", glm_moe_dsa, 28, extra={"index_share_for_mtp_iteration": True}, mtp=next_mtp(
        dsa.GlmMoeDsaDecoderLayer, dsa.GlmMoeDsaRMSNorm, dsa.GlmMoeDsaRotaryEmbedding)),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or FAMILIES:
        FAMILIES[name]()
