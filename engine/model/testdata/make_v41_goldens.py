"""Makes the golden files of DeepSeek-V4.1, which the installed transformers lacks.

The model's equations in NumPy, in float64 and all positions at once, over tiny random
weights; the same with each step rounded to BF16 is the measure of what BF16 costs.
Tensors and the configuration are named as the publisher names them. The tokens that are
alike are found with Hugging Face's tokenizers, the hashes' multipliers with NumPy's own
generator. Drafts are those of the DSpark module behind some positions, token after token.

There are two models: deepseek_v41 in BF16, with awkward widths, and deepseek_v41_published
as the publisher stores it: a text model within a multimodal one, FP8 in blocks of 32 by
32, FP4 experts, and n-gram tables in FP8 with a scale for each 32 elements of a row.

The first seed is taken for which no choice of a router or of an index is closer than
1e-5.

    python make_v41_goldens.py
"""

import json
import os
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, normalizers
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

SEED, LENGTH, MARGIN = 41, 150, 1e-5
BASE = dict(
    model_type="deepseek_v41_text", architectures=["DeepseekV41ForCausalLM"], hidden_size=40, num_hidden_layers=6, num_attention_heads=6,
    head_dim=64, q_lora_rank=22, qk_rope_head_dim=10, o_groups=3, o_lora_rank=14, vocab_size=138, rms_norm_eps=1e-20,
    tie_word_embeddings=False, max_position_embeddings=512, sliding_window=19, compress_ratios=[0, 2, 2, 1, 1, 1, 0, 0],
    kv_source_layer_ids=[1, 3], index_source_layer_ids=[1, 3, 4], candidate_source_layer_id=3, candidate_topk_blocks=6,
    candidate_block_size=4, index_n_heads=14, index_head_dim=32, index_topk=9, hc_mult=3, hc_sinkhorn_iters=4, hc_eps=1e-4,
    n_routed_experts=11, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=18, routed_scaling_factor=1.7,
    norm_topk_prob=True, scoring_func="sqrtsoftplus", topk_method="noaux_tc", swiglu_limit=0.9, rope_theta=1e4, compress_rope_theta=4e4,
    rope_scaling={"rope_type": "yarn", "factor": 6.0, "original_max_position_embeddings": 48, "beta_fast": 32, "beta_slow": 1},
    num_key_value_heads=1, hidden_act="silu", bos_token_id=0, eos_token_id=3,
    engram_layer_ids=[1, 4], engram_max_ngram_size=4, engram_n_heads=2, engram_head_dim=14, engram_vocab_size=50, engram_pad_token_id=2,
    num_nextn_predict_layers=2, dspark_block_size=4, dspark_noise_token_id=131, dspark_target_layer_ids=[2, 5], dspark_markov_rank=6,
    dspark_n_routed_experts=7, dspark_num_experts_per_tok=2)
# Widths of groups of 32, of which FP4 has whole ones.
PUBLISHED = BASE | dict(hidden_size=64, moe_intermediate_size=32, engram_head_dim=32, n_routed_experts=5, num_attention_heads=4, o_groups=2)
DRAFTS = [1, 6, 60, 149]  # positions of the token behind which drafts are made


def use(config):
    """Makes a configuration the one of all functions."""
    global C, H, D, R, N, NI, DI, STREAMS, EPS, ALIKE, PRIMES
    C = dict(config)
    H, D, R, N, NI, DI = C["hidden_size"], C["head_dim"], C["qk_rope_head_dim"], C["num_attention_heads"], C["index_n_heads"], C["index_head_dim"]
    STREAMS, EPS = C["hc_mult"], C["rms_norm_eps"]
    ALIKE, C["engram_compressed_vocab_size"] = alike(tokens())
    ALIKE += [ALIKE[C["engram_pad_token_id"]]] * (C["vocab_size"] - len(ALIKE))
    columns, p, PRIMES = (C["engram_max_ngram_size"] - 1) * C["engram_n_heads"], C["engram_vocab_size"], []
    for _ in C["engram_layer_ids"]:
        mine = []
        while len(mine) < columns:
            if all(p % d for d in range(2, int(p**0.5) + 1)):
                mine.append(p)
            p += 1
        PRIMES.append(mine)
    C["engram_num_embeddings"] = [sum(x) for x in PRIMES]


