"""Makes the golden files of draft heads that the model tests compare with.

Each head is tiny, of random weights (rounded to BF16, so that every backend reads the
same numbers), over the target in ./qwen3_5, whose embedding and LM head it uses. It is
run here by its paper's equations in torch, float32, one row after the other without
caches, over made-up hidden states of the target. Written are the head as it is
published (config.json, model.safetensors) and golden.safetensors with inputs and
outputs.

    pip install torch safetensors
    python make_head_goldens.py       # writes ./heads/<name>/
"""

import json
import os

import torch
from safetensors.torch import load_file, save_file

HIDDEN, VOCAB, HEADS, KV, DIM, INTER, EPS, THETA = 48, 144, 4, 2, 16, 64, 1e-6, 1e4
LAYER = {"hidden_size": HIDDEN, "intermediate_size": INTER, "num_attention_heads": HEADS, "num_key_value_heads": KV,
         "head_dim": DIM, "vocab_size": VOCAB, "max_position_embeddings": 512, "rms_norm_eps": EPS, "rope_theta": THETA,
         "hidden_act": "silu", "attention_bias": False}


def bf16(x):
    return x.to(torch.bfloat16).float()


class Maker:
    """Makes up tensors by name and remembers them."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.w = {}

    def matrix(self, name, rows, cols, scale=1.3):
        self.w[name] = bf16(torch.randn(rows, cols, generator=self.g) * scale / cols**0.5)

    def vector(self, name, n, mean=1.0):
        self.w[name] = bf16(mean + 0.3 * torch.randn(n, generator=self.g))

    def rows(self, n, cols):
        return bf16(torch.randn(n, cols, generator=self.g))

    def attention(self, prefix, qk_norm):
        for name, rows, cols in (("q", HEADS * DIM, HIDDEN), ("k", KV * DIM, HIDDEN), ("v", KV * DIM, HIDDEN), ("o", HIDDEN, HEADS * DIM)):
            self.matrix(f"{prefix}self_attn.{name}_proj.weight", rows, cols)
        if qk_norm:
            self.vector(prefix + "self_attn.q_norm.weight", DIM)
            self.vector(prefix + "self_attn.k_norm.weight", DIM)

    def mlp(self, prefix):
        self.matrix(prefix + "mlp.gate_proj.weight", INTER, HIDDEN)
        self.matrix(prefix + "mlp.up_proj.weight", INTER, HIDDEN)
        self.matrix(prefix + "mlp.down_proj.weight", HIDDEN, INTER)


def norm(x, w):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS) * w


def rotate(x, pos):
    half = DIM // 2
    angle = pos * THETA ** (-torch.arange(half, dtype=torch.float32) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def attend(q, keys, values):
    """One row: q [HEADS, DIM] over keys and values [n, KV, DIM]."""
    k = keys.repeat_interleave(HEADS // KV, 1)
    v = values.repeat_interleave(HEADS // KV, 1)
    weights = torch.softmax(torch.einsum("hd,nhd->hn", q, k) / DIM**0.5, -1)
    return torch.einsum("hn,nhd->hd", weights, v).reshape(-1)


def mlp(w, prefix, x):
    gate = torch.nn.functional.silu(w[prefix + "mlp.gate_proj.weight"] @ x)
    return w[prefix + "mlp.down_proj.weight"] @ (gate * (w[prefix + "mlp.up_proj.weight"] @ x))


def save(name, config, maker, golden, ints=None):
    path = os.path.join("heads", name)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")
    tensors = {k: v.to(torch.bfloat16) for k, v in maker.w.items()}
    tensors.update(ints or {})
    save_file(tensors, os.path.join(path, "model.safetensors"))
    save_file({k: v.contiguous() for k, v in golden.items()}, os.path.join(path, "golden.safetensors"), {"made_by": "make_head_goldens.py"})


def backbone(w, taps, block):
    """DFlash: hidden states of a block behind the target's taps."""
    context = [norm(w["fc.weight"] @ t, w["hidden_norm.weight"]) for t in taps]
    x = [EMBED[t] for t in block]
    for i in range(2):
        p = f"layers.{i}."
        a = p + "self_attn."
        keys, values = [], []

        def add(row):
            k = norm((w[a + "k_proj.weight"] @ row).view(KV, DIM), w[a + "k_norm.weight"])
            keys.append(rotate(k, len(keys)))
            values.append((w[a + "v_proj.weight"] @ row).view(KV, DIM))

        for c in context:
            add(c)
        for r, row in enumerate(x):
            y = norm(row, w[p + "input_layernorm.weight"])
            add(y)
            q = rotate(norm((w[a + "q_proj.weight"] @ y).view(HEADS, DIM), w[a + "q_norm.weight"]), len(context) + r)
            z = row + w[a + "o_proj.weight"] @ attend(q, torch.stack(keys), torch.stack(values))
            x[r] = z + mlp(w, p, norm(z, w[p + "post_attention_layernorm.weight"]))
    return [norm(row, w["norm.weight"]) for row in x]


