#!/usr/bin/env python3
"""Writes llama.gguf, a tiny Llama of random weights as llama.cpp's converter lays it
out, with a tokenizer; llama-gguf.safetensors, its weights under the names of
transformers, as BF16 where the file quantises them; and llama-gguf.json, the ids that
the library tokenizers gives for some texts with that vocabulary.

    pip install gguf==0.19.0 numpy torch safetensors tokenizers
    python make_gguf.py
"""
import json
import pathlib

import gguf
import numpy as np
import torch
from gguf.quants import dequantize, quantize
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

T = gguf.GGMLQuantizationType
HIDDEN, HEADS, KV, DIM, INTER, LAYERS = 64, 3, 1, 16, 96, 2
here = pathlib.Path(__file__).parent
rng = np.random.default_rng(3)

# Vocabulary.
table = sorted(pre_tokenizers.ByteLevel.alphabet())
tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *table]
kinds = [3, 3, 3] + [1] * len(table)
merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("Ã", "¼")]
for a, b in merges:
    tokens.append(a + b)
    kinds.append(1)
tokens += ["<tool>", "[PAD0]"]
kinds += [4, 5]
VOCAB = len(tokens)


def permute(w, heads):
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


w = gguf.GGUFWriter(here / "llama.gguf", "llama")
w.add_name("tiny")
w.add_block_count(LAYERS)
w.add_context_length(128)
w.add_embedding_length(HIDDEN)
w.add_feed_forward_length(INTER)
w.add_head_count(HEADS)
w.add_head_count_kv(KV)
w.add_key_length(DIM)
w.add_value_length(DIM)
w.add_rope_dimension_count(DIM)
w.add_rope_freq_base(50000.0)
w.add_layer_norm_rms_eps(1e-5)
w.add_vocab_size(VOCAB)
w.add_tokenizer_model("gpt2")
w.add_tokenizer_pre("smollm")
w.add_token_list(tokens)
w.add_token_types(kinds)
w.add_token_merges([f"{a} {b}" for a, b in merges])
w.add_bos_token_id(1)
w.add_eos_token_id(2)
w.add_eot_token_id(0)
w.add_add_bos_token(True)
w.add_chat_template("{{ bos_token }}{{ messages[0].content }}")

expect = {}


def add(name, hf, rows, cols, kind, heads=0):
    x = (rng.normal(0, 0.1, (rows, cols) if rows else (cols,)) + (0 if rows else 1)).astype(np.float32)
    stored = permute(x, heads) if heads else x
    if kind == T.F32:
        w.add_tensor(name, stored)
        expect[hf] = torch.from_numpy(x)
    elif kind == T.F16:
        w.add_tensor(name, stored.astype(np.float16))
        expect[hf] = torch.from_numpy(x.astype(np.float16))
    else:
        w.add_tensor(name, quantize(stored, kind), raw_dtype=kind)
        expect[hf] = torch.from_numpy(dequantize(quantize(x, kind), kind)).to(torch.bfloat16)


add("token_embd.weight", "model.embed_tokens.weight", VOCAB, HIDDEN, T.Q8_0)
add("output_norm.weight", "model.norm.weight", 0, HIDDEN, T.F32)
for i, kind in enumerate([T.Q4_1, T.F16]):
    g, h = f"blk.{i}.", f"model.layers.{i}."
    other = [T.Q5_0, T.BF16][i]
    add(g + "attn_norm.weight", h + "input_layernorm.weight", 0, HIDDEN, T.F32)
    add(g + "attn_q.weight", h + "self_attn.q_proj.weight", HEADS * DIM, HIDDEN, kind, HEADS)
    add(g + "attn_k.weight", h + "self_attn.k_proj.weight", KV * DIM, HIDDEN, other, KV)
    add(g + "attn_v.weight", h + "self_attn.v_proj.weight", KV * DIM, HIDDEN, T.Q5_1)
    # 48 columns are no whole number of blocks: F16.
    add(g + "attn_output.weight", h + "self_attn.o_proj.weight", HIDDEN, HEADS * DIM, T.F16)
    add(g + "ffn_norm.weight", h + "post_attention_layernorm.weight", 0, HIDDEN, T.F32)
    add(g + "ffn_gate.weight", h + "mlp.gate_proj.weight", INTER, HIDDEN, T.Q4_0)
    add(g + "ffn_up.weight", h + "mlp.up_proj.weight", INTER, HIDDEN, kind)
    add(g + "ffn_down.weight", h + "mlp.down_proj.weight", HIDDEN, INTER, T.BF16)
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
save_file(expect, here / "llama-gguf.safetensors", metadata={"gguf": "0.19.0"})

tok = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens[:-1])}, merges=merges))
tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
tok.decoder = decoders.ByteLevel()
tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in tokens[:3]])
tok.add_tokens([AddedToken("<tool>", normalized=False)])
texts = ["the end of the 1234 tests", "<|im_start|>user\nüber<tool> the<|im_end|>", "\t\tif  x:\n    日本 🎉", "[PAD0]"]
with open(here / "llama-gguf.json", "w") as f:
    json.dump([{"text": t, "ids": tok.encode(t).ids} for t in texts], f, ensure_ascii=False, indent=1)
    f.write("\n")
