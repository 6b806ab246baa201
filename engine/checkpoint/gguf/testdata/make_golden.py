#!/usr/bin/env python3
"""Writes quants.gguf, with a tensor of each supported type and metadata of each kind,
and quants.safetensors, with the float32 values that the Python package gguf reads
from the tensors. The blocks are random bytes with finite scales.

    pip install gguf==0.19.0 numpy safetensors
    python make_golden.py
"""
import pathlib

import gguf
import numpy as np
from gguf.quants import dequantize
from safetensors.numpy import save_file

T = gguf.GGMLQuantizationType
ROWS, COLS = 3, 512
# Where a block has its F16 scales.
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208]}
here = pathlib.Path(__file__).parent
rng = np.random.default_rng(7)

w = gguf.GGUFWriter(here / "quants.gguf", "none")
w.add_uint8("kind.uint8", 200)
w.add_int8("kind.int8", -100)
w.add_uint16("kind.uint16", 60000)
w.add_int16("kind.int16", -30000)
w.add_uint32("kind.uint32", 4000000000)
w.add_int32("kind.int32", -2000000000)
w.add_uint64("kind.uint64", 1 << 40)
w.add_int64("kind.int64", -(1 << 40))
w.add_float32("kind.float32", 1e-5)
w.add_float64("kind.float64", 1e-300)
w.add_bool("kind.bool", True)
w.add_string("kind.string", "grüße")
w.add_array("kind.strings", ["a", "", "b c"])
w.add_array("kind.ints", [3, -1, 2])
w.add_array("kind.floats", [0.5, 0.25])
w.add_array("kind.bools", [True, False])

values = {}
for t in [T.F32, T.F16, T.BF16, *SCALES]:
    block, size = gguf.GGML_QUANT_SIZES[t]
    if t in SCALES:
        raw = rng.integers(0, 256, (ROWS * COLS // block, size), dtype=np.uint8)
        for at in SCALES[t]:
            scale = rng.normal(0, 0.03, len(raw)).astype(np.float16)
            scale[0], scale[-1] = 2**-24, -65504  # a subnormal, the largest
            raw[:, at : at + 2] = scale.view(np.uint8).reshape(-1, 2)
        raw = raw.reshape(ROWS, -1)
    else:
        x = rng.normal(0, 1, (ROWS, COLS)).astype(np.float32)
        raw = {T.F32: x, T.F16: x.astype(np.float16), T.BF16: (x.view(np.uint32) >> 16).astype(np.uint16)}[t].view(np.uint8)
    w.add_tensor(t.name, raw, raw_dtype=t)
    values[t.name] = np.ascontiguousarray(dequantize(raw, t).reshape(ROWS, COLS), dtype=np.float32)

w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
save_file(values, here / "quants.safetensors", metadata={"gguf": "0.19.0", "numpy": np.__version__})
