"""The gated delta rule as one differentiable operator, over fla-core's Triton kernels.

fla-core's own backward refuses Triton 3.4 to 3.7 on Hopper, because that compiler miscompiles one of its kernels
(`chunk_bwd_dqkwg`). That step is parallel over the chunks, so it is written here as batched matrix products; the recurrences
stay with fla-core.
"""

import torch
import triton

_autotune = triton.autotune


def _few(configs):
    """At most two of the configurations a kernel is offered: each one is compiled and timed at start."""
    good = [c for c in configs if c.num_warps == 4 and c.num_stages in (2, 3)]
    return (good or configs)[-2:]


def _patch():
    """Cuts the autotuner's list before the kernels are defined."""
    from fla.ops.utils import cache
    wide = cache.CachedAutotuner.__init__

    def narrow(self, fn, names, configs, *a, **k):
        wide(self, fn, names, _few(configs), *a, **k)

    cache.CachedAutotuner.__init__ = narrow
    triton.autotune = lambda configs, *a, **k: _autotune(_few(configs), *a, **k)


_patch()

from fla.ops.common.chunk_delta_h import chunk_gated_delta_rule_bwd_dhu, chunk_gated_delta_rule_fwd_h  # noqa: E402
from fla.ops.common.chunk_o import chunk_bwd_dv_local, chunk_fwd_o  # noqa: E402
from fla.ops.gated_delta_rule.chunk_fwd import chunk_gated_delta_rule_fwd_intra  # noqa: E402
from fla.ops.gated_delta_rule.wy_fast import prepare_wy_repr_bwd, recompute_w_u_fwd  # noqa: E402

CHUNK = 64
LOG2E = 1.4426950408889634


