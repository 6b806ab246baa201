"""Trains draft heads for the trunk as it stands: its MTP module, EAGLE-3, Medusa, DFlash and DSpark.

    exacta hidden --ids IDS.jsonl --new N --taps 4,12,20 --out DIR        # states of the engine; several exports may be made
    python heads.py train   --assets DIR --hidden DIR,DIR --out DIR --seconds S
    python heads.py install --assets DIR --out DIR

The trunk, which is not touched, continues openings of training files (data.py openings), most of them greedily, the rest at
temperature 1. The states are those that the engine exports (--hidden), those of rollouts made here (--openings), which takes a
tenth of the time on a GPU, or both. Each head learns from every position what the trunk says of the next tokens: its
distribution and, on greedy continuations, mostly its first choice, for there a draft is right if it is that one. MTP and
EAGLE-3 learn as chains of DEPTH drafts that feed on their own hidden, Medusa by a head for each of DEPTH tokens, DFlash and
DSpark by a block that one pass fills, with causal attention inside it. A draft behind a wrong one is never judged in decoding,
so it counts little; nor do the openings themselves. EAGLE-3 and Medusa have LM heads of their own over the VOCAB tokens that
the continuations use most.

With --init DIR heads begin from those of that folder (dspark from its dflash), at AGAIN of the learning rates where the whole
head was there, and are compiled while the exports, all but the first, are still under way.

The heads are written as they are published: EAGLE-3 by the names of its reference code (fc, midlayer, norm, lm_head, d2t, t2d),
Medusa in vLLM's layout (blocks, lm_heads, token_map), DFlash and DSpark by their own. `train` takes S seconds of one GPU from
the program's start on and writes DIR/NAME and heads_log.jsonl; `install` puts heads into the assets' folder heads, and the MTP
module into model.safetensors, where it leaves all other bytes.
"""

import argparse
import json
import os
import shutil
import time

import torch
import torch.nn.functional as F

import model as M
import nets
import train as R
from chain import captured, compiled
from install import install_mtp
from nets import HEADS, TAPS
from pool import DEPTH, blank, exported, joined, rolled

VOCAB = 3072
ANCHORS = 64
KEEP = 0.85
AFTER_MISS = 0.15
SURE = 0.2
AGAIN = 0.4
WATCHED = 256
SHARE = {"mtp": 0.4, "eagle3": 0.5, "medusa": 0.5, "dflash": 0.25, "dspark": 0.75}
SEPARATE = ("lm_head", "markov", "confidence")


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

    def __init__(self, head, pool, rows, device):
        self.head, self.pool, self.loss = head, pool, compiled(device)(draft_loss)
        self.n = pool.T - (DEPTH if head.dense else head.block)
        self.inputs = [t.clone() for t in self.batch(torch.arange(rows, device=device))]

    def batch(self, rows):
        """Tokens, hidden, taps, weight, hardness and, for a head that is not dense, starts, in the continuation where there is one."""
        x, h, weight, hard = self.pool.take(rows)
        out = [x, h, self.pool.tapped[rows, :self.pool.T], weight, hard]
        if not self.head.dense:
            low = (self.pool.prompt[rows] - 1).clamp(max=self.n - 1)
            high = torch.maximum(self.pool.end[rows].clamp(max=self.n), low + 1)
            u = torch.rand(len(rows), ANCHORS, device=x.device)
            out.append(low[:, None] + (u * (high - low)[:, None]).long())
        return out

    def steps(self, x, h, tapped, rest):
        """Yields per draft its logits and a function that takes the trunk's rows that it is held against."""
        starts = self.n if self.head.dense else rest[0]
        b = torch.arange(len(x), device=x.device)[:, None]
        for j, z in enumerate(self.head.drafts(x, h, tapped, starts)):
            if self.head.dense:
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
            sure, self.head.sure = self.head.sure, None  # kept, it would keep the graph of autograd too
            if sure is not None:
                asked = w0 * alive
                bce = F.binary_cross_entropy_with_logits(sure, hit.float(), reduction="none")
                total = total + SURE * (bce * asked).sum() / asked.sum().clamp(min=1)
            judged = alive * (hd > 0) * w0
            parts.append((s / w.sum().clamp(min=1)).detach())
            right.append((judged * hit).sum() / judged.sum().clamp(min=1))
            alive = alive * hit
        total.backward()
        return parts, right

    @torch.no_grad()
    def watch(self, rows):
        """Conditional acceptance by position in the continuations of some rows: greedy, and expected at temperature 1."""
        self.head.plain(True)
        sums = torch.zeros(2, nets.BLOCK - 1, 2, dtype=torch.float64)
        for part in rows.split(16):
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
        self.head.plain(False)
        rate = (sums[..., 0] / sums[..., 1].clamp(min=1e-9)).tolist()
        return {k: [round(v, 4) for v in r if v] for k, r in zip(("greedy", "temperature_1"), rate)}


