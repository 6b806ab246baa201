#!/usr/bin/env python3
"""Asks the reference implementation (the Python package `tokenizers`, which wraps the Rust library) about the 2 MB of
mixed text that ../mixedtext_test.go makes: for the small designs of this folder, and for the published tokenizers that
fetch_published.py puts in a folder.

    pip install tokenizers==0.23.2
    python make_mixed.py PUBLISHED

Written: mixed.golden.json. Of each document there are four bytes of a hash of its ids, and a hash of what decoding gives
for its ids and for random ones. The reference takes text alone, so bytes that are no valid UTF-8 become U+FFFD first,
one for each maximal invalid part, as Python's decoder and the package's own do. It also prints the reference's speed on
one core, documents one by one.
"""

import base64
import hashlib
import json
import os
import pathlib
import platform
import struct
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tokenizers  # noqa: E402
from tokenizers import Tokenizer, pre_tokenizers  # noqa: E402

HERE = pathlib.Path(__file__).parent
MASK = (1 << 64) - 1


class Lot:
    """The generator of ../mixedtext_test.go."""

    def __init__(self, seed):
        self.state = seed

    def n(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        return ((z ^ z >> 31) >> 11) % n


def documents():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "mixed")
        env = dict(os.environ, EXACTA_WRITE_MIXED=path)
        subprocess.run(["go", "test", "-count=1", "-run=TestMixedText$", "."], cwd=HERE.parent, env=env, check=True)
        raw = pathlib.Path(path).read_bytes()
    return raw, [d.decode("utf-8", "replace") for d in raw.split(b"\0")]


def byte_ids(tok):
    """The ids of the 256 bytes, as a byte-level or a byte-fallback vocabulary spells them."""
    spelled = [tok.token_to_id(f"<0x{b:02X}>") for b in range(256)]
    if None in spelled:
        spelled = sorted(i for i in map(tok.token_to_id, pre_tokenizers.ByteLevel.alphabet()) if i is not None)
    return spelled


def random_ids(tok, n):
    lot, known, singles = Lot(n), tok.get_vocab_size(), byte_ids(tok)
    return [lot.n(known) if not singles or lot.n(2) else singles[lot.n(len(singles))] for _ in range(lot.n(40))]


def golden(path, docs, size):
    text = path.read_bytes()
    tok = Tokenizer.from_str(text.decode())
    tok.no_truncation()
    tok.no_padding()
    start = time.perf_counter()
    ids = [tok.encode(d, add_special_tokens=False).ids for d in docs]
    took = time.perf_counter() - start
    packed = [struct.pack(f"<{len(i)}i", *i) for i in ids]
    decoded, noise = hashlib.sha256(), hashlib.sha256()
    for n, i in enumerate(ids):
        decoded.update(tok.decode(i, skip_special_tokens=False).encode() + b"\0")
        noise.update(tok.decode(random_ids(tok, n), skip_special_tokens=n % 2 == 0).encode() + b"\0")
    print(f"{path}: {sum(map(len, ids))} ids, {size / took / 1e6:.2f} MB/s")
    return {
        "file": hashlib.sha256(text).hexdigest(),
        "ids": sum(map(len, ids)),
        "documents": base64.b64encode(b"".join(hashlib.sha256(p).digest()[:4] for p in packed)).decode(),
        "decoded": decoded.hexdigest(),
        "noise": noise.hexdigest(),
        "known": tok.get_vocab_size(),
    }


def main():
    raw, docs = documents()
    out = {
        "made_by": {"tokenizers": tokenizers.__version__, "python": platform.python_version()},
        "text": hashlib.sha256(raw).hexdigest(),
        "designs": {},
        "published": {},
    }
    for path in sorted(HERE.glob("?_*.json")):
        out["designs"][path.stem] = golden(path, docs, len(raw))
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.json")):
        out["published"][path.stem] = golden(path, docs, len(raw))
    (HERE / "mixed.golden.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
