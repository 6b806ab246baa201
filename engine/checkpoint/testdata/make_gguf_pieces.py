#!/usr/bin/env python3
"""Writes pieces.gguf, a tiny Llama of random weights as llama.cpp's converter lays it out, with the SentencePiece vocabulary
of ../../tokenizer/testdata/m_pieces.json.

    pip install gguf==0.19.0 numpy
    python make_gguf_pieces.py
"""
import json
import pathlib
import re

import gguf
import numpy as np

here = pathlib.Path(__file__).parent
file = json.loads((here / "../../tokenizer/testdata/m_pieces.json").read_text())
vocab = sorted(file["model"]["vocab"], key=file["model"]["vocab"].get)
special = {a["content"]: a["special"] for a in file["added_tokens"]}


def kind(piece):
    if piece == file["model"]["unk_token"]:
        return gguf.TokenType.UNKNOWN
    if piece in special:
        return gguf.TokenType.CONTROL if special[piece] else gguf.TokenType.USER_DEFINED
    return gguf.TokenType.BYTE if re.fullmatch("<0x[0-9A-F]{2}>", piece) else gguf.TokenType.NORMAL


rng = np.random.default_rng(5)
w = gguf.GGUFWriter(here / "pieces.gguf", "llama")
w.add_name("pieces")
w.add_block_count(1)
w.add_context_length(512)
w.add_embedding_length(32)
w.add_feed_forward_length(32)
w.add_head_count(2)
w.add_head_count_kv(1)
w.add_rope_dimension_count(16)
w.add_layer_norm_rms_eps(1e-5)
w.add_vocab_size(len(vocab))
w.add_tokenizer_model("llama")
w.add_tokenizer_pre("default")
w.add_token_list(vocab)
w.add_token_scores([s or 0.0 for s in file["model"]["scores"]])
w.add_token_types([kind(p) for p in vocab])
w.add_unk_token_id(vocab.index("<unk>"))
w.add_bos_token_id(vocab.index("<s>"))
w.add_eos_token_id(vocab.index("</s>"))
w.add_chat_template("{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}")


def add(name, *shape):
    x = rng.normal(0, 0.1, shape) if len(shape) > 1 else np.ones(shape)
    w.add_tensor(name, x.astype(np.float16 if len(shape) > 1 else np.float32))


add("token_embd.weight", len(vocab), 32)
add("output_norm.weight", 32)
add("blk.0.attn_norm.weight", 32)
for name, rows in {"attn_q": 32, "attn_k": 16, "attn_v": 16, "attn_output": 32, "ffn_gate": 32, "ffn_up": 32, "ffn_down": 32}.items():
    add(f"blk.0.{name}.weight", rows, 32)
add("blk.0.ffn_norm.weight", 32)
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
