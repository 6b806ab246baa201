"""Makes the golden files of Qwen4-Exp (Qwen3.8-Flash-Next).

Like make_moe_goldens.py, whose helpers it uses: a tiny random model in transformers'
float32 over one sequence, in which end-of-text tokens cut n-grams, and its BF16 run.
transformers leaves the MTP module out, so that its golden is the module's equations
around transformers' own decoder layer and mixer:

    e = fc_embedding(norm(embed(next)));  h = norm(streams before the mixer), over all of them at once
    stream i = fc_hidden(h_i) + e;  -> decoder layer, whose streams are the next hidden state -> mixer -> head

The n-gram tables are stored in shards and with the numbers of their hashes, as the
published file has them.

The first seed is taken for which no choice of a router or an index is closer than
MARGIN in float32. Equal scores of blocks, which occur where all products are negative
(score 0), are no choice if the lower block is taken, as transformers' topk on the CPU
may or may not do; such seeds are passed over too.

    python make_qwen4_goldens.py [name ...]
"""

import math
import sys

import torch
import make_moe_goldens as moe
from make_goldens import LENGTH, randomise
from transformers.models.qwen4_exp import modeling_qwen4_exp as q4
from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig

moe.VERSIONS["made_by"] = "make_qwen4_goldens.py"
EOS = moe.COMMON["eos_token_id"]


def qwen4_exp():
    return q4.Qwen4ExpForCausalLM(Qwen4ExpTextConfig(
        hidden_size=44, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=40, vocab_size=146,
        rms_norm_eps=1e-6, tie_word_embeddings=False, linear_conv_kernel_dim=4, linear_key_head_dim=16,
        linear_value_head_dim=24, linear_num_key_heads=2, linear_num_value_heads=6, moe_intermediate_size=22,
        shared_expert_intermediate_size=34, num_experts=11, num_experts_per_tok=3, output_gate_type="sigmoid",
        layer_types=["linear_attention", "qwen_sparse_attention", "linear_attention", "qwen_sparse_attention"],
        hc_count=3, hc_lowrank=26, ple_layer_ids=[1, 3], ple_embed_dim=60, ple_conv_kernel_size=3, ngram_size=4,
        heads_per_ngram=2, ngram_vocab_size_base=101, make_ngram_vocab_size_divisible_by=16, split_ngram_parts=5, seed=77,
        indexer_n_heads=5, indexer_kv_heads=1, indexer_head_dim=18, indexer_budget=24, indexer_compress_ratio=4,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.25}, **moe.COMMON))