def dspark(name, seed, anchor):
    """Anchor: the reference layout. Else that of the speculators library, filling in,
    over a vocabulary of its own, with a confidence that reads the hidden state alone."""
    m, rank, size, last, mask = Maker(seed), 8, 5, 17, VOCAB - 1
    vocab = VOCAB if anchor else 40
    m.matrix("fc.weight", HIDDEN, 2 * HIDDEN)
    m.vector("hidden_norm.weight", HIDDEN)
    m.vector("norm.weight", HIDDEN)
    for i in range(2):
        m.vector(f"layers.{i}.input_layernorm.weight", HIDDEN)
        m.vector(f"layers.{i}.post_attention_layernorm.weight", HIDDEN)
        m.attention(f"layers.{i}.", True)
        m.mlp(f"layers.{i}.")
    m.matrix("markov_head.markov_w1.weight", VOCAB, rank, 3)
    m.matrix("markov_head.markov_w2.weight", vocab, rank, 3)
    m.matrix("confidence_head.proj.weight", 1, HIDDEN + (rank if anchor else 0))
    head, ids, ints = HEAD, list(range(VOCAB)), {}
    if anchor:
        m.vector("confidence_head.proj.bias", 1, 0.5)
    else:
        m.matrix("lm_head.weight", vocab, HIDDEN)
        head, ids = m.w["lm_head.weight"], [3 * i + 1 for i in range(vocab)]
        ints["d2t"] = torch.tensor([t - i for i, t in enumerate(ids)], dtype=torch.int64)
    taps = m.rows(7, 2 * HIDDEN)
    hidden = backbone(m.w, taps, [last] + [mask] * (size - 1))
    before, drafts, logits, sure = last, [], [], []
    for h in hidden if anchor else hidden[1:]:
        e = m.w["markov_head.markov_w1.weight"][before]
        row = head @ h + m.w["markov_head.markov_w2.weight"] @ e
        c = m.w["confidence_head.proj.weight"][0] @ (torch.cat([h, e]) if anchor else h)
        sure.append(torch.sigmoid(c + (m.w["confidence_head.proj.bias"][0] if anchor else 0)))
        before = ids[int(row.argmax())]
        drafts.append(before)
        logits.append(row)
    if anchor:
        config = {"architectures": ["Qwen3DSparkModel"], "model_type": "qwen3", "num_hidden_layers": 2, **LAYER, "block_size": size,
                  "mask_token_id": mask, "target_layer_ids": [0, 2], "causal": True, "markov_rank": rank, "markov_head_type": "vanilla"}
    else:
        config = {"architectures": ["DSparkDraftModel"], "speculators_model_type": "dspark", "block_size": size, "mask_token_id": mask,
                  "aux_hidden_state_layer_ids": [1, 3], "causal": True, "markov_rank": rank, "draft_vocab_size": vocab,
                  "confidence_head_with_markov": False, "transformer_layer_config": {"model_type": "qwen3", "num_hidden_layers": 2, **LAYER}}
    save(name, config, m, {"taps": taps, "last": torch.tensor([last], dtype=torch.int32), "drafts": torch.tensor(drafts, dtype=torch.int32),
                           "logits": torch.stack(logits), "sure": torch.stack(sure)}, ints)


def eagle(name, seed):
    """EAGLE-1: five rows of hidden states of the target, then two of the head's own."""
    m = Maker(seed)
    m.matrix("fc.weight", HIDDEN, 2 * HIDDEN)
    m.vector("fc.bias", HIDDEN, 0)
    m.attention("layers.0.", False)
    m.vector("layers.0.post_attention_layernorm.weight", HIDDEN)
    m.mlp("layers.0.")
    w, keys, values = m.w, [], []
    features, tokens = m.rows(5, HIDDEN), [7, 100, 7, 31, 2]

    def step(h, token):
        pos = 1 + len(keys)  # slot 0 has no pair
        x = w["fc.weight"] @ torch.cat([EMBED[token], h]) + w["fc.bias"]
        p = "layers.0.self_attn."
        keys.append(rotate((w[p + "k_proj.weight"] @ x).view(KV, DIM), pos))
        values.append((w[p + "v_proj.weight"] @ x).view(KV, DIM))
        q = rotate((w[p + "q_proj.weight"] @ x).view(HEADS, DIM), pos)
        x = x + w[p + "o_proj.weight"] @ attend(q, torch.stack(keys), torch.stack(values))
        return x + mlp(w, "layers.0.", norm(x, w["layers.0.post_attention_layernorm.weight"]))

    logits = []
    for h, token in zip(features, tokens):
        out = step(h, token)
        logits.append(HEAD @ out)
    for _ in range(2):
        tokens.append(int(logits[-1].argmax()))
        out = step(out, tokens[-1])
        logits.append(HEAD @ out)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1, **LAYER, "bias": True}
    save(name, config, m, {"features": features, "tokens": torch.tensor(tokens, dtype=torch.int32), "logits": torch.stack(logits)})


target = load_file("qwen3_5/model.safetensors")
EMBED = target["model.embed_tokens.weight"].float()
HEAD = target["lm_head.weight"].float()
dspark("dspark", 1, True)
dspark("dspark_fill", 2, False)
eagle("eagle", 3)
