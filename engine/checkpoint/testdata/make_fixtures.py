#!/usr/bin/env python3
"""Writes the fixtures of the checkpoint tests by the reference libraries.

    pip install safetensors==0.8.0 transformers==5.17.0 torch==2.11.0
    python make_fixtures.py

Written: reference.safetensors (a small file by the reference writer) and configs/NAME.json (config.json as transformers
saves it, for each family, flat and nested).
"""

import json
import pathlib

import torch
import transformers
from safetensors.torch import save

HERE = pathlib.Path(__file__).parent

TENSORS = {
    "b.weight": torch.tensor([[1.0, -2.5, 3.0], [0.0, -0.0, 65504.0]], dtype=torch.bfloat16),
    "a.weight": torch.tensor([1.0, 2.0, 5.960464477539063e-08], dtype=torch.float16),
    "z.scale": torch.tensor([0.1, 1e-40], dtype=torch.float32),
    "ids": torch.tensor([[1, -1]], dtype=torch.int64),
    "mask": torch.tensor([True, False, True], dtype=torch.bool),
    "scalar": torch.tensor(2.5, dtype=torch.float32),
    "empty": torch.zeros((0, 4), dtype=torch.float32),
}


def configs():
    llama3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    yield "llama3", transformers.LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, head_dim=64, max_position_embeddings=131072, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters=llama3, bos_token_id=128000, eos_token_id=[128001, 128008, 128009], architectures=["LlamaForCausalLM"])
    yield "qwen3", transformers.Qwen3Config(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6}, bos_token_id=151643, eos_token_id=151645,
        architectures=["Qwen3ForCausalLM"])
    text = dict(
        vocab_size=248320, hidden_size=5120, intermediate_size=17408, num_hidden_layers=64, num_attention_heads=24,
        num_key_value_heads=4, head_dim=256, max_position_embeddings=262144, linear_num_key_heads=16,
        linear_num_value_heads=48, eos_token_id=248044,
        rope_parameters={"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
                         "mrope_section": [11, 11, 10], "mrope_interleaved": True})
    yield "qwen35_text", transformers.models.qwen3_5.Qwen3_5TextConfig(**text, architectures=["Qwen3_5ForCausalLM"])
    yield "qwen35", transformers.models.qwen3_5.Qwen3_5Config(
        text_config=text, architectures=["Qwen3_5ForConditionalGeneration"])


def main():
    (HERE / "reference.safetensors").write_bytes(save(TENSORS, metadata={"format": "pt"}))
    (HERE / "configs").mkdir(exist_ok=True)
    for name, config in configs():
        text = json.loads(config.to_json_string(use_diff=True))
        (HERE / "configs" / f"{name}.json").write_text(json.dumps(text, indent=2) + "\n")


if __name__ == "__main__":
    main()
