#!/usr/bin/env python3
"""Writes scaled.safetensors: weights of 8 and 4 bits with their scales in each layout
that the engine expands, as NAME.weight and so on, and under want.NAME the BF16 values
that torch gives.

    pip install torch safetensors
    python make_scaled.py
"""
import pathlib

import torch
from safetensors.torch import save_file

torch.manual_seed(5)
E4M3, E8M0, F32, BF16 = torch.float8_e4m3fn, torch.float8_e8m0fnu, torch.float32, torch.bfloat16
out = {}


def want(name, x):
    out["want." + name] = x.to(BF16).contiguous()


def fp8(*shape):
    """All finite codes, in random order."""
    codes = torch.randint(0, 256, shape, dtype=torch.uint8)
    codes[(codes & 127) == 127] -= 1
    return codes.view(E4M3)


def spread(scale, rows, cols, block):
    return scale.to(F32).repeat_interleave(block[0], -2)[..., :rows, :].repeat_interleave(block[1], -1)[..., :cols]


def blocks(name, rows, cols, block, scale, suffix):
    w = fp8(rows, cols)
    out[name + ".weight"], out[name + suffix] = w, scale
    want(name, w.to(F32) * spread(scale, rows, cols, block))


def powers(*shape):
    return (2.0 ** torch.randint(-12, 3, shape)).to(E8M0)


def ceil(a, b):
    return (a + b - 1) // b


blocks("block128", 150, 140, (128, 128), torch.rand(2, 2) * 0.01, ".weight_scale_inv")
blocks("bf16scale", 150, 140, (128, 128), (torch.rand(2, 2) * 0.01).to(BF16), ".weight_scale_inv")
blocks("ue8m0", 70, 96, (32, 32), powers(3, 3), ".scale")
blocks("row", 20, 40, (1, 40), (torch.rand(20, 1) * 0.01).to(BF16), ".weight_scale")

w = fp8(20, 40)
s = torch.rand(20) * 0.01
out["rows1d.weight"], out["rows1d.weight_scale"] = w, s
want("rows1d", w.to(F32) * s[:, None])

w, s = fp8(20, 40), torch.tensor(0.0123)
out["one.weight"], out["one.weight_scale"], out["one.input_scale"] = w, s, torch.tensor(1.0)
want("one", w.to(F32) * s)

w, s = fp8(3, 40, 64), torch.rand(3, 2, 2) * 0.01
out["stack.weight"], out["stack.weight_scale_inv"] = w, s
want("stack", w.to(F32) * spread(s, 40, 64, (32, 32)))

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def fp4(rows, cols):
    packed = torch.randint(0, 256, (rows, cols // 2), dtype=torch.uint8)
    return packed, torch.stack([E2M1[(packed & 15).long()], E2M1[(packed >> 4).long()]], -1).reshape(rows, cols)


p, x = fp4(24, 96)
s = powers(24, 3)
out["mx.weight"], out["mx.scale"] = p.view(torch.int8), s
want("mx", x * spread(s, 24, 96, (1, 32)))

p, x = fp4(24, 96)
s = powers(24, 3)
out["mxpacked.weight_packed"], out["mxpacked.weight_scale"] = p, s.view(torch.uint8)
want("mxpacked", x * spread(s, 24, 96, (1, 32)))

p, x = fp4(24, 96)
s, g = fp8(24, 6), torch.tensor(0.0037)
out["nv.weight"], out["nv.weight_scale"], out["nv.weight_scale_2"] = p, s, g
want("nv", x * spread(s.to(F32) * g, 24, 96, (1, 16)))

p, x = fp4(24, 96)
s, g = fp8(24, 6), torch.tensor([273.0])
out["nvpacked.weight_packed"], out["nvpacked.weight_scale"], out["nvpacked.weight_global_scale"] = p, s, g
out["nvpacked.input_global_scale"] = torch.tensor([5.0])
want("nvpacked", x * spread(s.to(F32) / g, 24, 96, (1, 16)))

save_file(out, pathlib.Path(__file__).parent / "scaled.safetensors", metadata={"torch": torch.__version__})
