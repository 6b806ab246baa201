"""Measures the exported checkpoint, in float32 on the CPU.

    python evaluate.py bpc      --heldout heldout.jsonl                  # bits per character, by module
    python evaluate.py overlap  --heldout heldout.jsonl --corpus corpus.jsonl
    python evaluate.py generate --prompts prompts.jsonl --heldout ...    # acceptance by position, repeated 4-grams
    python evaluate.py agree    --heldout heldout.jsonl                  # against transformers' Qwen3_5ForCausalLM
    python evaluate.py prompts  --heldout heldout.jsonl --write FILE     # cuts the 48 prompts

Each prints one JSON object; `all` runs them together.
"""

import argparse
import collections
import hashlib
import json
import math
import os
import random
import sys

import torch

import model as M
from decode import Decoder

HERE = os.path.dirname(os.path.abspath(__file__))
ASSETS = os.path.dirname(HERE)
CONTEXT = 4096
NEW = 256
DEPTH = 4


def tokenizer():
    from tokenizers import Tokenizer
    return Tokenizer.from_file(os.path.join(ASSETS, "tokenizer.json"))


def held_files(path):
    """The held-out files: dicts of module, version, licence, path, text."""
    rows = []
    for ln in open(path):
        d = json.loads(ln)
        rows.append({"module": d["m"], "version": d["v"], "licence": d["l"], "path": d["p"], "text": d["t"]})
    return rows


@torch.no_grad()
def bits(m, tok, text):
    """Bits and characters of one file, each window of CONTEXT tokens from an empty state, the first token unscored."""
    ids = tok.encode(text, add_special_tokens=False).ids
    total, scored = 0.0, 0
    for i in range(0, len(ids), CONTEXT):
        part = torch.tensor([ids[i:i + CONTEXT]])
        if part.shape[1] < 2:
            continue
        lp = torch.log_softmax(m(part)[0, :-1].float(), -1)
        total -= lp.gather(-1, part[0, 1:, None]).sum().item()
        scored += len(tok.decode(part[0, 1:].tolist()))
    return total / math.log(2), scored, len(ids)


def bpc(m, tok, files):
    """Bits per character by module and over all."""
    acc = collections.defaultdict(lambda: [0.0, 0, 0, 0])
    for f in files:
        b, c, n = bits(m, tok, f["text"])
        for key in (f["module"], "all"):
            a = acc[key]
            a[0], a[1], a[2], a[3] = a[0] + b, a[1] + c, a[2] + n, a[3] + 1
    return {k: {"bits_per_char": round(b / c, 4), "chars": c, "tokens": n, "files": k2} for k, (b, c, n, k2) in acc.items()}


def overlap(files, corpus_path):
    """Share of each module's telling lines (30 characters and more) that stand anywhere in the corpus, in files' order."""
    import corpus
    want = {k for f in files for k in corpus.line_keys(f["text"])}
    seen = set()
    for ln in open(corpus_path):
        seen |= corpus.line_keys(json.loads(ln)["t"]) & want
    out = collections.defaultdict(lambda: [0, 0])
    for f in files:
        k = corpus.line_keys(f["text"])
        for key in (f["module"], "all"):
            out[key][0] += len(k & seen)
            out[key][1] += len(k)
    return {k: round(a / b, 4) for k, (a, b) in out.items()}


