"""Makes the golden files that the model tests compare with.

For each family a tiny random model (weights rounded to BF16, so that every
backend reads the same numbers) is run by Hugging Face transformers in float32
on the CPU over one sequence that crosses two windows of 64; the ids and all
logits rows are stored beside the checkpoint, and, as the measure of what BF16
costs, those of transformers' own BF16 run. transformers has no MTP module for
Qwen3.5, so that golden is the module's equations around transformers' own
decoder layer: pair (final hidden p, token p+1) -> logits two tokens on.

    pip install torch transformers safetensors numpy
    python make_goldens.py            # writes ./<name>/{config.json,model.safetensors,golden.safetensors}

The versions used are in each golden file's metadata.
"""

import json
import os
import sys

import numpy
import torch
import transformers
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3_5 import modeling_qwen3_5 as q35
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig

LENGTH = 150
VERSIONS = {
    "made_by": "make_goldens.py",
    "transformers": transformers.__version__,
    "torch": torch.__version__,
    "numpy": numpy.__version__,
    "python": sys.version.split()[0],
}


def llama(tied, scaling):
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    if scaling:
        rope = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    return LlamaForCausalLM(LlamaConfig(
        hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
        head_dim=16, vocab_size=160, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=tied,
        rope_parameters=rope, bos_token_id=None, eos_token_id=3, pad_token_id=None))


def qwen3():
    return Qwen3ForCausalLM(Qwen3Config(
        hidden_size=48, intermediate_size=72, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        head_dim=24, vocab_size=130, max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6}, bos_token_id=None, eos_token_id=3, pad_token_id=None))


def qwen3_5():
    return q35.Qwen3_5ForCausalLM(Qwen3_5TextConfig(
        hidden_size=48, intermediate_size=80, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, vocab_size=144, max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=False,
        linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_value_head_dim=32, linear_num_key_heads=2,
        linear_num_value_heads=4, rope_parameters={"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.25},
        bos_token_id=None, eos_token_id=3, pad_token_id=None))


def randomise(module, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(module.named_parameters()):
            if name.endswith("A_log"):
                v = torch.empty(p.shape).uniform_(0.0, 2.0, generator=g)
            elif name.endswith("dt_bias"):
                v = torch.empty(p.shape).uniform_(-3.0, 0.0, generator=g)
            elif "norm" in name:
                v = p + 0.3 * torch.randn(p.shape, generator=g)
            elif "conv1d" in name:
                v = 0.5 * torch.randn(p.shape, generator=g)
            else:
                v = torch.randn(p.shape, generator=g) / (p.shape[-1] ** 0.5) * 1.3
            p.copy_(v.to(torch.bfloat16).float())


def mtp_module(config, seed):
    """The MTP tensors and a function from (hidden, next ids, embedding, head) to logits."""
    cfg = Qwen3_5TextConfig(**{**config.to_dict(), "num_hidden_layers": 1, "layer_types": ["full_attention"]})
    cfg._attn_implementation = "eager"
    layer = q35.Qwen3_5DecoderLayer(cfg, 0)
    h, eps = config.hidden_size, config.rms_norm_eps
    norms = {n: q35.Qwen3_5RMSNorm(h, eps=eps) for n in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")}
    fc = torch.nn.Linear(2 * h, h, bias=False)
    module = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([layer]), "fc": fc, **norms})
    randomise(module, seed)
    rotary = q35.Qwen3_5TextRotaryEmbedding(cfg)

    def run(hidden, ids, embed, head):
        e = norms["pre_fc_norm_embedding"](embed(ids))
        z = fc(torch.cat([e, norms["pre_fc_norm_hidden"](hidden)], dim=-1))
        n = ids.shape[1]
        pos = torch.arange(n)[None]
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        z = layer(z, position_embeddings=rotary(z, pos[None].expand(3, 1, n)), attention_mask=mask, position_ids=pos)
        z = z[0] if isinstance(z, tuple) else z
        return head(norms["norm"](z))

    return {"mtp." + k: v for k, v in module.state_dict().items()}, run


def store(name, model, seed, mtp=False):
    os.makedirs(name, exist_ok=True)
    randomise(model, seed)
    model.eval()
    ids = torch.randint(4, model.config.vocab_size, (1, LENGTH), generator=torch.Generator().manual_seed(seed + 1))
    tensors = {k: v for k, v in model.state_dict().items()}
    golden = {}
    with torch.no_grad():
        out = model(input_ids=ids, output_hidden_states=True)
        golden["logits"] = out.logits[0].float().contiguous()
        if mtp:
            hidden = model.model(input_ids=ids).last_hidden_state
            extra, run = mtp_module(model.config, seed + 2)
            golden["mtp_logits"] = run(hidden[:, :-1], ids[:, 1:], model.model.embed_tokens, model.lm_head)[0].contiguous()
            tensors.update(extra)
        tensors = {k: v.clone() for k, v in tensors.items()}
        golden["logits_bf16"] = model.to(torch.bfloat16)(input_ids=ids).logits[0].float().contiguous()
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    golden["ids"] = ids[0].to(torch.int32)
    config = model.config.to_dict()
    config["architectures"] = [type(model).__name__]
    if mtp:
        config["mtp_num_hidden_layers"] = 1
    with open(os.path.join(name, "config.json"), "w") as f:
        json.dump(config, f, indent=1, sort_keys=True, default=str)
    keep = ("A_log",)
    save_file({k: (v.float() if k.endswith(keep) else v.to(torch.bfloat16)).contiguous() for k, v in tensors.items()},
              os.path.join(name, "model.safetensors"), metadata={"format": "pt"})
    save_file(golden, os.path.join(name, "golden.safetensors"), metadata={**VERSIONS, "seed": str(seed)})
    print(name, {k: tuple(v.shape) for k, v in golden.items()})


if __name__ == "__main__":
    torch.set_num_threads(1)
    store("llama", llama(False, False), 11)
    store("llama3_scaled", llama(True, True), 12)
    store("qwen3", qwen3(), 13)
    store("qwen3_5", qwen3_5(), 14, mtp=True)
