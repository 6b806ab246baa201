"""Builds the corpus, the tokenizer and the packed shards.

    python data.py corpus   --cache DIR --out DIR      # fetch, filter, dedupe: corpus.jsonl, heldout.jsonl, DATA_LICENSES.md
    python data.py tokenizer --out DIR --assets DIR    # byte-level BPE of 4096 on a sample: tokenizer.json
    python data.py shards   --out DIR --shards DIR     # xz shards of raw text, in two parts, for the training machine
    python data.py openings --out DIR --openings FILE  # beginnings of functions, types and files, for rollouts: npz of token ids
    python data.py ids      --openings FILE --ids FILE --first N   # those from row N on, as `exacta hidden --ids` reads them

The module list is modules.txt, the held-out one heldout.txt. Nothing here is random but for the fixed seed.
"""

import argparse
import hashlib
import json
import lzma
import multiprocessing as mp
import os
import random
import subprocess

import corpus

HERE = os.path.dirname(os.path.abspath(__file__))
SEED = 20261130
MODULE_CAP = 14_000_000
OPENING = 256
REGEX_C = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
EOT = "<|endoftext|>"


def read_list(name):
    """(path, version) pairs of a list file."""
    rows = [ln.split() for ln in open(os.path.join(HERE, name)) if ln.strip() and not ln.startswith("#")]
    return [(r[0], r[1]) for r in rows]


def load(args):
    """One module: its licence and its files, or the reason it was dropped."""
    path, version, cache = args
    if path == "std":
        root = os.path.join(subprocess.run(["go", "env", "GOROOT"], capture_output=True, text=True).stdout.strip(), "src")
        lic = "BSD"
    else:
        try:
            root = corpus.fetch(path, version, cache)
        except subprocess.CalledProcessError as e:
            return path, version, None, "not fetched: " + e.stderr.decode()[-200:], []
        lic = corpus.licence_of(root)
    if lic is None:
        return path, version, None, "licence", []
    files = list(corpus.read_module(root))
    order = random.Random(hashlib.sha256((path + str(SEED)).encode()).digest())
    total = sum(len(t) for _, t in files)
    if total > MODULE_CAP:
        dirs = sorted({os.path.dirname(r) for r, _ in files})
        order.shuffle(dirs)
        size = {d: 0 for d in dirs}
        for r, t in files:
            size[os.path.dirname(r)] += len(t)
        keep, acc = set(), 0
        for d in dirs:
            if acc + size[d] <= MODULE_CAP:
                keep.add(d)
                acc += size[d]
        files = [(r, t) for r, t in files if os.path.dirname(r) in keep]
    return path, version, lic, None, files


def build_corpus(cache, out):
    """Writes corpus.jsonl and heldout.jsonl and the licence table."""
    os.makedirs(out, exist_ok=True)
    held_keys, held_hash = set(), set()
    with open(os.path.join(out, "heldout.jsonl"), "w") as f:
        for path, version in read_list("heldout.txt"):
            _, _, lic, why, files = load((path, version, cache))
            if why:
                raise SystemExit(f"held-out {path}: {why}")
            for rel, text in files:
                f.write(json.dumps({"m": path, "v": version, "l": lic, "p": rel, "t": text}) + "\n")
                held_keys |= corpus.line_keys(text)
                held_hash.add(hash(text))
    seen, exact = set(), set()
    stats = {"files": 0, "bytes": 0, "exact": 0, "near": 0, "held": 0}
    table, dropped = [], []
    mods = [("std", "")] + read_list("modules.txt")
    with mp.Pool(2) as pool, open(os.path.join(out, "corpus.jsonl"), "w") as f:
        for path, version, lic, why, files in pool.imap(load, [(p, v, cache) for p, v in mods]):
            if why:
                dropped.append((path, version, why))
                continue
            n = size = 0
            for rel, text in files:
                h = hash(text)
                if h in exact or h in held_hash:
                    stats["exact"] += 1
                    continue
                exact.add(h)
                keys = corpus.line_keys(text)
                if keys and sum(k in held_keys for k in keys) > 0.25 * len(keys):
                    stats["held"] += 1
                    continue
                if len(keys) >= 4 and sum(k in seen for k in keys) > 0.5 * len(keys):
                    stats["near"] += 1
                    continue
                seen |= keys
                f.write(json.dumps({"m": path, "p": rel, "t": text}) + "\n")
                n += 1
                size += len(text)
            stats["files"] += n
            stats["bytes"] += size
            table.append((path, version, lic, n, size))
    print(json.dumps(stats))
    write_licences(table, dropped, stats)


def write_licences(table, dropped, stats):
    """DATA_LICENSES.md: module, version, licence, files, characters; and what was left out."""
    go = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True).stdout.strip()
    with open(os.path.join(HERE, "DATA_LICENSES.md"), "w") as f:
        f.write("# Licences of the training data\n\nEach module was fetched with `go mod download`; its licence was read off the licence file in its root "
                "by `corpus.licence_of`. Only MIT, BSD and Apache-2.0 were kept. The model contains no source text; the list says what "
                "it was trained on. Held-out modules (heldout.txt) are in no row here.\n\n")
        f.write(f"{stats['files']} files, {stats['bytes']} characters; {stats['exact']} exact and {stats['near']} near copies dropped, "
                f"{stats['held']} dropped for likeness to a held-out file.\n\n")
        f.write("| module | version | licence | files | characters |\n|---|---|---|---|---|\n")
        for p, v, lic, n, s in table:
            f.write(f"| {'std (Go standard library)' if p == 'std' else p} | {go if p == 'std' else v} | {lic} | {n} | {s} |\n")
        f.write("\n## Held out\n\nNever trained on: used for the figures and for prompts.jsonl.\n\n| module | version | licence |\n|---|---|---|\n")
        for p, v in read_list("heldout.txt"):
            f.write(f"| {p} | {v} | see prompts.jsonl |\n")
        f.write("\n## Left out\n\n| module | version | reason |\n|---|---|---|\n")
        for p, v, why in dropped:
            f.write(f"| {p} | {v} | {why.splitlines()[0] if why else ''} |\n")


