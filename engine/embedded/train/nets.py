"""The draft heads: modules that give, for some starts of each row, the logits of one draft after another."""

import os

import torch
import torch.nn.functional as F
from torch import nn

import model as M
from chain import Chain, compiled
from pool import DEPTH

TAPS = (4, 12, 20)
BLOCK = 8
LAYERS = 2
MASK = 4095
MEDUSA_LAYERS = 4
RANK = 64


class Norm(nn.Module):
    """Plain RMSNorm."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return M.norm(x, self.weight - 1)


class Attention(nn.Module):
    """Projections of a Llama layer, or, with norms of q and k, of a Qwen3 layer."""

    def __init__(self, cfg, width, normed):
        super().__init__()
        self.hq, self.hkv, self.d = cfg["num_attention_heads"], cfg["num_key_value_heads"], cfg["head_dim"]
        self.q_proj, self.k_proj = M.Weight(self.hq * self.d, width), M.Weight(self.hkv * self.d, width)
        self.v_proj, self.o_proj = M.Weight(self.hkv * self.d, width), M.Weight(cfg["hidden_size"], self.hq * self.d)
        if normed:
            self.q_norm, self.k_norm = Norm(self.d), Norm(self.d)

    def queries(self, x, cos, sin):
        q = self.q_proj(x).unflatten(-1, (self.hq, self.d))
        return M.rope(self.q_norm(q) if hasattr(self, "q_norm") else q, cos, sin)

    def keys(self, x, cos, sin):
        k = self.k_proj(x).unflatten(-1, (self.hkv, self.d))
        return M.rope(self.k_norm(k) if hasattr(self, "k_norm") else k, cos, sin), self.v_proj(x).unflatten(-1, (self.hkv, self.d))


class Head(nn.Module):
    """What heads share: the trunk's embedding E, and the kept tokens with their places (-1: not kept).

    drafts(x, h, tapped, starts) yields logits over the kept tokens, draft by draft: of a dense head at the starts 0 to starts-1
    of every row, of another one at those that starts [B,A] lists. sure holds, after each, the logits of the draft's being right,
    where a head says so.
    """

    dense, sure = True, None

    def __init__(self, m, cfg, kept):
        super().__init__()
        self.cfg, self.dtype = cfg, m.dtype
        E = m.model.embed_tokens.weight.detach().to(m.dtype)
        self.E, self.kept = E, kept
        self.place = torch.full((len(E),), -1, device=E.device)
        self.place[kept] = torch.arange(len(kept), device=E.device)

    def own_head(self):
        """An LM head over the kept tokens that begins as the trunk's."""
        w = M.Weight(1, 1)
        w.weight = nn.Parameter(self.E[self.kept].float())
        return w

    def tensors(self):
        """Tensors by their published names."""
        return dict(self.named_parameters())

    def begin(self, old):
        """Takes over tensors (by name) of a head trained before, as far as their shapes are those here; returns how many."""
        own, n = dict(self.named_parameters()), 0
        with torch.no_grad():
            for name, p in own.items():
                if name in old and old[name].shape == p.shape:
                    p.copy_(old[name])
                    n += 1
        return n

    def plain(self, on):
        """Runs without compiled pieces, or with them again."""


class Fused(nn.Module):
    """fc over the taps, each divided by its size, which goes into the weight when it is written."""

    def __init__(self, h, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(h, len(size) * h) * 0.02)
        with torch.no_grad():
            self.weight[:, -h:] += torch.eye(h)
        self.size = size.repeat_interleave(h)

    def forward(self, t):
        return M.linear(t, self.weight / self.size)


class MTP(Head):
    """The model's own MTP module, trained as the chain of drafts that decoding makes of it."""

    def __init__(self, m, kept, size, T, device):
        Head.__init__(self, m, None, torch.arange(m.cfg["vocab_size"], device=kept.device))
        self.mtp, self.chain = m.mtp.requires_grad_(True), Chain(m, T, device, DEPTH)

    def plain(self, on):
        self.chain.plain(on)

    def drafts(self, x, h, tapped, starts):
        for d in self.chain.run(x, h, DEPTH):
            yield M.linear(d[:, :starts], self.E)


class Midlayer(nn.Module):
    """EAGLE-3's layer: attention over [embedding ; hidden]."""

    def __init__(self, cfg):
        super().__init__()
        h = cfg["hidden_size"]
        self.input_layernorm, self.hidden_norm, self.post_attention_layernorm = Norm(h), Norm(h), Norm(h)
        self.self_attn, self.mlp = Attention(cfg, 2 * h, False), M.MLP(cfg)


