"""Trains draft heads for the trunk as it stands: EAGLE-3, Medusa and DFlash.

    python heads.py train   --assets DIR --openings FILE.npz --out DIR --seconds S
    python heads.py install --assets DIR --out DIR

As in mtp.py the trunk, which is not touched, continues openings of training files, three rows of four greedily, the rest at
temperature 1; here the residual stream is tapped at three depths too. Each head then learns from every position what the trunk
says of the next tokens: EAGLE-3 as a chain of DEPTH drafts that feed on its own hidden, Medusa by a head for each of DEPTH
tokens, DFlash by a block whose masked places are filled in one pass, with causal attention inside the block. EAGLE-3 and Medusa
have LM heads of their own over the VOCAB tokens that the continuations use most.

The heads are written as they are published: EAGLE-3 by the names of its reference code (fc, midlayer, norm, lm_head, d2t, t2d),
Medusa in vLLM's layout (blocks, lm_heads, token_map), DFlash by its own (fc, hidden_norm, layers, norm).

`train` takes S seconds of one GPU from the program's start on and writes DIR/NAME/{config.json,model.safetensors} and
heads_log.jsonl; `install` puts them into the assets' folder heads.
"""

import argparse
import json
import os
import shutil
import time

import torch
import torch.nn.functional as F
from torch import nn

import model as M
import train as R
from chain import Chain, captured, compiled
from mtp import AFTER_MISS, DEPTH, Pool

TAPS = (4, 12, 20)
VOCAB = 3072
BLOCK = 8
LAYERS = 2
ANCHORS = 64
MASK = 4095
KEEP = 0.85
WATCHED = 256
SHARE = {"eagle3": 0.6, "medusa": 0.16, "dflash": 0.24}


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
    """What heads share: the trunk's embedding E, and the kept tokens with their places (-1: not kept)."""

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

    def plain(self):
        """Tensors by name."""
        return dict(self.named_parameters())


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


class Midlayer(nn.Module):
    """EAGLE-3's layer: attention over [embedding ; hidden]."""

    def __init__(self, cfg):
        super().__init__()
        h = cfg["hidden_size"]
        self.input_layernorm, self.hidden_norm, self.post_attention_layernorm = Norm(h), Norm(h), Norm(h)
        self.self_attn, self.mlp = Attention(cfg, 2 * h, False), M.MLP(cfg)


class Eagle3(Head, Chain):
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
        self.T, self.device = T, device
        comp = compiled(device)
        self.pre, self.post = comp(self._pre), comp(self._post)
        rope = cfg | {"partial_rotary_factor": 1.0}
        self.tables = [M.rope_tables(torch.arange(T, device=device) + j, rope, self.dtype) for j in range(DEPTH)]
        self.masks, self.flex = {}, None

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
        return self.plain() | {"fc.weight": self.fc.weight / self.fc.size, "d2t": d2t, "t2d": self.place >= 0}