class Fit:
    """One head in training: Muon for the matrices, AdamW for norms, LM and Markov heads; rates linear to zero."""

    def __init__(self, name, m, pool, kept, size, a):
        self.name, self.a, self.speed, old = name, a, 1.0, None
        src = os.path.join(a.init, name if os.path.isdir(os.path.join(a.init, name)) else {"dspark": "dflash"}.get(name, name))
        if a.init and os.path.isdir(src):
            old, keeps = nets.saved(src)
            kept = kept if keeps is None else keeps.to(a.device)
        self.head = HEADS[name](m, kept, size, pool.T, a.device)
        params = dict(self.head.named_parameters())
        if name == "mtp" or old and self.head.begin(old) == len(params):
            self.speed = AGAIN
        lm, mats, norms = [], [], []
        for n, p in params.items():
            (lm if any(s in n for s in SEPARATE) else mats if p.ndim == 2 else norms).append(p)
        self.muon = R.Muon(mats)
        groups = [{"params": g, "base": lr} for g, lr in ((norms, 2e-3), (lm, 5e-4)) if g]
        self.adam = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0)
        self.work = Work(self.head, pool, a.rows, a.device)
        self.run = captured(self.work, list(params.values())) if a.device == "cuda" else self.work
        R.say(name, "compiled", sum(p.numel() for p in params.values()), "speed", self.speed)

    def train(self, pool, until, log):
        """Steps on a pool until the time is up; then the head is written and watched."""
        a, work, N = self.a, self.work, len(pool.x)
        work.pool = pool
        watched = torch.arange(N - min(WATCHED, N // 4), N, device=a.device)
        log.append({"head": self.name, "step": 0, "watched": work.watch(watched)})
        R.say(json.dumps(log[-1]))
        order, n, t0 = torch.randperm(0), 0, time.time()
        while (now := time.time()) < until:
            if len(order) < a.rows:
                order = torch.cat([order, torch.randperm(N - len(watched))])
            pick, order = order[:a.rows].to(a.device), order[a.rows:]
            for dst, src in zip(work.inputs, work.batch(pick)):
                dst.copy_(src)
            parts, right = self.run()
            self.step(min(1.0, (n + 1) / 50) * min(1.0, (until - now) / (until - t0) / 0.8) * self.speed)
            n += 1
            if n % 200 == 0:
                log.append({"head": self.name, "step": n, "t": round(now - t0, 1), "nats": [round(v.item(), 4) for v in parts],
                            "right": [round(v.item(), 4) for v in right]})
                R.say(json.dumps(log[-1]))
        nets.save(self.head, os.path.join(a.out, self.name))
        log.append({"head": self.name, "step": n, "seconds": round(time.time() - t0, 1), "watched": work.watch(watched)})
        R.say(json.dumps(log[-1]))

    def step(self, scale):
        """One update at that share of the learning rates."""
        for g in self.adam.param_groups:
            g["lr"] = g["base"] * scale
        self.adam.step()
        self.muon.step(self.a.lr * scale)
        if self.a.device != "cuda":
            self.head.zero_grad(set_to_none=True)


def about(pool, m, a):
    """What a pool says of its tokens: the kept ones, the taps' sizes, and a record for the log."""
    own = pool.continued()
    count = torch.bincount(pool.x[own].long(), minlength=m.cfg["vocab_size"]).cpu()
    kept = torch.argsort(count, descending=True, stable=True)[:min(a.vocab, len(count))].sort().values
    some = pool.tapped[::max(1, len(pool.x) // 256)].float().unflatten(-1, (len(TAPS), -1))
    size = some.square().mean((0, 1, 3)).sqrt()
    rec = {"rows": len(pool.x), "tokens": int(pool.end.sum()), "continued": int(own.sum()), "greedy": int(pool.greedy.sum()), "kept": len(kept),
           "kept_share": round((count[kept].sum() / count.sum().clamp(min=1)).item(), 4), "tap_sizes": [round(v, 3) for v in size.tolist()],
           "seconds": round(time.time() - R.START, 1)}
    return kept.to(a.device), size, rec


def train(a):
    """Data, then each head for its share of the time; with heads to begin from, compilation before most of the data."""
    torch.manual_seed(R.SEED)
    os.makedirs(a.out, exist_ok=True)
    m = M.load(a.assets, torch.bfloat16 if a.device == "cuda" else torch.float32).to(a.device)
    m.requires_grad_(False)
    names, folders, fits = a.heads.split(","), [f for f in a.hidden.split(",") if f], None

    def prepare(pool, shape):
        kept, size, rec = about(pool, m, a)
        return [Fit(n, m, shape, kept, size, a) for n in names], rec
    if a.init and len(folders) > 1:
        fits, _ = prepare(exported(m, folders[:1], a, TAPS), blank(m, a, len(TAPS)))
    pools = [exported(m, folders, a, TAPS)] if folders else []
    if a.openings:
        pools.append(rolled(m, a, TAPS))
    pool = pools[0] if len(pools) == 1 else joined(pools)
    if fits is None:
        fits, rec = prepare(pool, pool)
    else:
        rec = about(pool, m, a)[2]
    log = [rec]
    R.say(json.dumps(rec))
    for i, fit in enumerate(fits):
        left = R.START + a.seconds - time.time()
        fit.train(pool, time.time() + left * SHARE[fit.name] / sum(SHARE[n] for n in names[i:]), log)
        with open(os.path.join(a.out, "heads_log.jsonl"), "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in log)


def install(a):
    """Copies the heads into the assets, the MTP module into the model's file."""
    for name in a.heads.split(","):
        if name == "mtp":
            install_mtp(a.assets, os.path.join(a.out, name, "model.safetensors"))
            continue
        dst = os.path.join(a.assets, "heads", name)
        os.makedirs(dst, exist_ok=True)
        for f in ("config.json", "model.safetensors"):
            shutil.copyfile(os.path.join(a.out, name, f), os.path.join(dst, f))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", choices=["train", "install"])
    ap.add_argument("--assets", required=True)
    ap.add_argument("--hidden", default="", help="exports of the engine, separated by commas")
    ap.add_argument("--openings", default="", help="npz of token ids that are continued here")
    ap.add_argument("--init", default="", help="folder of heads to begin from")
    ap.add_argument("--out", required=True)
    ap.add_argument("--heads", default="mtp,eagle3,medusa,dflash,dspark")
    ap.add_argument("--seconds", type=float, default=350)
    ap.add_argument("--wait", type=float, default=0, help="exports that are not there at that time, from the start, are left out")
    ap.add_argument("--rollout-seconds", type=float, default=50, help="no further batch is begun after that")
    ap.add_argument("--rollouts", type=int, default=100, help="batches at most")
    ap.add_argument("--batch", type=int, default=8192)
    ap.add_argument("--length", type=int, default=384)
    ap.add_argument("--rows", type=int, default=128)
    ap.add_argument("--vocab", type=int, default=VOCAB)
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--device", default="cuda")
    a = ap.parse_args()
    {"train": train, "install": install}[a.what](a)


if __name__ == "__main__":
    main()