class Eagle3(Chain, Head):
    """The EAGLE-3 head and, as a Chain, its drafts at every start of a row."""

    def __init__(self, m, kept, size, T, device):
        h = m.cfg["hidden_size"]
        cfg = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": h,
               "intermediate_size": m.cfg["intermediate_size"], "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
               "head_dim": 64, "hidden_act": "silu", "rms_norm_eps": M.EPS, "rope_theta": 10000.0, "vocab_size": m.cfg["vocab_size"],
               "draft_vocab_size": len(kept), "max_position_embeddings": m.cfg["max_position_embeddings"], "attention_bias": False,
               "tie_word_embeddings": False, "norm_before_residual": False, "eagle_aux_hidden_state_layer_ids": list(TAPS), "dtype": "bfloat16"}
        Head.__init__(self, m, cfg, kept)
        self.fc, self.midlayer, self.norm, self.lm_head = Fused(h, size), Midlayer(cfg), Norm(h), self.own_head()
        self.to(device)
        self.set_up(T, device, cfg | {"partial_rotary_factor": 1.0}, self.dtype, DEPTH)

    def _pre(self, ids, g, cos, sin):
        x = torch.cat([self.midlayer.input_layernorm(self.E[ids]), self.midlayer.hidden_norm(g)], -1)
        at = self.midlayer.self_attn
        return (g, at.queries(x, cos, sin), g, *at.keys(x, cos, sin))

    def _post(self, g, o, _):
        x = g + self.midlayer.self_attn.o_proj(o)
        return x + self.midlayer.mlp(self.midlayer.post_attention_layernorm(x))

    def drafts(self, x, h, tapped, starts):
        for r in self.run(x, self.fc(tapped), DEPTH):
            yield self.lm_head(self.norm(r[:, :starts]))

    def tensors(self):
        """As published: d2t is what is added to a place to get the token."""
        d2t = self.kept - torch.arange(len(self.kept), device=self.kept.device)
        return super().tensors() | {"fc.weight": self.fc.weight / self.fc.size, "d2t": d2t, "t2d": self.place >= 0}

    def begin(self, old):
        return super().begin(old | {"fc.weight": old["fc.weight"].to(self.fc.size) * self.fc.size})


class Medusa(Head):
    """Residual SiLU layers and an LM head for each of the next tokens, from the trunk's final hidden."""

    def __init__(self, m, kept, size, T, device):
        h = m.cfg["hidden_size"]
        Head.__init__(self, m, {"architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": h, "vocab_size": m.cfg["vocab_size"],
                                "truncated_vocab_size": len(kept), "num_heads": DEPTH, "num_hidden_layers": MEDUSA_LAYERS,
                                "medusa_fc_bias": False, "original_lm_head": False, "dtype": "bfloat16"}, kept)
        self.blocks = nn.ModuleList([nn.ModuleDict({"layers": nn.ModuleList([M.Weight(h, h, std=0.0 if j else 0.02) for j in range(MEDUSA_LAYERS)])})
                                     for _ in range(DEPTH)])
        self.lm_heads = nn.ModuleList([self.own_head() for _ in range(DEPTH)])
        self.to(device)

    def drafts(self, x, h, tapped, starts):
        for b, head in zip(self.blocks, self.lm_heads):
            y = h[:, :starts]
            for layer in b["layers"]:
                y = y + F.silu(layer(y).float()).to(y.dtype)
            yield head(y)

    def tensors(self):
        return super().tensors() | {"token_map": self.kept}