def tokens():
    """A vocabulary with tokens that are alike: case, accents, blanks, forms of a letter,
    and parts of a letter, which are not."""
    words = ["The", "the", " the", " The", "THE", "\t", "\n", " ", "  ", "\r\n", "caf\u00e9", "cafe", "CAFE\u0301", "\ufb01", "fi", "\uff12", "2", "\u00a0", "\u0130", "i",
             "\u00df", "ss", "a  b", "a b", "\u4e2d", "\u4e2d ", "\u0301", "\ue000", "\u212b", "\u00e5", "a"]
    words += [chr(c) for c in range(33, 33 + 60)] + ["w%d" % i for i in range(34)]
    special = ["<s>", "<unk>", "<pad>", "</s>"]
    byte = ByteLevel.alphabet()
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table = {b: chr(b) for b in keep}
    table |= {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in table)}
    assert set(table.values()) == set(byte)
    spell = lambda raw: "".join(table[b] for b in raw)
    vocab = {}
    for w in special:
        vocab[w] = len(vocab)
    for w in [spell(w.encode()) for w in words] + [spell(bytes([b])) for b in (0xC3, 0xA9, 0xE4, 0xB8)]:
        vocab.setdefault(w, len(vocab))
    t = Tokenizer(BPE(vocab, []))
    t.pre_tokenizer, t.decoder = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.add_special_tokens(special)
    assert len(vocab) < C["vocab_size"], len(vocab)
    return t


def alike(t):
    n = normalizers.Sequence([
        normalizers.NFKC(), normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Replace(Regex(r"[ \t\r\n]+"), " "),
        normalizers.Replace(Regex(r"^ $"), "\ue000"), normalizers.Strip(), normalizers.Replace("\ue000", " ")])
    numbers, out = {}, []
    for i in range(t.get_vocab_size()):
        text = t.decode([i], skip_special_tokens=False)
        key = t.id_to_token(i) if "\ufffd" in text else n.normalize_str(text) or text
        out.append(numbers.setdefault(key, len(numbers)))
    return out, len(numbers)


def bf16(x):
    return torch.from_numpy(np.asarray(x, np.float32)).to(torch.bfloat16).double().numpy()