class Medusa(Head):
    """A residual SiLU layer and an LM head for each of the next tokens, from the trunk's final hidden."""

    def __init__(self, m, kept, size, T, device):
        h = m.cfg["hidden_size"]
        Head.__init__(self, m, {"architectures": ["MedusaModel"], "model_type": "medusa", "hidden_size": h, "vocab_size": m.cfg["vocab_size"],
                                "truncated_vocab_size": len(kept), "num_heads": DEPTH, "num_hidden_layers": 1, "medusa_fc_bias": False,
                                "original_lm_head": False, "dtype": "bfloat16"}, kept)
        self.blocks = nn.ModuleList([nn.ModuleDict({"layers": nn.ModuleList([M.Weight(h, h)])}) for _ in range(DEPTH)])
        self.lm_heads = nn.ModuleList([self.own_head() for _ in range(DEPTH)])
        self.to(device)

    def drafts(self, x, h, tapped, starts):
        h = h[:, :starts]
        for b, head in zip(self.blocks, self.lm_heads):
            yield head(h + F.silu(b["layers"][0](h).float()).to(h.dtype))

    def tensors(self):
        return self.plain() | {"token_map": self.kept}


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

    def __init__(self, m, kept, size, T, device):
        c = m.cfg
        cfg = {"architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": c["hidden_size"],
               "intermediate_size": c["intermediate_size"], "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2,
               "head_dim": 64, "hidden_act": "silu", "rms_norm_eps": M.EPS, "rope_theta": 10000.0, "vocab_size": c["vocab_size"],
               "max_position_embeddings": c["max_position_embeddings"], "attention_bias": False, "tie_word_embeddings": True,
               "block_size": BLOCK, "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [t - 1 for t in TAPS], "causal": True},
               "dtype": "bfloat16"}
        Head.__init__(self, m, cfg, torch.arange(c["vocab_size"], device=kept.device))
        self.fc, self.hidden_norm, self.norm = Fused(cfg["hidden_size"], size), Norm(cfg["hidden_size"]), Norm(cfg["hidden_size"])
        self.layers = nn.ModuleList([BlockLayer(cfg) for _ in range(LAYERS)])
        self.to(device)
        self.steps = [compiled(device)(layer.forward) for layer in self.layers]
        self.T = T
        self.tables = M.rope_tables(torch.arange(T + BLOCK + 1, device=device), cfg | {"partial_rotary_factor": 1.0}, self.dtype)

    def drafts(self, x, h, tapped, starts):
        B, A = starts.shape
        c = self.hidden_norm(self.fc(tapped))
        ids = torch.full((B, A, BLOCK), MASK, device=x.device)
        ids[..., 0] = x.gather(1, starts + 1)
        at = (starts[..., None] + 1 + torch.arange(BLOCK, device=x.device)).flatten(1)
        own, ctx = [t[at] for t in self.tables], [t[:self.T] for t in self.tables]
        i = torch.arange(A * BLOCK, device=x.device)
        block = (i[:, None] // BLOCK == i // BLOCK) & (i <= i[:, None])
        seen = torch.arange(self.T, device=x.device) <= starts.repeat_interleave(BLOCK, 1)[..., None]
        mask = torch.cat([seen, block.expand(B, -1, -1)], -1)[:, None]
        y = self.E[ids.flatten(1)]
        for step in self.steps:
            y = step(y, c, own, ctx, mask)
        y = self.norm(y).view(B, A, BLOCK, -1)
        for j in range(BLOCK - 1):
            yield M.linear(y[:, :, 1 + j], self.E)

    def tensors(self):
        return self.plain() | {"fc.weight": self.fc.weight / self.fc.size}


HEADS = {"eagle3": Eagle3, "medusa": Medusa, "dflash": DFlash}


def draft_loss(z, trunk, lse, label, hard, weight):
    """Weighted cross entropy, summed, of drafts to the trunk's distribution, as far as it is kept, and first choice; and the hits."""
    z = z.float()
    p = (trunk.float() - lse[..., None]).exp()
    all_ = z.logsumexp(-1)
    soft = p.sum(-1) * all_ - (p * z).sum(-1)
    first = (all_ - z.gather(-1, label.clamp(min=0)[..., None])[..., 0]) * (label >= 0)
    nats = (1 - hard) * soft + hard * first
    return (nats * weight).sum(), z.argmax(-1) == label


class Work:
    """Losses and backward of one batch in static inputs."""

    def __init__(self, m, head, pool, rows, device):
        self.head, self.pool, self.loss = head, pool, compiled(device)(draft_loss)
        self.dense = not isinstance(head, DFlash)
        self.n = pool.T - (DEPTH if self.dense else BLOCK)
        self.inputs = [t.clone() for t in self.batch(torch.arange(rows, device=device))]

    def batch(self, rows):
        """Tokens, hidden, taps, weight, hardness and, for DFlash, the starts, in the continuation where there is one."""
        x, h, weight, hard = self.pool.take(rows)
        out = [x, h, self.pool.tapped[rows, :self.pool.T], weight, hard]
        if not self.dense:
            low = (self.pool.prompt[rows] - 1).clamp(max=self.n - 1)
            high = torch.maximum(self.pool.end[rows].clamp(max=self.n), low + 1)
            u = torch.rand(len(rows), ANCHORS, device=x.device)
            out.append(low[:, None] + (u * (high - low)[:, None]).long())
        return out

    def steps(self, x, h, tapped, rest):
        """Yields per draft its logits and a function that takes the trunk's rows that it is held against."""
        starts = self.n if self.dense else rest[0]
        b = torch.arange(len(x), device=x.device)[:, None]
        for j, z in enumerate(self.head.drafts(x, h, tapped, starts)):
            if self.dense:
                yield z, lambda t, j=j: t[:, 1 + j:1 + j + self.n]
            else:
                yield z, lambda t, j=j: t[b, starts + 1 + j]

    def trunk(self, h):
        """The trunk's logits of the kept tokens, log sum over all, and its first choice's place."""
        full = F.linear(h, self.head.E)
        lse, label = full.float().logsumexp(-1), self.head.place[full.argmax(-1)]
        return (full if len(self.head.kept) == full.shape[-1] else full[..., self.head.kept]), lse, label

    def __call__(self):
        x, h, tapped, weight, hard, *rest = self.inputs
        with torch.no_grad():
            trunk, lse, label = self.trunk(h)
        total, parts, right, alive = 0.0, [], [], None
        for j, (z, at) in enumerate(self.steps(x, h, tapped, rest)):
            w0, hd = at(weight).contiguous(), at(hard).contiguous()
            alive = torch.ones_like(w0) if alive is None else alive
            w = w0 * torch.where(alive > 0, 1.0, AFTER_MISS)
            s, hit = self.loss(z, at(trunk), at(lse).contiguous(), at(label).contiguous(), hd, w)
            total = total + KEEP ** j * s / w0.sum().clamp(min=1)
            judged = alive * (hd > 0) * w0
            parts.append((s / w.sum().clamp(min=1)).detach())
            right.append((judged * hit).sum() / judged.sum().clamp(min=1))
            alive = alive * hit
        total.backward()
        return parts, right

    @torch.no_grad()
    def watch(self, rows):
        """Conditional acceptance by position in the continuations of some rows: greedy, and expected at temperature 1."""
        sums = torch.zeros(2, BLOCK - 1, 2, dtype=torch.float64)
        for part in rows.split(32):
            x, h, tapped, _, _, *rest = self.batch(part)
            trunk, lse, label = self.trunk(h)
            r = torch.arange(self.pool.T, device=x.device)
            own = (r >= self.pool.prompt[part, None]) & (r < self.pool.end[part, None])
            greedy, alive, nxt = self.pool.greedy[part], 1.0, self.head.place[x]
            for j, (z, at) in enumerate(self.steps(x, h, tapped, rest)):
                q, p = z.float().log_softmax(-1), at(trunk).float() - at(lse)[..., None]
                hit = (z.argmax(-1) == at(label)).float()
                text = at(nxt[:, 1:self.pool.T + 1])
                take = (q - p).gather(-1, text.clamp(min=0)[..., None])[..., 0].exp().clamp(max=1) * (text >= 0)
                both = torch.minimum(q, p).exp().sum(-1)
                asked = alive * at(own)
                for i, (kind, ok) in enumerate(((greedy, hit), (~greedy, both))):
                    sums[i, j] += torch.stack([(asked * ok)[kind].sum(), asked[kind].sum()]).double().cpu()
                alive = alive * torch.where(greedy[:, None], hit, take)
        rate = (sums[..., 0] / sums[..., 1].clamp(min=1e-9)).tolist()
        return {k: [round(v, 4) for v in r if v] for k, r in zip(("greedy", "temperature_1"), rate)}


def fit(name, m, pool, kept, size, a, until, log):
    """One head: steps until the time is up; Muon for the matrices, AdamW for norms and LM heads, linear to zero."""
    head = HEADS[name](m, kept, size, pool.T, a.device)
    lm, mats, norms = [], [], []
    for n, p in head.named_parameters():
        (lm if "lm_head" in n else mats if p.ndim == 2 else norms).append(p)
    muon = R.Muon(mats)
    groups = [{"params": g, "base": lr} for g, lr in ((norms, 2e-3), (lm, 5e-4)) if g]
    adam = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0)
    work = Work(m, head, pool, a.rows, a.device)
    N = len(pool.x)
    watched = torch.arange(N - min(WATCHED, N // 4), N, device=a.device)
    run = captured(work, list(head.parameters())) if a.device == "cuda" else work
    R.say(name, "compiled", sum(p.numel() for p in head.parameters()))
    order, n, t0 = torch.randperm(0), 0, time.time()
    while (now := time.time()) < until:
        if len(order) < a.rows:
            order = torch.randperm(N - len(watched))
        pick, order = order[:a.rows].to(a.device), order[a.rows:]
        for dst, src in zip(work.inputs, work.batch(pick)):
            dst.copy_(src)
        parts, right = run()
        scale = min(1.0, (n + 1) / 50) * min(1.0, (until - now) / (until - t0) / 0.8)
        for g in adam.param_groups:
            g["lr"] = g["base"] * scale
        adam.step()
        muon.step(a.lr * scale)
        if a.device != "cuda":
            head.zero_grad(set_to_none=True)
        n += 1
        if n % 200 == 0:
            log.append({"head": name, "step": n, "t": round(now - t0, 1), "nats": [round(v.item(), 4) for v in parts], "right": [round(v.item(), 4) for v in right]})
            R.say(json.dumps(log[-1]))
    save(head, os.path.join(a.out, name))
    log.append({"head": name, "step": n, "seconds": round(time.time() - t0, 1), "watched": work.watch(watched)})
    R.say(json.dumps(log[-1]))


def save(head, folder):
    """config.json and model.safetensors, weights in BF16."""
    from safetensors.torch import save_file
    os.makedirs(folder, exist_ok=True)
    save_file({n: (t.detach().to(torch.bfloat16) if t.is_floating_point() else t).cpu().contiguous() for n, t in head.tensors().items()},
              os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    M.write_json(os.path.join(folder, "config.json"), head.cfg)


def train(a):
    """Rollouts, then each head for its share of the time."""
    torch.manual_seed(R.SEED)
    os.makedirs(a.out, exist_ok=True)
    m = M.load(a.assets, torch.bfloat16 if a.device == "cuda" else torch.float32).to(a.device)
    m.requires_grad_(False)
    pool = Pool(m, a, TAPS)
    own = torch.arange(a.length, device=a.device) >= pool.prompt[:, None]
    own &= torch.arange(a.length, device=a.device) <= pool.end[:, None]
    count = torch.bincount(pool.x[own].long(), minlength=m.cfg["vocab_size"]).cpu()
    kept = torch.argsort(count, descending=True, stable=True)[:min(a.vocab, len(count))].sort().values
    some = pool.tapped[::max(1, len(pool.x) // 256)].float().unflatten(-1, (len(TAPS), -1))
    size = some.square().mean((0, 1, 3)).sqrt()
    log = [{"rows": len(pool.x), "tokens": pool.x.numel(), "continued": int(own.sum()), "kept": len(kept),
            "kept_share": round((count[kept].sum() / count.sum()).item(), 4), "tap_sizes": [round(v, 3) for v in size.tolist()],
            "seconds": round(time.time() - R.START, 1)}]
    R.say(json.dumps(log[-1]))
    names = a.heads.split(",")
    for i, name in enumerate(names):
        left = R.START + a.seconds - time.time()
        share = SHARE[name] / sum(SHARE[n] for n in names[i:])
        fit(name, m, pool, kept.to(a.device), size, a, time.time() + left * share, log)
        with open(os.path.join(a.out, "heads_log.jsonl"), "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in log)


def install(a):
    """Copies the heads into the assets."""
    for name in a.heads.split(","):
        dst = os.path.join(a.assets, "heads", name)
        os.makedirs(dst, exist_ok=True)
        for f in ("config.json", "model.safetensors"):
            shutil.copyfile(os.path.join(a.out, name, f), os.path.join(dst, f))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", choices=["train", "install"])
    ap.add_argument("--assets", required=True)
    ap.add_argument("--openings", default="")
    ap.add_argument("--out", required=True)
    ap.add_argument("--heads", default="eagle3,medusa,dflash")
    ap.add_argument("--seconds", type=float, default=350)
    ap.add_argument("--rollout-seconds", type=float, default=50, help="no further batch is begun after that")
    ap.add_argument("--rollouts", type=int, default=100, help="batches at most")
    ap.add_argument("--batch", type=int, default=8192)
    ap.add_argument("--length", type=int, default=518)
    ap.add_argument("--rows", type=int, default=128)
    ap.add_argument("--vocab", type=int, default=VOCAB)
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--device", default="cuda")
    a = ap.parse_args()
    {"train": train, "install": install}[a.what](a)


if __name__ == "__main__":
    main()