class BlockLayer(nn.Module):
    """A Qwen3 layer whose keys are those of the context and of the block."""

    def __init__(self, cfg):
        super().__init__()
        h = cfg["hidden_size"]
        self.input_layernorm, self.post_attention_layernorm = Norm(h), Norm(h)
        self.self_attn, self.mlp = Attention(cfg, h, True), M.MLP(cfg)

    def forward(self, x, c, own, ctx, mask):
        at, y = self.self_attn, self.input_layernorm(x)
        (k, v), (kc, vc) = at.keys(y, *own), at.keys(c, *ctx)
        k, v = (torch.cat(t, 1).repeat_interleave(at.hq // at.hkv, 2).transpose(1, 2) for t in ((kc, k), (vc, v)))
        o = F.scaled_dot_product_attention(at.queries(y, *own).transpose(1, 2), k, v, attn_mask=mask)
        x = x + at.o_proj(o.transpose(1, 2).flatten(2))
        return x + self.mlp(self.post_attention_layernorm(x))


class DFlash(Head):
    """Blocks [last token, MASK...] at some starts of each row; the row of a MASK says which token stands in its place."""

    dense, block, most = False, BLOCK, BLOCK - 1

    def __init__(self, m, kept, size, T, device):
        c = m.cfg
        cfg = {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": c["hidden_size"],
               "intermediate_size": c["intermediate_size"], "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2,
               "head_dim": 64, "hidden_act": "silu", "rms_norm_eps": M.EPS, "rope_theta": 10000.0, "vocab_size": c["vocab_size"],
               "max_position_embeddings": c["max_position_embeddings"], "attention_bias": False, "tie_word_embeddings": True,
               "block_size": self.block, "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [t - 1 for t in TAPS], "causal": True},
               "dtype": "bfloat16"}
        Head.__init__(self, m, cfg, torch.arange(c["vocab_size"], device=kept.device))
        self.fc, self.hidden_norm, self.norm = Fused(cfg["hidden_size"], size), Norm(cfg["hidden_size"]), Norm(cfg["hidden_size"])
        self.layers = nn.ModuleList([BlockLayer(cfg) for _ in range(LAYERS)])
        self.to(device)
        self.fast = [compiled(device)(layer.forward) for layer in self.layers]
        self.steps = self.fast
        self.T = T
        self.tables = M.rope_tables(torch.arange(T + self.block + 1, device=device), cfg | {"partial_rotary_factor": 1.0}, self.dtype)

    def plain(self, on):
        self.steps = [layer.forward for layer in self.layers] if on else self.fast

    def rows(self, x, tapped, starts):
        """The hidden states of the blocks' rows after the last norm [B,A,block,H]."""
        B, A = starts.shape
        c = self.hidden_norm(self.fc(tapped))
        ids = torch.full((B, A, self.block), MASK, device=x.device)
        ids[..., 0] = x.gather(1, starts + 1)
        at = (starts[..., None] + 1 + torch.arange(self.block, device=x.device)).flatten(1)
        own, ctx = [t[at] for t in self.tables], [t[:self.T] for t in self.tables]
        i = torch.arange(A * self.block, device=x.device)
        block = (i[:, None] // self.block == i // self.block) & (i <= i[:, None])
        seen = torch.arange(self.T, device=x.device) <= starts.repeat_interleave(self.block, 1)[..., None]
        mask = torch.cat([seen, block.expand(B, -1, -1)], -1)[:, None]
        y = self.E[ids.flatten(1)]
        for step in self.steps:
            y = step(y, c, own, ctx, mask)
        return self.norm(y).view(B, A, self.block, -1)

    def drafts(self, x, h, tapped, starts):
        y = self.rows(x, tapped, starts)
        for j in range(self.most):
            yield M.linear(y[:, :, 1 + j], self.E)

    def tensors(self):
        return super().tensors() | {"fc.weight": self.fc.weight / self.fc.size}

    def begin(self, old):
        return super().begin(old | {"fc.weight": old["fc.weight"].to(self.fc.size) * self.fc.size})


class Confidence(nn.Module):
    """A linear score of [row ; Markov embedding]."""

    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, 1)
        nn.init.zeros_(self.proj.weight)


class DSpark(DFlash):
    """A DFlash backbone whose rows, the last token's too, say what comes behind them, a Markov head that adds what the token
    before says, and a confidence. In training the token before is the row's own."""

    block = most = BLOCK - 1

    def __init__(self, m, kept, size, T, device):
        super().__init__(m, kept, size, T, device)
        V, h = m.cfg["vocab_size"], m.cfg["hidden_size"]
        self.cfg |= {"architectures": ["Qwen3DSparkModel"], "markov_rank": RANK, "markov_head_type": "vanilla", "sample_from_anchor": True,
                     "enable_confidence_head": True, "confidence_head_with_markov": True}
        self.markov_head = nn.ModuleDict({"markov_w1": M.Weight(V, RANK, std=0.1), "markov_w2": M.Weight(V, RANK, std=0.0)}).to(device)
        self.confidence_head = Confidence(h + RANK).to(device)

    def drafts(self, x, h, tapped, starts):
        y = self.rows(x, tapped, starts)
        for j in range(self.most):
            e = F.embedding(x.gather(1, starts + 1 + j), self.markov_head["markov_w1"].weight).to(y.dtype)
            said = torch.cat([y[:, :, j], e], -1).detach()
            self.sure = F.linear(said.float(), self.confidence_head.proj.weight, self.confidence_head.proj.bias)[..., 0]
            yield M.linear(y[:, :, j], self.E) + self.markov_head["markov_w2"](e)


HEADS = {"mtp": MTP, "eagle3": Eagle3, "medusa": Medusa, "dflash": DFlash, "dspark": DSpark}


def save(head, folder):
    """config.json, if the head has one, and model.safetensors, weights in BF16."""
    from safetensors.torch import save_file
    os.makedirs(folder, exist_ok=True)
    save_file({n: (t.detach().to(torch.bfloat16) if t.is_floating_point() else t).cpu().contiguous() for n, t in head.tensors().items()},
              os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    if head.cfg:
        M.write_json(os.path.join(folder, "config.json"), head.cfg)


def saved(folder):
    """Tensors by name and the kept tokens (None: all) of a head that save wrote."""
    from safetensors.torch import load_file
    old, kept = load_file(os.path.join(folder, "model.safetensors")), None
    if "d2t" in old:
        kept = old["d2t"] + torch.arange(len(old["d2t"]))
    elif "token_map" in old:
        kept = old["token_map"]
    return old, kept
