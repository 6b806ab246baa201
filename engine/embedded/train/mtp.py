"""Trains the MTP head alone, as the chain of drafts that decoding makes of it, for the trunk as it stands.

    python mtp.py train   --assets DIR --openings FILE.npz --out DIR --seconds S
    python mtp.py install --assets DIR --out DIR

The trunk continues openings of training files (data.py openings), three rows of four greedily, the rest at temperature 1, and
its hidden states are kept. The head then learns, from every position of these rows, four drafts that feed on its own hidden.
Its target is the trunk's distribution; on greedy continuations, mostly the trunk's first choice, for there a draft is right if
it is that one. A draft behind a wrong one is never judged in decoding, so it counts little. The openings themselves, which are
source text, count for PROMPT of a continuation. Trunk, embedding and LM head are not touched: `install` writes the head's bytes
into model.safetensors and leaves all others.

`train` takes S seconds of one GPU from the program's start on, start and rollouts included, and writes mtp.safetensors and mtp_log.jsonl.
"""

import argparse
import hashlib
import json
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

import model as M
import train as R
from chain import Chain, captured, compiled
from decode import Decoder

DEPTH = 4
COUNT = (1.0, 0.85, 0.65, 0.45)
HARD = 0.6
PROMPT = 0.3
AFTER_MISS = 0.15
SHORTEST = 48
WATCHED = 512


