"""Rows that heads are trained on: tokens with the trunk's hidden states, of the engine's exports or of rollouts made here."""

import glob
import json
import os
import time

import numpy as np
import torch

import train as R
from decode import Decoder

DEPTH = 4
HARD = 0.6
PROMPT = 0.3
SHORTEST = 48


class Pool:
    """Tokens x [N,L], the trunk's hidden h [N,>=T,H], the residual streams after some numbers of layers, side by side, tapped
    [N,>=T,H*taps], and per row the length of what was given, the end (row end-1 is the last that has a state) and whether the
    trunk continued it greedily. T is the number of rows that are used: DEPTH tokens more are known behind each start."""

    def __init__(self, x, h, tapped, prompt, end, greedy):
        self.x, self.h, self.tapped, self.prompt, self.end, self.greedy = x, h, tapped, prompt, end, greedy
        self.T = x.shape[1] - DEPTH - 2

    def take(self, rows):
        """Tokens, hidden, weight and share of the first choice, the last two by the trunk's row that a draft is held against."""
        r = torch.arange(self.T, device=self.x.device)
        own = r >= self.prompt[rows, None] - 1
        weight = torch.where(own, 1.0, PROMPT) * (r < self.end[rows, None])
        return self.x[rows].long(), self.h[rows, :self.T], weight, HARD * (own & self.greedy[rows, None])

    def continued(self):
        """Where a row's tokens are the trunk's own [N,L], the end of text behind them included."""
        r = torch.arange(self.x.shape[1], device=self.x.device)
        return (r >= self.prompt[:, None]) & (r <= self.end[:, None])


def blank(m, a, taps):
    """A batch of nonsense of the shapes that a pool gives, to compile with before there is one."""
    H, B = m.cfg["hidden_size"], a.rows
    def states(width):
        return torch.randn(B, a.length, width, device=a.device).to(m.dtype)
    x = torch.randint(0, m.cfg["vocab_size"], (B, a.length), device=a.device).to(torch.int16)
    return Pool(x, states(H), states(H * taps), torch.full((B,), SHORTEST, device=a.device), torch.full((B,), a.length, device=a.device),
                torch.ones(B, dtype=torch.bool, device=a.device))


def read(folder, taps, length, m, device):
    """One export of `exacta hidden`: the fields of a Pool, rows cut or filled up to length."""
    from safetensors import safe_open
    about = json.load(open(os.path.join(folder, "export.json")))
    if about["format"] != "exacta-hidden-1" or about["taps"] != list(taps) or about["hidden"] != m.cfg["hidden_size"]:
        raise SystemExit(f"{folder}: format {about['format']}, taps {about['taps']}, hidden {about['hidden']}; wanted exacta-hidden-1, "
                         f"{list(taps)}, {m.cfg['hidden_size']}")
    r = torch.arange(length, device=device)
    for file in sorted(glob.glob(os.path.join(folder, "hidden-*.safetensors"))):
        with safe_open(file, "pt", device=device) as f:
            x, starts, prompts, h, tapped = (f.get_tensor(n) for n in ("tokens", "starts", "prompts", "hidden", "taps"))
        starts = starts.long()
        size = (starts[1:] - starts[:-1]).clamp(max=length)
        at = starts[:-1, None] + torch.minimum(r, size[:, None] - 1)
        filled = torch.where(r < size[:, None], x[at], R.EOT).to(torch.int16)
        greedy = torch.full_like(size, about["temperature"] == 0, dtype=torch.bool)
        yield filled, h[at].to(m.dtype), tapped[at].to(m.dtype), torch.minimum(prompts.long(), size), size, greedy


def exported(m, folders, a, taps):
    """A Pool of the exports in some folders, in one random order. Those without export.json at the time a.wait, in seconds from
    the program's start, are left out."""
    ready = []
    for folder in folders:
        while not (done := os.path.exists(os.path.join(folder, "export.json"))) and time.time() - R.START < a.wait:
            time.sleep(0.2)
        if done:
            ready.append(folder)
        else:
            R.say("no export in", folder)
    parts = [p for folder in ready for p in read(folder, taps, a.length, m, a.device)]
    if not parts:
        raise SystemExit(f"no rows in {folders}")
    return mixed(parts)


def mixed(parts):
    """A Pool of the rows of several tuples of its fields, in one random order."""
    order = torch.randperm(sum(len(p[0]) for p in parts), generator=torch.Generator().manual_seed(R.SEED)).to(parts[0][0].device)
    return Pool(*(torch.cat([p[i] for p in parts])[order] for i in range(6)))


def joined(pools):
    """The rows of several pools."""
    T = min(p.h.shape[1] for p in pools)
    return mixed([(p.x, p.h[:, :T], p.tapped[:, :T], p.prompt, p.end, p.greedy) for p in pools])


def rolled(m, a, taps):
    """A Pool of openings that the trunk continues here, three rows of four greedily, the rest at temperature 1."""
    dev = a.device
    ids = torch.from_numpy(np.load(a.openings)["ids"].astype(np.int64))
    gen = torch.Generator().manual_seed(R.SEED)
    batches = min(a.rollouts, len(ids) // a.batch)
    x = torch.zeros(batches * a.batch, a.length, dtype=torch.int16, device=dev)
    h = torch.zeros(len(x), a.length - 1, m.cfg["hidden_size"], dtype=m.dtype, device=dev)
    tapped = torch.zeros(len(x), a.length - 1, len(taps) * m.cfg["hidden_size"], dtype=m.dtype, device=dev)
    prompt = torch.randint(min(SHORTEST, ids.shape[1] // 2), ids.shape[1] + 1, (len(x),), generator=gen).to(dev)
    heat = torch.tensor([0.0, 0.0, 0.0, 1.0], device=dev).repeat(a.batch // 4)
    dec = Decoder(m, a.batch, a.length, dev, taps)
    done = 0
    for i in range(0, len(x), a.batch):
        part = slice(i, i + a.batch)
        x[part] = dec.rollout(ids[part].to(dev), prompt[part], a.length - ids.shape[1], heat, h[part], tapped[part]).to(torch.int16)
        done = i + a.batch
        R.say("rollouts", done)
        if time.time() - R.START > a.rollout_seconds:
            break
    x, h, tapped, prompt = x[:done], h[:done], tapped[:done], prompt[:done]
    stop = (x == R.EOT) & (torch.arange(a.length, device=dev) >= prompt[:, None])
    end = torch.where(stop.any(1), stop.long().argmax(1), a.length)
    return Pool(x, h, tapped, prompt, end, (heat == 0).repeat(done // a.batch))