class Margins(moe.Margins):
    """The closest choice of routers, and of indexes of blocks."""

    def chosen(self, x, args, kwargs, out):
        hidden, (cos, sin) = args[0], args[1]
        n, d, r = hidden.shape[1], x.index_head_dim, x.compress_ratio
        q, k = x.index_qk_proj(hidden)[0].split([x.index_n_heads * d, d], dim=-1)
        q = q4.apply_rotary_pos_emb(x.q_layernorm(q.view(n, -1, d))[None], cos=cos, sin=sin, unsqueeze_dim=2)[0]
        blocks = n // r
        k = x.k_layernorm(k[: blocks * r].view(blocks, r, d).mean(dim=1))
        at = torch.arange(blocks) * r
        k = q4.apply_rotary_pos_emb(k[None, :, None], cos=cos[:, at], sin=sin[:, at], unsqueeze_dim=2)[0, :, 0]
        scores = torch.relu(torch.einsum("shd,bd->sbh", q, k)).sum(dim=-1) / math.sqrt(d)
        for row in range(n):
            if (row + 1) // r > x.block_topk:
                self.gap(scores[row : row + 1, : (row + 1) // r], x.block_topk)


moe.Margins = Margins


def mtp(config, seed):
    """The MTP tensors and a function from (streams, next ids, embedding, head) to (streams, logits)."""
    h, n = config.hidden_size, config.hc_count
    cfg = Qwen4ExpTextConfig(**{
        **config.to_dict(), "num_hidden_layers": 1, "layer_types": ["qwen_sparse_attention"], "ple_layer_ids": []})
    cfg._attn_implementation = cfg._experts_implementation = "eager"
    parts = torch.nn.ModuleDict({
        "layers": torch.nn.ModuleList([q4.Qwen4ExpTextDecoderLayer(cfg, 0)]),
        "hyper_connection_mixer": q4.Qwen4ExpTextGatedResidual(cfg, use_combine=False),
        "fc_embedding": torch.nn.Linear(h, h, bias=False), "fc_hidden": torch.nn.Linear(h, h, bias=False),
        "pre_fc_norm_embedding": q4.Qwen4ExpTextRMSNorm(h, eps=config.rms_norm_eps),
        "pre_fc_norm_hidden": q4.Qwen4ExpTextRMSNorm(n * h, eps=config.rms_norm_eps),
    })
    randomise(parts, seed)
    margins, rotary = Margins(parts), q4.Qwen4ExpTextRotaryEmbedding(cfg)

    def run(hidden, ids, embed, head):
        e = parts["fc_embedding"](parts["pre_fc_norm_embedding"](embed(ids)))
        z = parts["fc_hidden"](parts["pre_fc_norm_hidden"](hidden).unflatten(-1, (n, h))) + e.unsqueeze(-2)
        rows = ids.shape[1]
        pos = torch.arange(rows)[None, None].expand(3, 1, rows)
        mask = torch.full((rows, rows), torch.finfo(torch.float32).min).triu(1)[None, None]
        z = parts["layers"][0](z.flatten(-2), position_embeddings=rotary(e, pos), attention_mask=mask)
        return z, head(parts["hyper_connection_mixer"](z))

    return {"mtp." + k: v for k, v in parts.state_dict().items()}, run, margins


def shard(tensors, parts):
    """The n-gram tables in shards."""
    out = {}
    for name, v in tensors.items():
        if not name.endswith("ngram_embedding.weight"):
            out[name] = v
            continue
        for i, w in enumerate(v.chunk(parts)):
            out[name[: -len("weight")] + f"shard_{i}.weight"] = w
    return out


def attempt(make, _, seed):
    model = make()
    model.config._experts_implementation = model.config._attn_implementation = "eager"
    randomise(model, seed)
    model.eval()
    margins = [Margins(model)]
    draw = torch.Generator().manual_seed(seed + 1)
    ids = torch.randint(4, model.config.vocab_size, (1, LENGTH), generator=draw)
    ids[0, [5, 6, 40, 63, 64, 120]] = EOS
    ids[0, 90:100] = ids[0, 20:30]  # n-grams that occurred before
    tensors, golden, streams = {k: v.clone() for k, v in model.state_dict().items()}, {}, []
    hook = model.model.hyper_connection_mixer.register_forward_pre_hook(lambda _, args: streams.append(args[0]))
    with torch.no_grad():
        golden["logits"] = model(input_ids=ids, use_cache=False).logits[0].float().contiguous()
        hook.remove()
        extra, run, seen = mtp(model.config, seed + 2)
        golden["mtp_logits"], golden["mtp_chain"] = moe.chain(
            run, streams[0][:, :-1], ids[:, 1:], model.model.embed_tokens, model.lm_head)
        tensors.update({k: v.clone() for k, v in extra.items()})
        least = min(m.least for m in [*margins, seen])
        golden["logits_bf16"] = model.to(torch.bfloat16)(input_ids=ids, use_cache=False).logits[0].float().contiguous()
    golden["ids"] = ids[0].to(torch.int32)
    return model, shard(tensors, model.config.split_ngram_parts), golden, least


moe.attempt = attempt
FAMILIES = {"qwen4_exp": lambda: moe.store("qwen4_exp", qwen4_exp, 31, stacked=True, extra={"mtp_num_hidden_layers": 1})}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or FAMILIES:
        FAMILIES[name]()