def chunk_sum(g):
    """Cumulative sum of the log decay inside each chunk, in base 2."""
    B, T, H = g.shape
    return (g.view(B, T // CHUNK, CHUNK, H).cumsum(2) * LOG2E).view(B, T, H)


def dqkwg(q, k, v, w_like, g, h, dv, do, dh, scale):
    """Gradients of the chunk-parallel part: of q, k, w and of the in-chunk cumulative decay (natural units).

    q and k [B,T,Hk,d]; v (corrected), do, dv [B,T,Hv,d]; g [B,T,Hv] base 2; h and dh [B,n,Hv,d,d].
    """
    B, T, Hv, d = v.shape
    n, r = T // CHUNK, Hv // q.shape[2]

    def chunks(x):
        return x.view(B, n, CHUNK, Hv, d).permute(0, 1, 3, 2, 4)

    def back(x):
        return x.permute(0, 1, 3, 2, 4).reshape(B, T, Hv, d)

    q, k = (x.view(B, n, CHUNK, -1, 1, d).expand(B, n, CHUNK, x.shape[2], r, d).reshape(B, T, Hv, d) for x in (q, k))
    q, k, v, dv, do = (chunks(x) for x in (q, k, v, dv, do))
    g = g.view(B, n, CHUNK, Hv).permute(0, 1, 3, 2)
    last = g[..., -1:]
    ht, dht = h.transpose(-1, -2).to(v.dtype), dh.transpose(-1, -2).to(v.dtype)
    low = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=v.device).tril()
    decay = torch.exp2((g[..., :, None] - g[..., None, :]).masked_fill(~low, float("-inf")))
    ds = ((do @ v.transpose(-1, -2)).float() * decay * scale).to(v.dtype)
    dk_state = (v @ dht).float() * torch.exp2(last - g)[..., None]
    dq = (do @ ht).float() * (torch.exp2(g) * scale)[..., None] + (ds @ k).float()
    dk = dk_state + (ds.transpose(-1, -2) @ q).float()
    dw = -(dv @ ht)
    dlast = (h.float() * dh.float()).sum((-1, -2)) * torch.exp2(last[..., 0]) + (dk_state * k.float()).sum((-1, -2))
    dg = (dq * q.float()).sum(-1) - (dk * k.float()).sum(-1)
    dg = torch.cat([dg[..., :-1], dg[..., -1:] + dlast[..., None]], -1)
    return dq, dk, back(dw).to(w_like.dtype), dg


def heads_back(x, r):
    """[B,n,Hv,C,d] to [B,T,Hk,d], summed over the value heads of a key head."""
    B, n, Hv, C, d = x.shape
    return x.view(B, n, Hv // r, r, C, d).sum(3).permute(0, 1, 3, 2, 4).reshape(B, n * C, Hv // r, d)


def finish(dq, dk, dk2, dg, dg2, r, dtype):
    """Adds the two halves of dk and dg and undoes the cumulative sum."""
    B, n, Hv, C, _ = dq.shape
    dgt = dg.permute(0, 1, 3, 2) + dg2.view(B, n, C, Hv).float()
    dgs = dgt.flip(2).cumsum(2).flip(2).reshape(B, n * C, Hv)
    return heads_back(dq, r).to(dtype), (heads_back(dk, r) + dk2.float()).to(dtype), dgs


_compiled = {}


def fused(fn):
    """torch.compile on a GPU, the plain function elsewhere."""
    def call(*a):
        if not a[0].is_cuda:
            return fn(*a)
        if fn not in _compiled:
            _compiled[fn] = torch.compile(fn, dynamic=False)
        return _compiled[fn](*a)
    return call


_dqkwg, _finish = fused(dqkwg), fused(finish)


@torch.library.custom_op("exacta::gdn_forward", mutates_args=())
def gdn_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor,
                beta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Output [B,T,Hv,d] and the inverses [B,T,Hv,64] that the backward needs; g is the base-2 cumulative decay."""
    w, u, A = chunk_gated_delta_rule_fwd_intra(k=k, v=v, g=g, beta=beta, chunk_size=CHUNK)
    h, v_new, _ = chunk_gated_delta_rule_fwd_h(k=k, w=w, u=u, g=g, chunk_size=CHUNK)
    o = chunk_fwd_o(q=q, k=k, v=v_new, h=h, g=g, scale=q.shape[-1] ** -0.5, chunk_size=CHUNK)
    return o, A


@gdn_forward.register_fake
def _(q, k, v, g, beta):
    return torch.empty_like(v), v.new_empty(*v.shape[:3], CHUNK)


@torch.library.custom_op("exacta::gdn_backward", mutates_args=())
def gdn_backward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor, A: torch.Tensor,
                 do: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of q, k, v, of the log decay (natural units, not cumulative) and of beta."""
    scale = q.shape[-1] ** -0.5
    do = do.contiguous()
    w, u = recompute_w_u_fwd(k=k, v=v, beta=beta, A=A, g=g)
    h, v_new, _ = chunk_gated_delta_rule_fwd_h(k=k, w=w, u=u, g=g, chunk_size=CHUNK)
    dv = chunk_bwd_dv_local(q=q, k=k, g=g, do=do, scale=scale, chunk_size=CHUNK)
    dh, _, dv = chunk_gated_delta_rule_bwd_dhu(q=q, k=k, w=w, g=g, h0=None, dht=None, do=do, dv=dv, scale=scale, chunk_size=CHUNK)
    dq, dk, dw, dg = _dqkwg(q, k, v_new, w, g, h, dv, do, dh, scale)
    dk2, dv, db, dg2 = prepare_wy_repr_bwd(k=k, v=v, beta=beta, g=g, A=A, dw=dw, du=dv)
    dq, dk, dgs = _finish(dq, dk, dk2, dg, dg2, v.shape[2] // q.shape[2], q.dtype)
    return dq, dk, dv, dgs, db


@gdn_backward.register_fake
def _(q, k, v, g, beta, A, do):
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), torch.empty_like(g), torch.empty_like(beta)


class _GDN(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, g, beta):
        gc = chunk_sum(g)
        o, A = gdn_forward(q, k, v, gc, beta)
        ctx.save_for_backward(q, k, v, gc, beta, A)
        return o

    @staticmethod
    def backward(ctx, do):
        return gdn_backward(*ctx.saved_tensors, do)


def gdn_fla(q, k, v, g, beta):
    """Same contract as model.gdn_reference; q, k, v in bf16, g and beta in float32; T a multiple of 64."""
    return _GDN.apply(q, k, v, g, beta)
