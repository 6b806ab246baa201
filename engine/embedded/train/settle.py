"""Teaches the trained model not to fall into loops when it decodes greedily.

    python settle.py --assets DIR --tokens FILE.npy... --rounds R --steps N --out DIR

Each round decodes source prompts greedily. Half of the rows run free: a token that is the tenth or later of a stretch copied
from what went before is pushed down (unlikelihood). The other half is guarded: where the best token would be such a one, the
best that is not is taken, and the model is taught that choice and off the other. Source text in the same batch keeps
everything else in place. (On held-out source text 6 % of the tokens are such copies; in the greedy output before this step it
was 75 %.) The lower layers stay as they are. No compiled kernels are needed: the shipped model was settled in
a quarter of an hour on one CPU core. The MTP head is left as it was: train it again with heads.py.
"""

import argparse
import json
import os

import numpy as np
import torch
import torch.nn.functional as F

import model as M
import train as R
from decode import Decoder

PERIODS = 256
CHOICES = 8
COPY = 10


@torch.no_grad()
def guarded(dec, prompts, new, guard):
    """Greedy continuation of prompts [B,P]; guard [B] says which rows avoid repetitions.

    Returns tokens [B,P+new] and, per position, the id to push down there (-1: none).
    """
    dev = prompts.device
    B, P = prompts.shape
    x = torch.full((B, PERIODS + P + new), -1, dtype=torch.long, device=dev)
    x[:, PERIODS:PERIODS + P] = prompts
    bad = torch.full((B, P + new), -1, dtype=torch.long, device=dev)
    run = torch.zeros(B, PERIODS, dtype=torch.long, device=dev)
    dec.heat.zero_()
    dec.advance()
    dec.reset()
    for t in range(P + new - 1):
        dec.ids.copy_(x[:, PERIODS + t])
        logits = dec.advance()[1]
        back = x[:, t + 1:t + 1 + PERIODS].flip(1)
        if t + 1 < P:
            tok = x[:, PERIODS + t + 1]
        else:
            best = logits.topk(CHOICES, -1).indices
            loops = ((best[:, :, None] == back[:, None]) & (run[:, None] + 1 >= COPY)).any(-1)
            first = torch.where(loops.all(-1), CHOICES - 1, (~loops).long().argmax(-1))
            tok = torch.where(guard, best.gather(1, first[:, None])[:, 0], best[:, 0])
            bad[:, t + 1] = torch.where(loops[:, 0], best[:, 0], -1)
            x[:, PERIODS + t + 1] = tok
        run = torch.where(tok[:, None] == back, run + 1, 0)
    return x[:, PERIODS:], bad


def repeats(x, P):
    """Share of 4-grams after position P seen before in the same continuation, averaged over rows."""
    out = []
    for row in x[:, P:].tolist():
        grams = [tuple(row[i:i + 4]) for i in range(len(row) - 3)]
        out.append(1 - len(set(grams)) / len(grams))
    return sum(out) / len(out)


def settle_loss(h, E, x, bad):
    """Unlikelihood of the bad tokens, and cross entropy of the token taken where it is another one."""
    lp = torch.log_softmax(F.linear(h, E.to(h.dtype)).float(), -1)
    mark = bad >= 0
    pb = lp.gather(-1, bad.clamp(min=0)[..., None])[..., 0].exp().clamp(max=1 - 1e-4)
    taken = lp.gather(-1, x[..., None])[..., 0]
    free = (mark & (bad == x)).float()
    alt = (mark & (bad != x)).float()
    push = -torch.log1p(-pb)
    return (push * free).sum() / free.sum().clamp(min=1), ((push - taken) * alt).sum() / alt.sum().clamp(min=1)


class Split:
    """The trunk in two: layers below `cut`, frozen, and the rest."""

    def __init__(self, m, cut):
        self.m, self.cut = m, cut

    def tables(self, x):
        return M.rope_tables(torch.arange(x.shape[1], device=x.device), self.m.cfg, self.m.dtype)

    @torch.no_grad()
    def lower(self, ids, rows=8):
        """Output of the frozen layers, some rows at a time."""
        out = []
        for part in ids.split(rows):
            x = self.m.embed(part)
            for layer in self.m.model.layers[:self.cut]:
                x = layer(x, *self.tables(part))
            out.append(x)
        return torch.cat(out)

    def upper(self, x):
        for layer in self.m.model.layers[self.cut:]:
            x = layer(x, *self.tables(x))
        return self.m.model.norm(x)