def repeated(seq, n=4):
    """Share of the n-grams of a sequence that stood in it before."""
    grams = [tuple(seq[i:i + n]) for i in range(len(seq) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


@torch.no_grad()
def acceptance(m, ids, start, sampled, gen):
    """Verdicts of a chain of DEPTH drafts begun at every position n >= start of one sequence (n: the newest token).

    Greedy: a draft is right where it equals the trunk's argmax. Sampled (temperature 1, rejection rule): the expected
    acceptance sum(min(p, q)) under the drafts drawn from the chain, each judged by the trunk after the drafts before it; that
    needs the trunk after tokens off the text, so it is counted only along chains whose drafts so far equal the text.
    """
    x = torch.tensor([ids])
    h = m.hidden(x)
    logits = m.head(h)[0].float()
    T = len(ids) - 1
    out = []
    cur, past, alive = h[:, :T], [], torch.ones(T, dtype=torch.bool)
    feed = x[:, 1:]
    stats = []
    for j in range(DEPTH):
        hh = m.draft_step(feed, cur, j, past, M.attend_dense)
        q = m.head(hh)[0].float()
        n = T - j - 1  # starts with the trunk's row p+1+j inside the sequence
        if n <= 0:
            break
        rows = torch.arange(n)
        target = logits[1 + j:1 + j + n]
        ok = alive[:n] & (rows + 1 >= start) & (rows + 1 + j < len(ids) - 1)
        if sampled:
            p, qq = torch.softmax(target, -1), torch.softmax(q[:n], -1)
            a = torch.minimum(p, qq).sum(-1)
            stats.append((a[ok].sum().item(), int(ok.sum())))
            nxt = torch.multinomial(torch.softmax(q, -1), 1, generator=gen)[:, 0]
            # Go on only where a draw of the accepted draft is the text's own token: the text is itself a draw of the trunk.
            text = torch.cat([x[0, 2 + j:], x.new_zeros(j + 1)])[:T]
            take = torch.rand(T, generator=gen) < torch.cat([torch.minimum(torch.ones(n), qq.gather(-1, text[:n, None])[:, 0]
                                                             / p.gather(-1, text[:n, None])[:, 0]), torch.zeros(T - n)])
            nxt = torch.where(take, text, nxt)
            alive = alive & take
        else:
            want = target.argmax(-1)
            nxt = q.argmax(-1)
            hit = nxt[:n] == want
            stats.append((int((hit & ok).sum()), int(ok.sum())))
            alive = torch.cat([alive[:n] & hit, torch.zeros(T - n, dtype=torch.bool)])
        cur = hh
        feed = nxt[None]
    return stats


def tabulate(stats):
    """Conditional and unconditional acceptance by position, and the accept length, from summed (accepted, asked)."""
    cond = [a / max(1, n) for a, n in stats]
    run, un = 1.0, []
    for c in cond:
        run *= c
        un.append(run)
    return {"conditional": [round(c, 3) for c in cond], "unconditional": [round(u, 3) for u in un],
            "accept_length_k": {str(k): round(1 + sum(un[:k]), 3) for k in range(1, len(un) + 1)}, "starts": stats[0][1]}


def continue_all(m, tok, prompts, heat):
    """(prompt ids, new ids up to the end token) for every prompt, decoded as one batch."""
    ids = [tok.encode(p["prompt"], add_special_tokens=False).ids for p in prompts]
    width = max(map(len, ids))
    x = torch.tensor([i + [0] * (width - len(i)) for i in ids])
    d = Decoder(m, len(ids), width + NEW, "cpu")
    out = d.rollout(x, torch.tensor([len(i) for i in ids]), NEW, torch.full((len(ids),), heat)).tolist()
    rows = []
    for i, seq in zip(ids, out):
        new = seq[len(i):len(i) + NEW]
        rows.append((i, new[:new.index(4095)] if 4095 in new else new))
    return rows


def generate(m, tok, prompts, files, dump=""):
    """Continues the prompts, greedily and at temperature 1, and measures repetition and acceptance."""
    gen = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    texts = {(f["module"], f["path"]): f["text"] for f in files}
    res = {}
    real = []
    for p in prompts:
        text = texts[(p["source"]["module"], p["source"]["path"])]
        rest = tok.encode(text[p["source"]["start"] + len(p["prompt"]):], add_special_tokens=False).ids[:NEW]
        if len(rest) == NEW:
            real.append(repeated(rest))
    res["repeated_4grams_real_text"] = round(sum(real) / len(real), 4)
    for name, heat in (("greedy", 0.0), ("temperature_1", 1.0)):
        sums = [[0.0, 0] for _ in range(DEPTH)]
        rep = []
        rows = continue_all(m, tok, prompts, heat)
        for ids, new in rows:
            seq = ids + new
            rep.append(repeated(new))
            if len(new) < 8:
                continue
            for s, (a, n) in zip(sums, acceptance(m, seq, len(ids), heat > 0, gen)):
                s[0] += a
                s[1] += n
        rep.sort()
        if dump:
            with open(dump + "." + name, "w") as f:
                f.writelines(json.dumps({"prompt": tok.decode(i), "new": tok.decode(n), "repeated": repeated(n)}) + "\n" for i, n in rows)
        print(name, "done", file=sys.stderr, flush=True)
        res[name] = tabulate(sums) | {"repeated_4grams": round(sum(rep) / len(rep), 4), "median": round(rep[len(rep) // 2], 4),
                                      "prompts_over_half": sum(r > 0.5 for r in rep)}
    return res


def agree(m, files, tok):
    """Largest logit difference from transformers, relative to the row's largest logit, over 12 windows of 300 tokens."""
    from transformers import AutoModelForCausalLM
    hf = AutoModelForCausalLM.from_pretrained(ASSETS, dtype=torch.float32)
    worst, same, n = 0.0, 0, 0
    for f in files[::max(1, len(files) // 12)][:12]:
        ids = torch.tensor([tok.encode(f["text"], add_special_tokens=False).ids[:300]])
        with torch.no_grad():
            a, b = m(ids)[0], hf(ids).logits[0]
        worst = max(worst, ((a - b).abs().amax(-1) / b.abs().amax(-1)).max().item())
        same += int((a.argmax(-1) == b.argmax(-1)).sum())
        n += len(a)
    return {"worst_relative_logit_difference": worst, "same_argmax": same, "positions": n}


def cut_prompts(files, tok, count=48):
    """Prompts of 64 to 300 tokens: a file's beginning or a stretch of it, ended after a line that opens or continues a body."""
    rnd = random.Random(20261130)
    by = collections.defaultdict(list)
    for f in files:
        if not f["path"].endswith("_test.go") and len(f["text"]) > 2500:
            by[f["module"]].append(f)
    for v in by.values():
        rnd.shuffle(v)
    out, mods, turn = [], sorted(by), 0
    while len(out) < count:
        mod = mods[turn % len(mods)]
        turn += 1
        if not by[mod]:
            continue
        f = by[mod].pop()
        by[mod].insert(0, f)
        lines = f["text"].splitlines(keepends=True)
        starts = [0] + [i for i, ln in enumerate(lines) if ln.startswith(("func ", "type ")) and i > 5]
        s = rnd.choice(starts)
        while s > 0 and lines[s - 1].startswith("//"):
            s -= 1
        offset = sum(map(len, lines[:s]))
        want = rnd.randint(64, 300)
        text, done = "", None
        for i in range(s, len(lines)):
            text += lines[i]
            n = len(tok.encode(text, add_special_tokens=False).ids)
            if n > 300:
                break
            t = lines[i].rstrip("\n")
            inside = t.endswith("{") or (t.startswith("\t") and t.strip() not in ("}", ")", "") and not t.strip().startswith("//"))
            if n >= min(want, 290) and inside and "import" not in t:
                done = text
                break
        left = len(tok.encode(f["text"][offset + len(done or ""):], add_special_tokens=False).ids)
        if not done or left < NEW or any(p["prompt"] == done for p in out):
            continue
        h = hashlib.sha256(done.encode()).hexdigest()[:6]
        out.append({"id": f"code-{len(out):02d}-{h}", "class": "code", "prompt": done,
                    "source": {"module": mod, "version": f["version"], "licence": f["licence"], "path": f["path"], "start": offset}})
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", choices=["bpc", "overlap", "generate", "agree", "prompts", "all"])
    ap.add_argument("--heldout", default="work/data/heldout.jsonl")
    ap.add_argument("--corpus", default="work/data/corpus.jsonl")
    ap.add_argument("--prompts", default=os.path.join(ASSETS, "prompts.jsonl"))
    ap.add_argument("--write", default=os.path.join(ASSETS, "prompts.jsonl"))
    ap.add_argument("--dump", default="", help="file name stem for the continuations themselves")
    ap.add_argument("--assets", default=ASSETS)
    ap.add_argument("--stride", type=int, default=1, help="bits per character of every n-th file only")
    ap.add_argument("--threads", type=int, default=torch.get_num_threads())
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    tok, files = tokenizer(), held_files(a.heldout)
    if a.what == "prompts":
        with open(a.write, "w") as f:
            f.writelines(json.dumps(p, ensure_ascii=False) + "\n" for p in cut_prompts(files, tok))
        return
    m = M.load(a.assets)
    out = {}
    if a.what in ("agree", "all"):
        out["transformers"] = agree(m, files, tok)
    if a.what in ("generate", "all"):
        out["generation"] = generate(m, tok, [json.loads(ln) for ln in open(a.prompts)], files, a.dump)
    if a.what in ("bpc", "all"):
        out["held_out"] = bpc(m, tok, files[::a.stride])
    if a.what in ("overlap", "all"):
        out["lines_seen_in_corpus"] = overlap(files, a.corpus)
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
