"""Trains the model on one GPU, to a time budget, in one or several runs that continue each other.

    python train.py tokens  --shards DIR... --tokenizer FILE --out FILE.npy
    python train.py smoke   --tokens FILE.npy
    python train.py train   --tokens FILE.npy... --work DIR --seconds S --total T [--resume]

`train` follows a warmup, constant, linear-to-zero schedule over the total of T training seconds; the MTP chain joins after
half of it, with gradient into the trunk. The head alone is trained by heads.py, after settle.py has changed the trunk.
"""

import argparse
import glob
import json
import lzma
import math
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

import model as M
from chain import Chain, captured, compiled

SEED = 20261130
T = 2048
EOT = 4095
START = time.time()


def say(*a):
    print(f"[{time.time() - START:6.1f}]", *a, flush=True)


def make_tokens(shards, tokenizer, out):
    """Tokenises the shards (files split by NUL) into one uint16 array, files shuffled, each closed by the end token."""
    from tokenizers import Tokenizer
    from concurrent.futures import ThreadPoolExecutor
    tok = Tokenizer.from_file(tokenizer)
    names = sorted(n for d in shards for n in glob.glob(os.path.join(d, "*.xz")))
    with ThreadPoolExecutor(8) as pool:
        texts = [t for raw in pool.map(lambda n: lzma.decompress(open(n, "rb").read()), names) for t in raw.decode().split("\0")]
    say("files", len(texts), "chars", sum(map(len, texts)))
    ids = []
    for i in range(0, len(texts), 2048):
        ids += [np.array(e.ids + [EOT], dtype=np.uint16) for e in tok.encode_batch_fast(texts[i:i + 2048], add_special_tokens=False)]
    order = np.random.default_rng(SEED).permutation(len(ids))
    flat = np.concatenate([ids[i] for i in order])
    np.save(out + ".tmp.npy", flat)
    os.replace(out + ".tmp.npy", out)
    say("tokens", len(flat))


def zeropower(G):
    """Newton-Schulz orthogonalisation of a stack of matrices (Muon)."""
    X = G.bfloat16()
    tall = X.shape[-2] > X.shape[-1]
    if tall:
        X = X.mT
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for a, b, c in ((4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037),
                    (2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012)):
        A = X @ X.mT
        X = a * X + (b * A + c * A @ A) @ X
    return X.mT if tall else X


class Muon:
    """Muon over matrices grouped by shape; each group is updated as one stack."""

    def __init__(self, params, wd=0.1, momentum=0.95):
        self.groups, self.wd, self.mu = {}, wd, momentum
        for p in params:
            self.groups.setdefault(tuple(p.shape), []).append(p)
        self.buf = {s: torch.zeros(len(g), *s, device=g[0].device) for s, g in self.groups.items()}

    @torch.no_grad()
    def step(self, lr):
        for s, ps in self.groups.items():
            if ps[0].grad is None:
                continue
            g = torch.stack([p.grad for p in ps])
            buf = self.buf[s]
            buf.lerp_(g, 1 - self.mu)
            u = zeropower(g.lerp(buf, self.mu)).float() * (max(1, s[0] / s[1]) ** 0.5 * -lr)
            torch._foreach_mul_(ps, 1 - lr * self.wd)
            torch._foreach_add_(ps, list(u.unbind(0)))


def split_params(module):
    """Matrices for Muon; the rest (embedding, norms, convolutions, gates) for AdamW."""
    mats, rest = [], []
    for n, p in module.named_parameters():
        small = "embed_tokens" in n or p.ndim != 2 or "in_proj_a" in n or "in_proj_b" in n
        (rest if small else mats).append(p)
    return mats, rest