class Source:
    """Stretches of source text of a fixed length, at random."""

    def __init__(self, files, span, device):
        self.flat, self.span, self.device = np.concatenate([np.load(f, mmap_mode="r") for f in files]), span, device
        self.gen = np.random.default_rng(R.SEED + 11)

    def take(self, rows, span=0):
        span = span or self.span
        at = self.gen.integers(0, len(self.flat) - span, rows)
        return torch.from_numpy(np.stack([self.flat[i:i + span] for i in at]).astype(np.int64)).to(self.device)


def train_round(a, sp, opt, pools, source, done):
    """The steps of one round over the pools so far; returns the mean losses.

    Adam with a small step and a clipped gradient: Muon, tried first, cost half a nat on source text for the same effect.
    """
    E = sp.m.model.embed_tokens.weight.detach()
    own, bad, low = (torch.cat(t) for t in zip(*pools))
    params = opt.param_groups[0]["params"]
    sums = torch.zeros(3)
    for i in range(a.steps):
        p, real = torch.randperm(len(own))[:a.own_rows], source.take(a.real_rows)
        h = sp.upper(torch.cat([low[p], sp.lower(real)]))
        free, alt = settle_loss(h[:a.own_rows, :-1], E, own[p][:, 1:], bad[p][:, 1:])
        keep = F.cross_entropy(M.linear(h[a.own_rows:, :-1], E).flatten(0, 1).float(), real[:, 1:].flatten())
        (keep + a.push * free + 0.5 * a.push * alt).backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        n, total = done + i, a.rounds * a.steps
        for g in opt.param_groups:
            g["lr"] = a.lr * min(1.0, (n + 1) / 4) * (1 - n / total)
        opt.step()
        sp.m.zero_grad(set_to_none=True)
        sums += torch.tensor([keep.item(), free.item(), alt.item()])
        if i % 10 == 9:
            R.say(i + 1, [round(v, 3) for v in (sums / (i + 1)).tolist()])
    return [round(v, 4) for v in (sums / a.steps).tolist()]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--assets", required=True)
    ap.add_argument("--tokens", nargs="+", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--span", type=int, default=256)
    ap.add_argument("--own-rows", type=int, default=4)
    ap.add_argument("--real-rows", type=int, default=6)
    ap.add_argument("--pool", type=int, default=64)
    ap.add_argument("--prompt", type=int, default=48)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--steps", type=int, default=40)
    ap.add_argument("--cut", type=int, default=10)
    ap.add_argument("--lr", type=float, default=2.5e-4)
    ap.add_argument("--push", type=float, default=0.5)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--device", default="cpu")
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(R.SEED)
    m = M.load(a.assets).to(a.device)
    sp, source = Split(m, a.cut), Source(a.tokens, a.span, a.device)
    trained = torch.nn.ModuleList([*m.model.layers[a.cut:], m.model.norm])
    opt = torch.optim.Adam(trained.parameters(), betas=(0.9, 0.99))
    watch, pools = source.take(24), []
    guard = (torch.arange(a.pool, device=a.device) % 2).bool()
    log = []
    for rnd in range(a.rounds + 1):
        dec = Decoder(m, a.pool, a.span, a.device)
        R.say("decoding")
        own, bad = guarded(dec, source.take(a.pool, a.prompt), a.span - a.prompt, guard)
        with torch.no_grad():
            nats = sum(F.cross_entropy(m(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten()).item() for x in watch.split(8)) / 3
        log.append({"round": rnd, "repeated_4grams": round(repeats(own[~guard][:128], a.prompt), 4),
                    "guarded": round(repeats(own[guard][:128], a.prompt), 4), "source_nats_per_token": round(nats, 4)})
        R.say(json.dumps(log[-1]))
        M.export(m, a.out)
        if rnd < a.rounds:
            pools.append((own, bad, sp.lower(own)))
            log.append({"round": rnd, "mean_losses_keep_free_alt": train_round(a, sp, opt, pools, source, rnd * a.steps)})
            R.say(json.dumps(log[-1]))
    with open(os.path.join(a.out, "settle_log.jsonl"), "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in log)


if __name__ == "__main__":
    main()