class Pool:
    """Rollouts: tokens [N,L], the trunk's hidden [N,L-1,H], and per row the prompt's length, the end and whether it is greedy.

    With taps, also the residual streams after those numbers of layers, side by side [N,L-1,H*taps].
    """

    def __init__(self, m, a, taps=()):
        dev = a.device
        ids = torch.from_numpy(np.load(a.openings)["ids"].astype(np.int64))
        gen = torch.Generator().manual_seed(R.SEED)
        self.T = a.length - DEPTH - 2
        batches = min(a.rollouts, len(ids) // a.batch)
        self.x = torch.zeros(batches * a.batch, a.length, dtype=torch.int16, device=dev)
        self.h = torch.zeros(len(self.x), a.length - 1, m.cfg["hidden_size"], dtype=m.dtype, device=dev)
        self.tapped = torch.zeros(len(self.x), a.length - 1, len(taps) * m.cfg["hidden_size"], dtype=m.dtype, device=dev)
        self.prompt = torch.randint(min(SHORTEST, ids.shape[1] // 2), ids.shape[1] + 1, (len(self.x),), generator=gen).to(dev)
        heat = torch.tensor([0.0, 0.0, 0.0, 1.0], device=dev).repeat(a.batch // 4)
        dec = Decoder(m, a.batch, a.length, dev, taps)
        done = 0
        for i in range(0, len(self.x), a.batch):
            part = slice(i, i + a.batch)
            x = dec.rollout(ids[part].to(dev), self.prompt[part], a.length - ids.shape[1], heat, self.h[part], self.tapped[part] if taps else None)
            self.x[part] = x.to(torch.int16)
            done = i + a.batch
            R.say("rollouts", done)
            if time.time() - R.START > a.rollout_seconds:
                break
        self.x, self.h, self.tapped, self.prompt = self.x[:done], self.h[:done], self.tapped[:done], self.prompt[:done]
        self.greedy = (heat == 0).repeat(done // a.batch)
        after = torch.arange(a.length, device=dev) >= self.prompt[:, None]
        stop = (self.x == R.EOT) & after
        self.end = torch.where(stop.any(1), stop.long().argmax(1), a.length)

    def take(self, rows):
        """Tokens, hidden, weight and share of the first choice, the last two by the trunk's row that a draft is held against."""
        r = torch.arange(self.T, device=self.x.device)
        own = r >= self.prompt[rows, None] - 1
        weight = torch.where(own, 1.0, PROMPT) * (r < self.end[rows, None])
        return self.x[rows].long(), self.h[rows, :self.T], weight, HARD * (own & self.greedy[rows, None])


def draft_loss(h, E, trunk, label, hard, weight):
    """Weighted cross entropy, per row summed, of drafts [B,n] to the trunk's logits and first choices; and where they are right."""
    z = F.linear(h, E).float()
    soft = (torch.softmax(trunk.float(), -1) * z).sum(-1)
    first = z.gather(-1, label[..., None])[..., 0]
    nats = z.logsumexp(-1) - (1 - hard) * soft - hard * first
    return (nats * weight).sum(), z.argmax(-1) == label


class Work:
    """Losses and backward of one batch in static inputs."""

    def __init__(self, m, pool, rows, device):
        self.m, self.T, self.n = m, pool.T, pool.T - DEPTH
        self.chain, self.loss = Chain(m, pool.T, device), compiled(device)(draft_loss)
        self.E = m.model.embed_tokens.weight.detach().to(m.dtype)
        self.inputs = [t.clone() for t in pool.take(torch.arange(rows, device=device))]

    def __call__(self):
        x, h, weight, hard = self.inputs
        trunk = F.linear(h, self.E)
        label = trunk.argmax(-1)
        total, parts, right = 0.0, [], []
        alive = torch.ones_like(weight[:, :self.n])
        for j, d in enumerate(self.chain.run(x, h, DEPTH)):
            at = slice(1 + j, 1 + j + self.n)
            w = (weight[:, at] * torch.where(alive > 0, 1.0, AFTER_MISS)).contiguous()
            s, hit = self.loss(d[:, :self.n], self.E, trunk[:, at], label[:, at].contiguous(), hard[:, at].contiguous(), w)
            total = total + COUNT[j] * s / weight.sum()
            judged = alive * (hard[:, at] > 0) * weight[:, at]
            parts.append((s / w.sum()).detach())
            right.append((judged * hit).sum() / judged.sum().clamp(min=1))
            alive = alive * hit
        total.backward()
        return parts, right


@torch.no_grad()
def watch(m, pool, rows):
    """Conditional acceptance by position in the continuations of some rows: greedy, and expected at temperature 1."""
    sums = torch.zeros(2, DEPTH, 2, dtype=torch.float64)
    n = pool.T - DEPTH
    p = torch.arange(n, device=pool.x.device)
    for part in rows.split(32):
        x, h, _, _ = pool.take(part)
        logits, past, cur = m.head(h).float(), [], h
        greedy = pool.greedy[part]
        alive = torch.ones(len(part), n, device=x.device)
        for j in range(DEPTH):
            cur = m.draft_step(x[:, 1 + j:pool.T + 1 + j], cur, j, past, M.attend_dense)
            q, t = m.head(cur)[:, :n].float(), logits[:, 1 + j:1 + j + n]
            asked = alive * (p >= pool.prompt[part, None] - 1) * (p + 1 + j < pool.end[part, None])
            hit = (q.argmax(-1) == t.argmax(-1)).float()
            lq, lt = q.log_softmax(-1), t.log_softmax(-1)
            both = torch.minimum(lq, lt).exp().sum(-1)
            text = x[:, 2 + j:2 + j + n, None]
            take = (lq - lt).gather(-1, text)[..., 0].exp().clamp(max=1)
            for i, (kind, ok) in enumerate(((greedy, hit), (~greedy, both))):
                sums[i, j] += torch.stack([(asked * ok)[kind].sum(), asked[kind].sum()]).double().cpu()
            alive = alive * torch.where(greedy[:, None], hit, take)
    rate = (sums[..., 0] / sums[..., 1].clamp(min=1e-9)).tolist()
    return {k: [round(v, 4) for v in r] for k, r in zip(("greedy", "temperature_1"), rate)}


def save(m, out):
    """Writes the head in BF16."""
    from safetensors.torch import save_file
    save_file({n: t.detach().to(torch.bfloat16).cpu().contiguous() for n, t in m.state_dict().items() if n.startswith("mtp.")},
              os.path.join(out, "mtp.safetensors"))


def train(a):
    """Rollouts, then steps until the time is up; Muon for the matrices, AdamW for the norms, linear to zero."""
    torch.manual_seed(R.SEED)
    os.makedirs(a.out, exist_ok=True)
    m = M.load(a.assets, torch.bfloat16 if a.device == "cuda" else torch.float32).to(a.device)
    m.model.requires_grad_(False)
    pool = Pool(m, a)
    N = len(pool.x)
    kept = min(WATCHED, N // 4)
    watched = torch.arange(N - kept, N, device=a.device)
    own = (pool.end.clamp(max=a.length) - pool.prompt).clamp(min=0)
    log = [{"rows": N, "tokens": pool.x.numel(), "continued": int(own.sum()), "ended": int((pool.end < a.length).sum()),
            "seconds": round(time.time() - R.START, 1)}, {"step": 0, "watched": watch(m, pool, watched)}]
    for r in log:
        R.say(json.dumps(r))
    mats, rest = R.split_params(m.mtp)
    muon, adam = R.Muon(mats), torch.optim.AdamW(rest, lr=1e-3, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0)
    work = Work(m, pool, a.rows, a.device)
    run = captured(work, [*mats, *rest]) if a.device == "cuda" else work
    R.say("compiled")
    order, n, t0 = torch.randperm(0), 0, time.time()
    total = R.START + a.seconds - t0
    saved = t0
    while (now := time.time()) - t0 < total:
        if len(order) < a.rows:
            order = torch.randperm(N - kept)
        pick, order = order[:a.rows].to(a.device), order[a.rows:]
        for dst, src in zip(work.inputs, pool.take(pick)):
            dst.copy_(src)
        parts, right = run()
        scale = min(1.0, (n + 1) / 50) * min(1.0, (1 - (now - t0) / total) / 0.8)
        for g in adam.param_groups:
            g["lr"] = 2e-3 * scale
        adam.step()
        muon.step(a.lr * scale)
        if a.device != "cuda":
            m.zero_grad(set_to_none=True)
        n += 1
        if n % 20 == 0:
            rec = {"step": n, "t": round(now - t0, 1), "nats": [round(v.item(), 4) for v in parts], "right": [round(v.item(), 4) for v in right]}
            if n % 200 == 0:
                log.append(rec)
                R.say(json.dumps(rec))
        if now - saved > total / 4:
            saved = now
            save(m, a.out)
            log.append({"step": n, "watched": watch(m, pool, watched)})
            R.say(json.dumps(log[-1]))
    with torch.no_grad():
        for p in m.mtp.parameters():
            p.copy_(p.bfloat16().float())
    save(m, a.out)
    log.append({"step": n, "positions": n * a.rows * pool.T, "seconds": round(time.time() - R.START, 1), "watched": watch(m, pool, watched)})
    R.say(json.dumps(log[-1]))
    with open(os.path.join(a.out, "mtp_log.jsonl"), "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in log)


def layout(data):
    """Header of a safetensors file, and where its tensors' bytes begin."""
    n = int.from_bytes(data[:8], "little")
    return json.loads(data[8:8 + n]), 8 + n


def install(a):
    """Puts the trained head's bytes into model.safetensors; prints the digest of all other bytes, which stays."""
    path = os.path.join(a.assets, "model.safetensors")
    data, head = bytearray(open(path, "rb").read()), open(os.path.join(a.out, "mtp.safetensors"), "rb").read()
    (old, at), (new, src) = layout(data), layout(head)
    new.pop("__metadata__", None)
    names = {n for n in old if n.startswith("mtp.")}
    if set(new) != names:
        raise SystemExit(f"head has other tensors: {sorted(set(new) ^ names)}")

    def others():
        rest = bytearray(data)
        for n in names:
            b, e = old[n]["data_offsets"]
            rest[at + b:at + e] = bytes(e - b)
        return hashlib.sha256(rest).hexdigest()
    before = others()
    for n in names:
        if (new[n]["dtype"], new[n]["shape"]) != (old[n]["dtype"], old[n]["shape"]):
            raise SystemExit(f"{n}: {new[n]} for {old[n]}")
        (b, e), (b2, e2) = old[n]["data_offsets"], new[n]["data_offsets"]
        data[at + b:at + e] = head[src + b2:src + e2]
    if others() != before:
        raise SystemExit("bytes outside the head changed")
    with open(path, "wb") as f:
        f.write(data)
    print(json.dumps({"head_tensors": len(names), "all_other_bytes_sha256": before}))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", choices=["train", "install"])
    ap.add_argument("--assets", required=True)
    ap.add_argument("--openings", default="")
    ap.add_argument("--out", required=True)
    ap.add_argument("--seconds", type=float, default=400)
    ap.add_argument("--rollout-seconds", type=float, default=150, help="no further batch is begun after that")
    ap.add_argument("--rollouts", type=int, default=100, help="batches at most")
    ap.add_argument("--batch", type=int, default=8192)
    ap.add_argument("--length", type=int, default=518)
    ap.add_argument("--rows", type=int, default=128)
    ap.add_argument("--lr", type=float, default=0.012)
    ap.add_argument("--device", default="cuda")
    a = ap.parse_args()
    {"train": train, "install": install}[a.what](a)


if __name__ == "__main__":
    main()