class Trainer:
    """Model, optimisers and compiled pieces."""

    def __init__(self, rows, device="cuda"):
        self.device, self.rows = device, rows
        torch.manual_seed(SEED)
        self.m = M.Model(dtype=torch.bfloat16 if device == "cuda" else torch.float32)
        with torch.no_grad():
            for n, p in self.m.named_parameters():
                if n.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                    p.zero_()
                elif p.ndim == 2 and "embed" not in n:
                    p.normal_(std=0.6 * p.shape[1] ** -0.5)
        self.m.to(device)
        if device == "cuda":
            import gdn_op
            M.GatedDeltaNet.kernel = staticmethod(gdn_op.gdn_fla)
            torch._dynamo.config.cache_size_limit = 64
            for layer in list(self.m.model.layers):
                layer.compile(dynamic=False)
        comp = compiled(device)
        self.ce, self.final = comp(ce), comp(self._final)
        self.drafts = Chain(self.m, T, device)
        tm, tr = split_params(self.m.model)
        dm, dr = split_params(self.m.mtp)
        self.muon, self.dmuon = Muon(tm), Muon(dm)
        kw = dict(betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, fused=device == "cuda")
        self.adam, self.dadam = torch.optim.AdamW(tr, lr=1e-3, **kw), torch.optim.AdamW(dr, lr=1e-3, **kw)

    def _final(self, x):
        return self.m.model.norm(x)

    def trunk(self, ids):
        x = self.m.embed(ids)
        for layer in self.m.model.layers:
            x = layer(x, *self.drafts.tables[0])
        return self.final(x)

    def loss(self, x, steps, weight):
        """Trunk loss, and the chain's on half of the rows."""
        h = self.trunk(x[:, :T])
        main = self.ce(h, self.m.model.embed_tokens.weight, x[:, 1:T + 1])
        if not steps:
            return main, [main.detach()]
        half = max(1, x.shape[0] // 2)
        E = self.m.model.embed_tokens.weight
        drafts = [self.ce(d, E, x[:half, 2 + j:T + 2 + j]) for j, d in enumerate(self.drafts.run(x[:half], h[:half], steps))]
        return main + weight * sum(drafts), [main.detach()] + [d.detach() for d in drafts]

    def zero(self):
        for p in self.m.parameters():
            p.grad = None

    def step(self, scale, drafts, lr=0.02, alr=4e-3):
        for o, mu in ((self.adam, self.muon),) + (((self.dadam, self.dmuon),) if drafts else ()):
            for g in o.param_groups:
                g["lr"] = alr * scale
            o.step()
            mu.step(lr * scale)

    def captured(self, steps, weight):
        """loss and backward as one CUDA graph over a static input; returns a function of the token rows."""
        static = torch.randint(0, 4000, (self.rows, T + 6), device="cuda")

        def work():
            total, parts = self.loss(static, steps, weight)
            total.backward()
            return parts
        replay = captured(work, list(self.m.parameters()))

        def run(x):
            static.copy_(x)
            return replay()
        return run

    def state(self, extra):
        return {"model": self.m.state_dict(), "adam": self.adam.state_dict(), "dadam": self.dadam.state_dict(),
                "muon": self.muon.buf, "dmuon": self.dmuon.buf, **extra}

    def restore(self, s):
        self.m.load_state_dict(s["model"])
        self.adam.load_state_dict(s["adam"])
        self.dadam.load_state_dict(s["dadam"])
        for a, b in ((self.muon.buf, s["muon"]), (self.dmuon.buf, s["dmuon"])):
            for k in a:
                a[k].copy_(b[k])


def ce(h, E, y):
    """Mean cross entropy of the tied head."""
    return F.cross_entropy(F.linear(h, E.to(h.dtype)).flatten(0, 1).float(), y.flatten())


class Rows:
    """Random-order rows of T+6 tokens from a flat stream on the GPU."""

    def __init__(self, files, device, seed=SEED):
        flat = np.concatenate([np.load(f) for f in files])
        self.flat = torch.from_numpy(flat.astype(np.int16)).to(device)
        self.gen = np.random.default_rng(seed)
        self.span = torch.arange(T + 6, device=device)
        self.queue = np.zeros(0, dtype=np.int64)
        self.epoch = 0

    def next(self, rows):
        while len(self.queue) < rows:
            off = self.gen.integers(0, T)
            starts = np.arange(off, len(self.flat) - T - 6, T)
            self.queue = np.concatenate([self.queue, self.gen.permutation(starts)])
            self.epoch += 1
        s, self.queue = self.queue[:rows], self.queue[rows:]
        return self.flat[torch.from_numpy(s).to(self.flat.device)[:, None] + self.span].long()


def held_rows(path, tokenizer, device):
    """The held-out files as rows of T+6, with the count of characters, for watching the training."""
    from tokenizers import Tokenizer
    tok = Tokenizer.from_file(tokenizer)
    texts = [json.loads(ln)["t"] for ln in lzma.open(path, "rt")]
    flat = [i for t in texts for i in tok.encode(t, add_special_tokens=False).ids + [EOT]]
    chars = sum(map(len, texts)) / len(flat)
    n = (len(flat) - 6) // T
    flat = torch.tensor(flat, device=device)
    return torch.stack([flat[i * T:i * T + T + 6] for i in range(n)]), chars


def watch(tr, held, chars, rows, drafts):
    """Bits per character on the held-out rows, and the drafts' conditional greedy agreement with the trunk along real text.

    Runs with gradients on, so that the compiled pieces of the training serve here too.
    """
    tot, hit = [], []
    for i in range(0, len(held) - rows + 1, rows):
        x = held[i:i + rows]
        h = tr.trunk(x[:, :T]).detach()
        tot.append(tr.ce(h, tr.m.model.embed_tokens.weight, x[:, 1:T + 1]).item())
        if drafts and i == 0:
            want = tr.m.head(h).detach().argmax(-1)
            for j, hh in enumerate(tr.drafts.run(x, h, 4)):
                ok = tr.m.head(hh)[:, :T - 8].argmax(-1) == want[:, 1 + j:T - 7 + j]
                hit.append(round(ok.float().mean().item(), 3))
    return sum(tot) / len(tot) / math.log(2) / chars, hit


def save_split(tr, out, name):
    """The exported weights in two pieces, since one piece may not be larger than 16 MiB."""
    folder = os.path.join(out, "tmp")
    M.export(tr.m, folder)
    data = open(os.path.join(folder, "model.safetensors"), "rb").read()
    half = len(data) // 2
    for i, part in enumerate((data[:half], data[half:])):
        with open(os.path.join(out, f"{name}.{i}"), "wb") as f:
            f.write(part)
    for n in os.listdir(folder):
        os.remove(os.path.join(folder, n))
    os.rmdir(folder)


def scale_at(f, warm):
    """Learning-rate factor at a fraction f of the training time: warmup, constant, linear to zero over the last half."""
    return min(1.0, warm) * min(1.0, (1 - f) / 0.5)


def train(a):
    """One run of the main phase."""
    dev = a.device
    tr = Trainer(a.rows, dev)
    os.makedirs(a.work, exist_ok=True)
    ckpt, out = os.path.join(a.work, "ckpt.pt"), os.environ.get("OUT", a.work)
    done, n, log = 0.0, 0, []
    if a.resume:
        s = torch.load(ckpt, map_location=dev, weights_only=False)
        tr.restore(s)
        done, n, log = s["done"], s["n"], s["log"]
    runs = {}

    def runner(steps):
        if steps not in runs:
            runs.clear()
            torch.cuda.empty_cache() if dev == "cuda" else None
            runs[steps] = tr.captured(steps, a.weight) if a.graph else plain(tr, steps, a.weight)
        return runs[steps]
    first = 3 if done >= a.join * a.total else 0
    runner(first)
    say("compiled")
    while not all(os.path.exists(f) for f in a.tokens):
        time.sleep(0.2)
    rows = Rows(a.tokens, dev, SEED + n)
    say("tokens", len(rows.flat), "params", sum(p.numel() for p in tr.m.parameters()))
    held, chars = held_rows(a.held, a.tokenizer, dev) if a.held else (None, 0)
    t0 = time.time()
    spent, saved = 0.0, t0
    while spent < a.seconds and done + spent < a.total:
        drafts = 3 if done + spent >= a.join * a.total else 0
        if drafts and 3 not in runs:
            tc = time.time()
            runner(3)
            t0 += time.time() - tc
            say("chain joined after", f"{time.time() - tc:.1f} s of compiling")
        parts = runner(drafts)(rows.next(a.rows))
        tr.step(scale_at((done + spent) / a.total, (n + 1) / 100), drafts)
        if not a.graph:
            tr.zero()
        n += 1
        if n % 5 == 0 and dev == "cuda":
            torch.cuda.synchronize()
        spent = time.time() - t0
        if n % a.every == 0:
            rec = {"step": n, "t": round(done + spent, 1), "loss": [round(p.item(), 4) for p in parts]}
            log.append(rec)
            if n % (a.every * 4) == 0:
                say(json.dumps(rec))
        if time.time() - saved > 150:
            save_split(tr, out, "mid")
            saved = time.time()
            if held is not None:
                bpc, hit = watch(tr, held, chars, a.rows, drafts)
                log.append({"step": n, "held_bpc": round(bpc, 4), "hit": hit})
                say(f"held-out {bpc:.4f} bits/char", hit)
    torch.save(tr.state({"done": done + spent, "n": n, "log": log}), ckpt)
    save_split(tr, out, "model")
    if held is not None:
        bpc, hit = watch(tr, held, chars, a.rows, drafts)
        log.append({"step": n, "held_bpc": round(bpc, 4), "hit": hit})
        say(f"held-out {bpc:.4f} bits/char", hit, "epochs", rows.epoch, "tokens/s", int(a.rows * T * n / (done + spent)))
    with open(os.path.join(out, "log.jsonl"), "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in log)


def plain(tr, steps, weight):
    """loss and backward without a graph."""
    def run(x):
        total, parts = tr.loss(x, steps, weight)
        total.backward()
        return parts
    return run


def smoke(a):
    """Checks the operator against the reference and prints what a step costs."""
    import gdn_op
    dev = "cuda"
    torch.manual_seed(0)
    q, k = (F.normalize(torch.randn(4, 512, 2, 64, device=dev), dim=-1) for _ in range(2))
    v, do = (torch.randn(4, 512, 4, 64, device=dev) for _ in range(2))
    g, b = -torch.rand(4, 512, 4, device=dev) * 0.2, torch.rand(4, 512, 4, device=dev)
    ref = [t.clone().requires_grad_() for t in (q, k, v, g, b)]
    o = M.gdn_reference(*ref)
    (o * do).sum().backward()
    got = [t.clone().to(torch.bfloat16 if i < 3 else torch.float32).requires_grad_() for i, t in enumerate((q, k, v, g, b))]
    o2 = gdn_op.gdn_fla(*got)
    (o2.float() * do).sum().backward()
    errs = [((x - y).norm() / y.norm()).item() for x, y in [(o2.float(), o)] + [(x.grad.float(), y.grad) for x, y in zip(got, ref)]]
    say("gdn errors o q k v g beta", [f"{e:.1e}" for e in errs])
    for rows, graph in ((64, False), (64, True)):
        tr = Trainer(rows)
        x = torch.randint(0, 4000, (rows, T + 6), device=dev)
        for steps in (0, 3):
            t = time.time()
            try:
                run = tr.captured(steps, 0.2) if graph else plain(tr, steps, 0.2)
                for _ in range(3):
                    run(x)
                    tr.step(0.01, steps)
                torch.cuda.synchronize()
                tc = time.time() - t
                t = time.time()
                for _ in range(10):
                    run(x)
                    if not graph:
                        tr.zero() if _ < 9 else None
                t1 = (torch.cuda.synchronize(), time.time() - t)[1] / 10
                t = time.time()
                for _ in range(5):
                    tr.step(0.01, steps)
                t2 = (torch.cuda.synchronize(), time.time() - t)[1] / 5
                say(f"rows {rows} graph {graph} chain {steps}: compile {tc:.1f} s, fwd+bwd {t1 * 1e3:.1f} ms, optimiser {t2 * 1e3:.1f} ms, "
                    f"{rows * T / (t1 + t2) / 1e6:.2f} M tok/s, {torch.cuda.max_memory_allocated() >> 30} GiB")
            except Exception as e:
                say("FAILED", rows, graph, steps, repr(e)[-900:])
        if not graph:
            from torch.profiler import ProfilerActivity, profile
            tr.zero()
            with profile(activities=[ProfilerActivity.CUDA]) as prof:
                plain(tr, 0, 0.2)(x)
                torch.cuda.synchronize()
            for e in sorted(prof.key_averages(), key=lambda e: -e.self_device_time_total)[:14]:
                say(f"  {e.self_device_time_total / 1e3:7.2f} ms x{e.count:4d} {e.key[:90]}")
        del tr
        run = None
        torch.cuda.empty_cache()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", choices=["tokens", "smoke", "train"])
    ap.add_argument("--shards", nargs="*", default=[])
    ap.add_argument("--tokenizer", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tokenizer.json"))
    ap.add_argument("--tokens", nargs="*", default=[])
    ap.add_argument("--held", default="")
    ap.add_argument("--out", default="")
    ap.add_argument("--work", default="work/run")
    ap.add_argument("--rows", type=int, default=64)
    ap.add_argument("--seconds", type=float, default=60)
    ap.add_argument("--total", type=float, default=60)
    ap.add_argument("--join", type=float, default=0.5)
    ap.add_argument("--weight", type=float, default=0.2)
    ap.add_argument("--every", type=int, default=50)
    ap.add_argument("--graph", type=int, default=1)
    ap.add_argument("--resume", action="store_true")
    ap.add_argument("--device", default="cuda")
    a = ap.parse_args()
    torch.set_float32_matmul_precision("high")
    if a.what == "tokens":
        make_tokens(a.shards, a.tokenizer, a.out)
    else:
        {"smoke": smoke, "train": train}[a.what](a)


if __name__ == "__main__":
    sys.exit(main())
