#!/usr/bin/env python3
"""Expands a GGUF file of a Llama-type model to BF16, as exacta does when it loads one.

    bf16.py FILE.gguf DIR

writes DIR/model.gguf for llama.cpp and DIR with config.json, model.safetensors and
tokenizer.json for vLLM and transformers. Needs torch, transformers, accelerate and gguf.
"""
import json
import pathlib
import sys

import gguf
import numpy
import safetensors.torch
import torch
import transformers


def expand(source: pathlib.Path, out: pathlib.Path) -> None:
    """Writes the tensors of a GGUF file as BF16, vectors as F32, and its other fields as they are."""
    r = gguf.GGUFReader(source)
    w = gguf.GGUFWriter(out, r.fields["general.architecture"].contents())
    for f in r.fields.values():
        if f.name.startswith("GGUF.") or f.name in ("general.architecture", "general.file_type", "general.quantization_version"):
            continue
        sub = f.types[1] if len(f.types) > 1 else None
        w.add_key_value(f.name, f.contents(), f.types[0], sub_type=sub)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for t in r.tensors:
        values = gguf.quants.dequantize(t.data, t.tensor_type).astype(numpy.float32)
        kind = gguf.GGMLQuantizationType.BF16 if values.ndim > 1 else gguf.GGMLQuantizationType.F32
        w.add_tensor(t.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main() -> None:
    source, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    expand(source, out / "model.gguf")
    where = {"gguf_file": source.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.float32, **where)
    weights = {name: t.to(torch.bfloat16).contiguous() for name, t in model.state_dict().items() if name != "lm_head.weight" or not model.config.tie_word_embeddings}
    safetensors.torch.save_file(weights, out / "model.safetensors", {"format": "pt"})
    config = {k: v for k, v in model.config.to_dict().items() if k != "quantization_config"}
    (out / "config.json").write_text(json.dumps(config | {"architectures": [type(model).__name__], "dtype": "bfloat16"}, indent=1))
    transformers.AutoTokenizer.from_pretrained(source.parent, **where).save_pretrained(out)


main()
