#!/usr/bin/env python3
"""Trains small SentencePiece models, writes them as tokenizer.json of the type that the package reads for GGUF files, and
asks the reference implementation (the Python package `sentencepiece`, which wraps the C++ library) for ids.

    pip install sentencepiece==0.2.3 tokenizers==0.23.2 protobuf
    python make_pieces.py

m_pieces has byte tokens and a space before each text, as Llama 2 has; o_holes has scores of which many are equal, and
pieces whose characters are no pieces; n_ties has such scores and pieces, and neither bytes nor the space. Written: DESIGN.json, DESIGN.golden.json.gz (strings.json.gz) and
pieces.golden.json (the 2 MB of mixed text, as it is and with bad bytes replaced).

A vocabulary in a GGUF file is what llama.cpp makes of it: special and user-defined tokens are cut out of the text, and
each piece between them is a text of its own to the model. So is it here, with the reference for each piece. The reference
takes text alone: bytes that are no valid UTF-8 are byte tokens, which no merge takes, between texts without a space before.
"""

import base64
import gzip
import hashlib
import json
import platform
import random
import re
import struct
import tempfile

import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb

from make_goldens import HERE, PROSE, SEED, WORDS, fuzz
from make_mixed import documents

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)


def train(**options):
    r = random.Random(SEED)
    lines = [line for line in PROSE.split("\n") if line]
    lines += [" ".join(r.choice(WORDS) for _ in range(r.randint(3, 12))) for _ in range(2000)]
    lines += ["x" + " " * r.randint(1, 9) + "-" * r.randint(1, 7) + "=" * r.randint(1, 5) + "a" * r.randint(1, 9) for _ in range(300)]
    with tempfile.TemporaryDirectory() as folder:
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_prefix=folder + "/m", model_type="bpe", normalization_rule_name="identity",
            remove_extra_whitespaces=False, num_threads=1, max_sentence_length=1 << 16, minloglevel=2, **options)
        m = pb.ModelProto()
        with open(folder + "/m.model", "rb") as f:
            m.ParseFromString(f.read())
    return m


def tied(m):
    """Few distinct scores, and a third of the characters left out."""
    r = random.Random(SEED)
    for p in m.pieces:
        if p.type == NORMAL:
            p.score = float(r.randint(-30, 3))
            if len(p.piece) == 1 and r.random() < 1 / 3:
                p.piece, p.type = f"<removed {p.piece}>", CONTROL
    return m


class Judge:
    def __init__(self, m):
        self.pieces = m.pieces
        self.prefix = m.normalizer_spec.add_dummy_prefix
        m.normalizer_spec.add_dummy_prefix = False
        self.model = spm.SentencePieceProcessor(model_proto=m.SerializeToString())
        m.normalizer_spec.add_dummy_prefix = self.prefix
        self.whole = spm.SentencePieceProcessor(model_proto=m.SerializeToString())
        self.added = {p.piece.encode(): i for i, p in enumerate(m.pieces) if p.type in (UNKNOWN, CONTROL, USER)}
        self.cut = re.compile(b"(" + b"|".join(re.escape(c) for c in sorted(self.added, key=len, reverse=True)) + b")")
        self.bytes = {i: p.piece for i, p in enumerate(m.pieces) if p.type == BYTE}
        self.unk = m.trainer_spec.unk_id

    def part(self, raw):
        try:
            return self.whole.encode(raw.decode())
        except UnicodeDecodeError:
            pass
        ids, rest = [], ("\u2581".encode() if self.prefix else b"") + raw
        while rest:
            try:
                rest.decode()
                end = len(rest)
            except UnicodeDecodeError as e:
                end = e.start
            if end:
                ids += self.model.encode(rest[:end].decode())
            if end < len(rest):
                ids.append(self.model.piece_to_id(f"<0x{rest[end]:02X}>"))
            rest = rest[end + 1:]
        return ids

    def encode(self, raw):
        ids = []
        for i, part in enumerate(self.cut.split(raw)):
            if i % 2:
                ids.append(self.added[part])
            elif part:
                ids += self.part(part)
        return ids

    def file(self):
        added = [{"id": i, "content": p.piece, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                  "special": p.type != USER} for i, p in enumerate(self.pieces) if p.type in (UNKNOWN, CONTROL, USER)]

        def replace(a, b):
            return {"type": "Replace", "pattern": {"String": a}, "content": b}

        steps = [{"type": "Prepend", "prepend": "\u2581"}] if self.prefix else []
        ends = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if self.prefix else []
        return {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "Sequence", "normalizers": [*steps, replace(" ", "\u2581")]},
            "pre_tokenizer": None, "post_processor": None,
            "decoder": {"type": "Sequence", "decoders": [replace("\u2581", " "), {"type": "ByteFallback"}, {"type": "Fuse"}, *ends]},
            "model": {
                "type": "SentencePiece", "unk_token": self.pieces[self.unk].piece, "fuse_unk": not self.bytes,
                "byte_fallback": bool(self.bytes), "vocab": {p.piece: i for i, p in enumerate(self.pieces)},
                "scores": [p.score if p.type in (NORMAL, USER) else None for p in self.pieces],
            },
        }


def hashes(lists):
    packed = [hashlib.sha256(struct.pack(f"<{len(i)}i", *i)).digest()[:4] for i in lists]
    return {"ids": sum(map(len, lists)), "documents": base64.b64encode(b"".join(packed)).decode()}


def main():
    made_by = {"sentencepiece": spm.__version__, "python": platform.python_version()}
    with gzip.open(HERE / "strings.json.gz") as f:
        strings = json.load(f)
    raw, _ = documents()
    docs = raw.split(b"\0")
    mixed = {"made_by": made_by, "text": hashlib.sha256(raw).hexdigest(), "designs": {}}
    added = {"user_defined_symbols": ["<tool>", "  ", "[MASK]", "été"], "control_symbols": ["<|im_start|>", "<|im_end|>"]}
    for name, m in {
        "m_pieces": train(vocab_size=1500, byte_fallback=True, **added),
        "o_holes": tied(train(vocab_size=1200, byte_fallback=True, **added)),
        "n_ties": tied(train(vocab_size=900, add_dummy_prefix=False, **added)),
    }.items():
        j = Judge(m)
        (HERE / f"{name}.json").write_text(json.dumps(j.file(), ensure_ascii=False, separators=(",", ":")) + "\n")
        out = {"made_by": made_by, "ids": [j.encode(s.encode()) for s in strings]}
        text = json.dumps(out, separators=(",", ":")).encode()
        (HERE / f"{name}.golden.json.gz").write_bytes(gzip.compress(text, mtime=0))
        lossy = [j.encode(d.decode("utf-8", "replace").encode()) for d in docs]
        mixed["designs"][name] = {"lossy": hashes(lossy)}
        if j.bytes:
            mixed["designs"][name]["raw"] = hashes([j.encode(d) for d in docs])
        print(name, len(m.pieces), "pieces", sum(map(len, lossy)), "ids")
    (HERE / "pieces.golden.json").write_text(json.dumps(mixed, indent=1) + "\n")


if __name__ == "__main__":
    main()