def shapes():
    s = {"embed.weight": (C["vocab_size"], H), "head.weight": (C["vocab_size"], H), "norm.weight": (H,)}
    mix = STREAMS * (2 + STREAMS)
    width = (C["engram_max_ngram_size"] - 1) * C["engram_n_heads"] * C["engram_head_dim"]
    for i, rows in zip(C["engram_layer_ids"], C["engram_num_embeddings"]):
        p = f"layers.{i}.engram."
        s |= {p + "embed.weight": (rows, C["engram_head_dim"]), p + "wkv.weight": ((STREAMS + 1) * H, width), p + "q_weight": (STREAMS, H), p + "k_weight": (STREAMS, H)}
    stages = C["num_nextn_predict_layers"]
    last, rank = f"mtp.{stages - 1}.", C["dspark_markov_rank"]
    s |= {"mtp.0.main_proj.weight": (H, len(C["dspark_target_layer_ids"]) * H), "mtp.0.main_norm.weight": (H,), last + "norm.weight": (H,),
          last + "markov_head.embed.weight": (C["vocab_size"], rank), last + "markov_head.head.weight": (C["vocab_size"], rank),
          last + "confidence_head.proj.weight": (1, H + rank)}
    for i in range(C["num_hidden_layers"] + stages):
        draft = i >= C["num_hidden_layers"]
        p = f"mtp.{i - C['num_hidden_layers']}." if draft else f"layers.{i}."
        experts = C["dspark_n_routed_experts"] if draft else C["n_routed_experts"]
        s |= {p + "attn_norm.weight": (H,), p + "ffn_norm.weight": (H,)}
        for site in ("attn", "ffn"):
            s |= {p + f"hc_{site}_fn": (mix, STREAMS * H), p + f"hc_{site}_base": (mix,), p + f"hc_{site}_scale": (3,)}
        a, q, o = p + "attn.", C["q_lora_rank"], C["o_lora_rank"]
        s |= {a + "wq_a.weight": (q, H), a + "q_norm.weight": (q,), a + "wq_b.weight": (N * D, q), a + "wkv.weight": (D, H),
              a + "kv_norm.weight": (D,), a + "wo_a.weight": (C["o_groups"] * o, N * D // C["o_groups"]),
              a + "wo_b.weight": (H, C["o_groups"] * o), a + "attn_sink": (N,)}
        if i in C["kv_source_layer_ids"]:
            s |= {a + "compressor.wkv.weight": (D, H), a + "compressor.norm.weight": (D,), a + "indexer.wk.weight": (DI, D), a + "indexer.k_norm.weight": (DI,)}
            if C["compress_ratios"][i] > 1:
                s[a + "compressor.wgate.weight"] = (D, H)
        if i in C["index_source_layer_ids"]:
            s |= {a + "indexer.wq_b.weight": (NI * DI, q), a + "indexer.weights_proj.weight": (NI, H)}
        f, e = p + "ffn.", C["moe_intermediate_size"]
        s |= {f + "gate.weight": (experts, H), f + "gate.bias": (experts,)}
        for x in [f"experts.{j}." for j in range(experts)] + ["shared_experts."]:
            s |= {f + x + "w1.weight": (e, H), f + x + "w3.weight": (e, H), f + x + "w2.weight": (H, e)}
    return s


def weights(seed):
    g, out = np.random.default_rng(seed), {}
    for name, shape in shapes().items():
        x = g.standard_normal(shape)
        if "norm" in name or name.endswith(("q_weight", "k_weight")):
            x = 1 + 0.3 * x
        elif name.endswith(("_base", "attn_sink")):
            x = 0.8 * x
        elif name.endswith("_scale"):
            x = 1 + 0.3 * x
        elif name.endswith("gate.bias"):
            x = 0.1 * x
        else:
            # What sub-layers add is small beside the streams: else a key that is rounded
            # to the other side changes all that follows, and BF16 says nothing.
            x = (0.4 if "wo_b" in name or ".w2." in name or "engram.wkv" in name else 1.3) * x / shape[-1] ** 0.5
        out[name] = bf16(x)
    return out


def frequencies(theta, yarn):
    i = np.arange(R // 2)
    f = theta ** (-2.0 * i / R)
    if yarn:
        y = C["rope_scaling"]
        border = lambda turns: R * np.log(y["original_max_position_embeddings"] / (turns * 2 * np.pi)) / (2 * np.log(theta))
        lo, hi = max(np.floor(border(y["beta_fast"])), 0), min(np.ceil(border(y["beta_slow"])), R - 1)
        ramp = np.clip((i - lo) / (hi - lo if hi != lo else 0.001), 0, 1)
        f = f / y["factor"] * ramp + f * (1 - ramp)
    return f


def rope(x, pos, freq, back=False):
    """x [T, heads, d]: the last R channels in pairs (2i, 2i+1)."""
    a = pos[:, None] * freq[None]
    cos, sin = np.cos(a).astype(np.float32).astype(float)[:, None], np.sin(a).astype(np.float32).astype(float)[:, None]
    if back:
        sin = -sin
    even, odd = x[..., -R::2], x[..., -R + 1 :: 2]
    out = x.copy()
    out[..., -R::2], out[..., -R + 1 :: 2] = even * cos - odd * sin, odd * cos + even * sin
    return out


def grid(v, least, digits):
    e = np.maximum(np.floor(np.log2(np.maximum(np.abs(v), 1e-300))), least)
    step = 2.0 ** (e - digits)
    return np.round(v / step) * step


def quantise(x, block, kind):
    b = x.reshape(*x.shape[:-1], -1, block)
    top = np.abs(b).max(-1, keepdims=True)
    if kind == "fp8":
        s = 2.0 ** np.ceil(np.log2(np.maximum(top, 1e-4) / 448))
        return (grid(np.clip(b / s, -448, 448), -6, 3) * s).reshape(x.shape)
    s = 2.0 ** np.ceil(np.log2(np.maximum(top, 6 * 2.0**-126) / 6)) if kind == "fp4" else grid(np.maximum(top, 6 * 2.0**-9) / 6, -6, 3)
    return (grid(np.clip(b / s, -6, 6), 0, 1) * s).reshape(x.shape)


def rms(x, w, r):
    return r(x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Model:
    def __init__(self, w, r):
        self.w, self.r, self.least = w, r, np.inf
        self.main, self.groups = frequencies(C["rope_theta"], False), frequencies(C["compress_rope_theta"], True)

    def gap(self, values, k):
        if len(values) > k:
            v = np.sort(values)[::-1]
            self.least = min(self.least, v[k - 1] - v[k])

    def mixes(self, X, p):
        f = X.reshape(len(X), -1)
        f = f / np.sqrt((f * f).mean(-1, keepdims=True) + EPS)
        m, n, sc, b, e = f @ self.w[p + "fn"].T, STREAMS, self.w[p + "scale"], self.w[p + "base"], C["hc_eps"]
        pre, post = sigmoid(m[:, :n] * sc[0] + b[:n]) + e, 2 * sigmoid(m[:, n : 2 * n] * sc[1] + b[n : 2 * n])
        comb = softmax((m[:, 2 * n :] * sc[2] + b[2 * n :]).reshape(-1, n, n)) + e
        comb = comb / (comb.sum(1, keepdims=True) + e)
        for _ in range(C["hc_sinkhorn_iters"] - 1):
            comb = comb / (comb.sum(2, keepdims=True) + e)
            comb = comb / (comb.sum(1, keepdims=True) + e)
        return pre, post, comb

    def choose(self, i, x, cq, pos, ratio):
        w, r, a = self.w, self.r, f"layers.{i}.attn.indexer."
        q = quantise(r(rope(r(cq @ w[a + "wq_b.weight"].T).reshape(-1, NI, DI), pos, self.groups)), 32, "fp4")
        score = (np.maximum(np.einsum("thd,gd->thg", q, self.index), 0) * DI**-0.5 * (r(x @ w[a + "weights_proj.weight"].T) * NI**-0.5)[..., None]).sum(1)
        mask = np.zeros_like(score, bool)
        best = np.zeros_like(score, bool)
        size = C["candidate_block_size"]
        for t in range(len(pos)):
            n = (t + 1) // ratio
            s = score[t, :n]
            if i == C["candidate_source_layer_id"] and n:
                v = np.array([s[b : b + size].max() for b in range(0, n, size)])
                v[-1] = np.inf
                order = np.argsort(-v, kind="stable")[: C["candidate_topk_blocks"]]
                self.gap(v, C["candidate_topk_blocks"])
                for b in order:
                    best[t, b * size : min((b + 1) * size, n)] = True
            if 0 <= C["candidate_source_layer_id"] < i:
                s = np.where(self.best[t, :n], s, -np.inf)
            self.gap(s[np.isfinite(s)], C["index_topk"])
            order = [g for g in np.argsort(-s, kind="stable")[: C["index_topk"]] if np.isfinite(s[g])]
            mask[t, order] = True
        if i == C["candidate_source_layer_id"]:
            self.best = best
        return mask

    def keys_of(self, a, x, pos, freq):
        w, r = self.w, self.r
        return quantise(r(rope(rms(r(x @ w[a + "wkv.weight"].T), w[a + "kv_norm.weight"], r)[:, None], pos, freq))[:, 0], 32, "fp8")

    def query(self, a, x, pos, freq):
        w, r = self.w, self.r
        cq = rms(r(x @ w[a + "wq_a.weight"].T), w[a + "q_norm.weight"], r)
        return cq, r(rope(r(cq @ w[a + "wq_b.weight"].T).reshape(len(x), N, D), pos, freq))

    def attend(self, a, q, keys, seen, pos, freq):
        w, r, T = self.w, self.r, len(q)
        score = np.where(seen[:, None], np.einsum("thd,kd->thk", q, keys) * D**-0.5, -np.inf)
        sink = np.broadcast_to(w[a + "attn_sink"][None, :, None], (T, N, 1))
        p = r(softmax(np.concatenate([score, sink], axis=-1))[..., :-1])
        o = r(rope(r(np.einsum("thk,kd->thd", p, keys)), pos, freq, back=True)).reshape(T, C["o_groups"], -1)
        g = w[a + "wo_a.weight"].reshape(C["o_groups"], C["o_lora_rank"], -1)
        return r(r(np.einsum("tgi,goi->tgo", o, g)).reshape(T, -1) @ w[a + "wo_b.weight"].T)

    def attention(self, i, x):
        w, r, a, T = self.w, self.r, f"layers.{i}.attn.", len(x)
        pos, ratio = np.arange(T), C["compress_ratios"][i]
        freq = self.groups if ratio else self.main
        cq, q = self.query(a, x, pos, freq)
        kv = self.keys_of(a, x, pos, freq)
        if i in C["kv_source_layer_ids"]:
            n = T // ratio
            latent = x @ w[a + "compressor.wkv.weight"].T
            if ratio > 1:
                gate = (x @ w[a + "compressor.wgate.weight"].T)[: n * ratio].reshape(n, ratio, D)
                latent = (latent[: n * ratio].reshape(n, ratio, D) * softmax(gate.transpose(0, 2, 1)).transpose(0, 2, 1)).sum(1)
            latent = rms(r(latent), w[a + "compressor.norm.weight"], r)
            at = np.arange(n) * ratio
            index = rms(r(latent @ w[a + "indexer.wk.weight"].T), w[a + "indexer.k_norm.weight"], r)
            self.index = quantise(r(rope(index[:, None], at, self.groups))[:, 0], 32, "fp4")
            self.keys = quantise(r(rope(latent[:, None], at, self.groups))[:, 0], 16, "fine")
        if i in C["index_source_layer_ids"]:
            self.mask = self.choose(i, x, cq, pos, ratio)
        seen = (pos[None] <= pos[:, None]) & (pos[None] > pos[:, None] - C["sliding_window"])
        keys = kv
        if ratio:
            keys, seen = np.concatenate([kv, self.keys]), np.concatenate([seen, self.mask], axis=1)
        return self.attend(a, q, keys, seen, pos, freq)

    def engram(self, i, X, ids):
        """Adds to the streams what the n-grams that end in each token stand for."""
        w, r, p = self.w, self.r, f"layers.{i}.engram."
        nth, size, heads = C["engram_layer_ids"].index(i), C["engram_max_ngram_size"], C["engram_n_heads"]
        bound = (2**63 - 1) // C["engram_compressed_vocab_size"] // 2
        factors = [int(x) * 2 + 1 for x in np.random.default_rng(10007 * i).integers(0, bound, size, dtype=np.int64)]
        pad, offsets = ALIKE[C["engram_pad_token_id"]], np.cumsum([0] + PRIMES[nth][:-1])
        e = np.zeros((len(ids), (size - 1) * heads, C["engram_head_dim"]))
        for t in range(len(ids)):
            h = ALIKE[ids[t]] * factors[0]
            for n in range(2, size + 1):
                h ^= (ALIKE[ids[t - n + 1]] if t - n + 1 >= 0 else pad) * factors[n - 1]
                for j in range((n - 2) * heads, (n - 1) * heads):
                    e[t, j] = w[p + "embed.weight"][h % PRIMES[nth][j] + offsets[j]]
        kv = r(e.reshape(len(ids), -1) @ w[p + "wkv.weight"].T)
        key, value = kv[:, : STREAMS * H].reshape(-1, STREAMS, H), kv[:, STREAMS * H :]
        unit = lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS)
        d = (unit(X) * w[p + "q_weight"] * unit(key) * w[p + "k_weight"]).sum(-1) * H**-0.5
        gate = sigmoid(np.sign(d) * np.sqrt(np.maximum(np.abs(d), 1e-6)))
        return r(X + gate[..., None] * value[:, None])

    def expert(self, p, x):
        w, r, lim = self.w, self.r, C["swiglu_limit"]
        gate, up = np.minimum(r(x @ w[p + "w1.weight"].T), lim), np.clip(r(x @ w[p + "w3.weight"].T), -lim, lim)
        return gate * sigmoid(gate) * up

    def feed(self, p, x, k):
        w, r = self.w, self.r
        s = np.sqrt(np.log1p(np.exp(x @ w[p + "gate.weight"].T)))
        y = np.zeros_like(x)
        for t in range(len(x)):
            b = s[t] + w[p + "gate.bias"]
            self.gap(b, k)
            ids = np.argsort(-b, kind="stable")[:k]
            ws = s[t, ids] / (s[t, ids].sum() + 1e-20) * C["routed_scaling_factor"]
            for e, c in zip(ids, ws):
                q = f"{p}experts.{e}."
                y[t] += r(r(c * self.expert(q, x[t])) @ w[q + "w2.weight"].T)
        q = p + "shared_experts."
        return r(y + r(r(self.expert(q, x)) @ w[q + "w2.weight"].T))

    def block(self, p, X, pre, attention, k):
        w, r = self.w, self.r
        for site, norm, sub in (("attn", "attn_norm", attention), ("ffn", "ffn_norm", lambda x: self.feed(p + "ffn.", x, k))):
            mine, post, comb = self.mixes(X, p + f"hc_{site}_")
            x = r((pre[..., None] * X).sum(1))
            y = sub(rms(x, w[f"{p}{norm}.weight"], r))
            X = r(post[..., None] * y[:, None] + np.einsum("tjk,tjd->tkd", comb, X))
            pre = mine
        return X, pre

    def begin(self, ids):
        pre = np.zeros((len(ids), STREAMS))
        pre[:, 0] = 1
        return np.repeat(self.w["embed.weight"][ids][:, None], STREAMS, axis=1), pre

    def logits(self, ids):
        w, r = self.w, self.r
        X, pre = self.begin(ids)
        features = []
        for i in range(C["num_hidden_layers"]):
            if i in C["engram_layer_ids"]:
                X = self.engram(i, X, ids)
            if i in C["dspark_target_layer_ids"]:
                features.append(r(X.mean(1)))
            X, pre = self.block(f"layers.{i}.", X, pre, lambda x: self.attention(i, x), C["num_experts_per_tok"])
        self.features = np.concatenate(features, axis=-1)
        return rms(r((pre[..., None] * X).sum(1)), w["norm.weight"], r) @ w["head.weight"].T

    def drafts(self, token, at):
        """Logits of the block behind a token at a position, its drafts and their confidence."""
        w, r, size = self.w, self.r, C["dspark_block_size"]
        last = f"mtp.{C['num_nextn_predict_layers'] - 1}."
        main = rms(r(self.features[:at] @ w["mtp.0.main_proj.weight"].T), w["mtp.0.main_norm.weight"], r)
        X, pre = self.begin(np.array([token] + [C["dspark_noise_token_id"]] * (size - 1)))
        first, pos = max(0, at - C["sliding_window"]), at + np.arange(size)
        for i in range(C["num_nextn_predict_layers"]):
            a = f"mtp.{i}.attn."

            def attention(x):
                keys = np.concatenate([self.keys_of(a, main[first:], np.arange(first, at), self.main), self.keys_of(a, x, pos, self.main)])
                return self.attend(a, self.query(a, x, pos, self.main)[1], keys, np.ones((size, len(keys)), bool), pos, self.main)

            X, pre = self.block(f"mtp.{i}.", X, pre, attention, C["dspark_num_experts_per_tok"])
        hidden = r((pre[..., None] * X).sum(1))
        logits = rms(hidden, w[last + "norm.weight"], r) @ w["head.weight"].T
        chain, sure = [], []
        for i in range(size):
            e = w[last + "markov_head.embed.weight"][token]
            logits[i] += w[last + "markov_head.head.weight"] @ e
            sure.append(sigmoid(w[last + "confidence_head.proj.weight"] @ np.concatenate([hidden[i], e]))[0])
            self.gap(logits[i], 1)
            token = int(np.argmax(logits[i]))
            chain.append(token)
        return logits, chain, sure


def scales(top, most):
    """Powers of two, as E8M0, that bring values of that size to at most most."""
    return np.ceil(np.log2(np.maximum(top, 1e-30) / most)).astype(int).clip(-127, 127)


def stored(w):
    """The tensors as the publisher stores them, and the weights that they mean."""
    out, means = {}, {}
    for name, x in w.items():
        dense = any(k in name for k in (".wq_a.", ".wq_b.", "attn.wkv.", ".wo_a.", ".wo_b.", "shared_experts.", "engram.wkv", "main_proj"))
        scale = name.removesuffix("weight") + "scale"
        if ".experts." in name:
            e = scales(np.abs(x).reshape(len(x), -1, 32).max(-1), 6)
            s = 2.0 ** np.repeat(e, 32, axis=1)
            v = grid(np.clip(x / s, -6, 6), 0, 1)
            codes = np.abs(v)[..., None] == np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
            codes = codes.argmax(-1) + 8 * (v < 0)
            out[name] = torch.from_numpy((codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)).view(torch.int8)
        elif dense or "engram.embed" in name:
            rows = 32 if dense else 1
            e = np.array([[scales(np.abs(x[i : i + rows, j : j + 32]).max(), 448) for j in range(0, x.shape[1], 32)] for i in range(0, len(x), rows)])
            s = 2.0 ** np.repeat(np.repeat(e, rows, axis=0)[: len(x)], 32, axis=1)[:, : x.shape[1]]
            codes = torch.from_numpy((x / s).astype(np.float32)).to(torch.float8_e4m3fn)
            v, out[name] = codes.double().numpy(), codes
        else:
            out[name], means[name] = plain(name, x), x
            continue
        out[scale], means[name] = torch.from_numpy((e + 127).astype(np.uint8)).view(torch.float8_e8m0fnu), bf16(v * s)
    out["vision.norm.weight"], out["image_newline"], out["layers.0.ffn.gate.bias_vl"] = torch.zeros(4), torch.zeros(4), torch.zeros(C["n_routed_experts"])
    return out, means


def plain(name, x):
    wide = ("_fn", "_base", "_scale", "attn_sink", "gate.bias")
    return torch.from_numpy(x).to(torch.float32 if name.endswith(wide) else torch.bfloat16).contiguous()


def make(name, config, published):
    use(config)
    seed = SEED
    while True:
        w = weights(seed)
        tensors = {k: plain(k, v) for k, v in w.items()}
        if published:
            tensors, w = stored(w)
        ids = np.random.default_rng(seed + 1).integers(4, C["vocab_size"], LENGTH)
        m = Model(w, lambda x: x)
        logits = m.logits(ids)
        drafts = [m.drafts(ids[at], at) for at in DRAFTS]
        if m.least >= MARGIN:
            break
        print("seed", seed, "has a choice as close as", m.least)
        seed += 100
    twin = Model(w, bf16).logits(ids)
    os.makedirs(name, exist_ok=True)
    out = C
    if published:
        out = dict(model_type="deepseek_v41", architectures=["DeepseekV41ForCausalLM"], text_config=C, vision_config={"num_hidden_layers": 1}, image_token_id=5,
                   quantization_config={"quant_method": "fp8", "weight_block_size": [32, 32], "scale_fmt": "ue8m0", "fmt": "e4m3", "expert_dtype": "fp4"})
    with open(os.path.join(name, "config.json"), "w") as f:
        json.dump(out, f, indent=1, sort_keys=True)
    tokens().save(os.path.join(name, "tokenizer.json"), pretty=False)
    save_file(tensors, os.path.join(name, "model.safetensors"), metadata={"format": "pt"})
    golden = {"logits": logits, "logits_bf16": twin, "spark_logits": np.array([d[0] for d in drafts]), "spark_sure": np.array([d[2] for d in drafts])}
    golden = {k: torch.from_numpy(v.astype(np.float32)) for k, v in golden.items()}
    golden |= {k: torch.from_numpy(np.array(v, np.int32)) for k, v in (("ids", ids), ("spark_at", DRAFTS), ("spark_chain", [d[1] for d in drafts]))}
    save_file(golden, os.path.join(name, "golden.safetensors"), metadata={
        "made_by": "make_v41_goldens.py", "numpy": np.__version__, "python": sys.version.split()[0], "seed": str(seed), "margin": f"{m.least:.3g}"})
    print(name, "seed", seed, "closest choice", f"{m.least:.3g}")


def main():
    make("deepseek_v41", BASE, False)
    make("deepseek_v41_published", PUBLISHED, True)


if __name__ == "__main__":
    main()