def train_tokenizer(out, assets):
    """Byte-level BPE of 4096 ids, the last one <|endoftext|>, on every 8th file."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    def sample():
        with open(os.path.join(out, "corpus.jsonl")) as f:
            for i, ln in enumerate(f):
                if i % 8 == 0:
                    yield json.loads(ln)["t"]

    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(REGEX_C), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=4095, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tok.train_from_iterator(sample(), trainer)
    tok.add_special_tokens([EOT])
    os.makedirs(assets, exist_ok=True)
    tok.save(os.path.join(assets, "tokenizer.json"))
    with open(os.path.join(assets, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 4096, "eos_token": EOT, "pad_token": EOT,
                   "clean_up_tokenization_spaces": False, "add_prefix_space": False}, f, indent=1)
        f.write("\n")
    print("vocab", tok.get_vocab_size(), "eot", tok.token_to_id(EOT))


def write_shards(out, shards, parts, per_part):
    """Raw text joined by NUL, in xz shards: part<i>/<j>.xz. Modules stay together, parts are drawn by hash."""
    groups = [[] for _ in range(parts)]
    with open(os.path.join(out, "corpus.jsonl")) as f:
        for ln in f:
            d = json.loads(ln)
            groups[int(hashlib.sha256(d["m"].encode()).hexdigest()[:8], 16) % parts].append(d["t"])
    jobs = []
    for i, texts in enumerate(groups):
        os.makedirs(os.path.join(shards, f"part{i}"), exist_ok=True)
        total, acc, j, cur = sum(map(len, texts)), 0, 0, []
        for t in texts:
            cur.append(t)
            acc += len(t)
            if acc >= total * (j + 1) / per_part and j < per_part - 1:
                jobs.append((os.path.join(shards, f"part{i}", f"{j:02d}.xz"), cur))
                cur, j = [], j + 1
        jobs.append((os.path.join(shards, f"part{i}", f"{j:02d}.xz"), cur))
    with mp.Pool(2) as pool:
        for name, raw, packed in pool.imap(pack, jobs):
            print(name, raw, packed, flush=True)


def pack(job):
    """Compresses one shard."""
    name, texts = job
    raw = "\0".join(texts).encode()
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 128 << 20, "lc": 4, "lp": 0, "pb": 0}]
    data = lzma.compress(raw, format=lzma.FORMAT_XZ, filters=filters)
    with open(name, "wb") as f:
        f.write(data)
    return name, len(raw), len(data)


def opening(text, rnd):
    """A stretch of a file that begins at its start, or at a function or type with the comment above it."""
    lines = text.splitlines(keepends=True)
    starts = [0] + [i for i, ln in enumerate(lines) if ln.startswith(("func ", "type ")) and i > 5]
    s = rnd.choice(starts)
    while s > 0 and lines[s - 1].startswith("//"):
        s -= 1
    return "".join(lines[s:])[:8 * OPENING]


def write_openings(out, assets, name, count):
    """Writes `ids`, uint16 [count, OPENING], in random order: at most one opening of a file, none shorter than OPENING tokens."""
    import numpy as np
    from tokenizers import Tokenizer
    tok, rnd = Tokenizer.from_file(os.path.join(assets, "tokenizer.json")), random.Random(SEED)
    with open(os.path.join(out, "corpus.jsonl")) as f:
        texts = [opening(json.loads(ln)["t"], rnd) for ln in f]
    rnd.shuffle(texts)
    rows = []
    for i in range(0, len(texts), 4096):
        rows += [e.ids[:OPENING] for e in tok.encode_batch_fast(texts[i:i + 4096], add_special_tokens=False) if len(e.ids) >= OPENING]
    np.savez_compressed(name, ids=np.array(rows[:count], dtype=np.uint16))
    print("openings", len(rows[:count]), "of", len(rows))


def write_ids(openings, name, first):
    """Writes the first 48 to 128 tokens, at random, of each opening from row `first` on: an array on each line."""
    import numpy as np
    rnd = random.Random(SEED)
    with open(name, "w") as f:
        for row in np.load(openings)["ids"][first:].tolist():
            f.write(json.dumps(row[:rnd.randint(48, 128)]) + "\n")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("step", choices=["corpus", "tokenizer", "shards", "openings", "ids"])
    ap.add_argument("--cache", default="work/mod")
    ap.add_argument("--out", default="work/data")
    ap.add_argument("--assets", default=os.path.dirname(HERE))
    ap.add_argument("--shards", default="work/shards")
    ap.add_argument("--openings", default="work/openings.npz")
    ap.add_argument("--count", type=int, default=65536)
    ap.add_argument("--ids", default="work/ids.jsonl")
    ap.add_argument("--first", type=int, default=0)
    ap.add_argument("--parts", type=int, default=2)
    ap.add_argument("--per-part", type=int, default=8)
    a = ap.parse_args()
    if a.step == "corpus":
        build_corpus(a.cache, a.out)
    elif a.step == "tokenizer":
        train_tokenizer(a.out, a.assets)
    elif a.step == "ids":
        write_ids(a.openings, a.ids, a.first)
    elif a.step == "openings":
        write_openings(a.out, a.assets, a.openings, a.count)
    else:
        write_shards(a.out, a.shards, a.parts, a.per_part)


if __name__ == "__main__":
    main()
