"""The model: Qwen3.5's text layout (Gated DeltaNet and gated attention, MTP head), for training and for measuring.

Parameter names are those of the checkpoint, so that saving is a plain dictionary. Two ways through the GDN layers: the chunk
form of fla-core's Triton kernels (training on a GPU) and a plain chunk form in PyTorch (everything else).
"""

import json
import math
import os

import torch
import torch.nn.functional as F
from torch import nn

CONFIG = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "hidden_size": 192,
    "intermediate_size": 448,
    "num_hidden_layers": 20,
    "full_attention_interval": 4,
    "layer_types": ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(20)],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "attn_output_gate": True,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "mamba_ssm_dtype": "float32",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096,
    "partial_rotary_factor": 0.25,
    "rope_theta": 100000.0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0, "partial_rotary_factor": 0.25},
    "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": False,
    "tie_word_embeddings": True,
    "initializer_range": 0.02,
    "use_cache": True,
    "vocab_size": 4096,
    "bos_token_id": None,
    "eos_token_id": 4095,
    "pad_token_id": None,
    "dtype": "bfloat16",
}
EPS = CONFIG["rms_norm_eps"]
WINDOW = 64


def norm(x, w):
    """Zero-centred RMSNorm in float32."""
    f = x.float()
    return (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + EPS) * (1 + w.float())).to(x.dtype)


def linear(x, w):
    """x W^T with the weight cast to the activation's type."""
    return F.linear(x, w.to(x.dtype))


def rope_tables(positions, cfg, dtype):
    """cos and sin of shape [..., rotary/2] for integer positions."""
    d = int(cfg["head_dim"] * cfg["partial_rotary_factor"])
    inv = cfg["rope_theta"] ** (-torch.arange(0, d, 2, device=positions.device, dtype=torch.float32) / d)
    a = positions.float()[..., None] * inv
    return a.cos().to(dtype), a.sin().to(dtype)


def rope(x, cos, sin):
    """Half-split rotation of the first channels; x is [B,T,H,hd], cos and sin [T or B,T, rotary/2]."""
    h = cos.shape[-1]
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    a, b, rest = x[..., :h], x[..., h:2 * h], x[..., 2 * h:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def gdn_reference(q, k, v, g, beta):
    """Chunk form of the gated delta rule, plain and differentiable. q, k [B,T,Hk,d], v [B,T,Hv,d], g and beta [B,T,Hv]."""
    B, T, Hv, dv = v.shape
    dk = q.shape[-1]
    r = Hv // q.shape[2]
    pad = -T % WINDOW
    q, k = (x.repeat_interleave(r, 2) for x in (q, k))
    q, k, v = (F.pad(x.float(), (0, 0, 0, 0, 0, pad)) for x in (q, k, v))
    g, beta = (F.pad(x.float(), (0, 0, 0, pad)) for x in (g, beta))
    n = (T + pad) // WINDOW
    q, k, v = (x.view(B, n, WINDOW, Hv, -1).permute(0, 3, 1, 2, 4) for x in (q, k, v))
    g, beta = (x.view(B, n, WINDOW, Hv).permute(0, 3, 1, 2) for x in (g, beta))
    q = q * dk ** -0.5
    G = g.cumsum(-1)
    low = torch.ones(WINDOW, WINDOW, dtype=torch.bool, device=v.device).tril()
    D = (G[..., :, None] - G[..., None, :]).masked_fill(~low, -math.inf).exp()
    A = beta[..., None] * D * (k @ k.transpose(-1, -2))
    A = A.tril(-1) + torch.eye(WINDOW, device=v.device)
    u0 = torch.linalg.solve_triangular(A, beta[..., None] * v, upper=False, unitriangular=True)
    w0 = torch.linalg.solve_triangular(A, beta[..., None] * G[..., None].exp() * k, upper=False, unitriangular=True)
    P = D * (q @ k.transpose(-1, -2))
    S = torch.zeros(B, Hv, dk, dv, device=v.device)
    out = []
    for c in range(n):
        u = u0[:, :, c] - w0[:, :, c] @ S
        Gc = G[:, :, c, :, None]
        out.append((Gc.exp() * q[:, :, c]) @ S + P[:, :, c] @ u)
        last = Gc[:, :, -1:]
        S = last.exp() * S + ((last - Gc).exp() * k[:, :, c]).transpose(-1, -2) @ u
    return torch.stack(out, 2).permute(0, 2, 3, 1, 4).reshape(B, T + pad, Hv, dv)[:, :T]


class RMSNorm(nn.Module):
    """Zero-centred norm's weight."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return norm(x, self.weight)


class Weight(nn.Module):
    """A bare matrix under the name `weight`."""

    def __init__(self, *shape, std=0.02):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(*shape) * std)

    def forward(self, x):
        return linear(x, self.weight)


class GatedNorm(nn.Module):
    """Plain RMSNorm over the head, times silu of the gate."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x, z):
        f = x.float()
        n = (f * torch.rsqrt(f.square().mean(-1, keepdim=True) + EPS)) * self.weight.float()
        return (n * F.silu(z.float())).to(z.dtype)


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, cfg):
        super().__init__()
        h, i = cfg["hidden_size"], cfg["intermediate_size"]
        self.gate_proj, self.up_proj, self.down_proj = Weight(i, h), Weight(i, h), Weight(h, i)

    def forward(self, x):
        gu = linear(x, torch.cat([self.gate_proj.weight, self.up_proj.weight]))
        gate, up = gu.chunk(2, -1)
        return self.down_proj(F.silu(gate.float()).to(x.dtype) * up)


class Attention(nn.Module):
    """Full attention with an output gate; `project` and `finish` are used apart by the MTP chain."""

    def __init__(self, cfg):
        super().__init__()
        h, d = cfg["hidden_size"], cfg["head_dim"]
        self.hq, self.hkv, self.d = cfg["num_attention_heads"], cfg["num_key_value_heads"], d
        self.q_proj, self.k_proj = Weight(self.hq * 2 * d, h), Weight(self.hkv * d, h)
        self.v_proj, self.o_proj = Weight(self.hkv * d, h), Weight(h, self.hq * d)
        self.q_norm, self.k_norm = RMSNorm(d), RMSNorm(d)

    def project(self, x, cos, sin):
        """q [B,T,Hq,d], gate [B,T,Hq*d], k and v [B,T,Hkv,d]."""
        B, T, _ = x.shape
        y = linear(x, torch.cat([self.q_proj.weight, self.k_proj.weight, self.v_proj.weight]))
        qg, k, v = y.split([self.hq * 2 * self.d, self.hkv * self.d, self.hkv * self.d], -1)
        q, gate = qg.view(B, T, self.hq, 2 * self.d).chunk(2, -1)
        q = rope(self.q_norm(q), cos, sin)
        k = rope(self.k_norm(k.view(B, T, self.hkv, self.d)), cos, sin)
        return q, gate.reshape(B, T, -1), k, v.view(B, T, self.hkv, self.d)

    def finish(self, o, gate):
        """Gate and output projection; o is [B,T,Hq*d]."""
        return self.o_proj(o * torch.sigmoid(gate.float()).to(o.dtype))

    def forward(self, x, cos, sin):
        B, T, _ = x.shape
        q, gate, k, v = self.project(x, cos, sin)
        r = self.hq // self.hkv
        k, v = (t.repeat_interleave(r, 2).transpose(1, 2) for t in (k, v))
        o = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, is_causal=True)
        return self.finish(o.transpose(1, 2).reshape(B, T, -1), gate)


class GatedDeltaNet(nn.Module):
    """Gated DeltaNet with Qwen3.5's separate projections."""

    kernel = staticmethod(gdn_reference)

    def __init__(self, cfg):
        super().__init__()
        h, d = cfg["hidden_size"], cfg["linear_key_head_dim"]
        self.hk, self.hv, self.d = cfg["linear_num_key_heads"], cfg["linear_num_value_heads"], d
        kd, vd = self.hk * d, self.hv * d
        self.kd, self.vd = kd, vd
        self.in_proj_qkv, self.in_proj_z = Weight(2 * kd + vd, h), Weight(vd, h)
        self.in_proj_b, self.in_proj_a = Weight(self.hv, h), Weight(self.hv, h)
        self.conv1d = Weight(2 * kd + vd, 1, cfg["linear_conv_kernel_dim"], std=0.3)
        self.A_log = nn.Parameter(torch.empty(self.hv).uniform_(1, 8).log())
        dt = torch.exp(torch.rand(self.hv) * (math.log(0.1) - math.log(0.002)) + math.log(0.002))
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.norm = GatedNorm(cfg["linear_value_head_dim"])
        self.out_proj = Weight(h, vd)

    def inputs(self, x):
        """Pre-convolution qkv, z, and the raw b and a."""
        w = torch.cat([self.in_proj_qkv.weight, self.in_proj_z.weight, self.in_proj_b.weight, self.in_proj_a.weight])
        return linear(x, w).split([2 * self.kd + self.vd, self.vd, self.hv, self.hv], -1)

    def gates(self, b, a):
        """beta and the log decay g, float32."""
        return torch.sigmoid(b.float()), -self.A_log.float().exp() * F.softplus(a.float() + self.dt_bias.float())

    def heads(self, c):
        """Normalised q and k, and v, from the convolved channels."""
        q, k, v = c.split([self.kd, self.kd, self.vd], -1)
        q, k = (t.unflatten(-1, (self.hk, self.d)) for t in (q, k))
        q, k = ((t.float() * torch.rsqrt(t.float().square().sum(-1, keepdim=True) + 1e-6)).to(c.dtype) for t in (q, k))
        return q, k, v.unflatten(-1, (self.hv, -1))

    def forward(self, x):
        B, T, _ = x.shape
        u, z, b, a = self.inputs(x)
        w = self.conv1d.weight[:, 0].float()
        p = F.pad(u, (0, 0, w.shape[1] - 1, 0))
        c = sum(p[:, j:j + T].float() * w[:, j] for j in range(w.shape[1]))
        q, k, v = self.heads(F.silu(c).to(x.dtype))
        beta, g = self.gates(b, a)
        o = type(self).kernel(q.contiguous(), k.contiguous(), v.contiguous(), g, beta).to(x.dtype)
        return self.out_proj(self.norm(o, z.unflatten(-1, (self.hv, -1))).reshape(B, T, -1))


class Layer(nn.Module):
    """One block: mixer and MLP, each under its norm."""

    def __init__(self, cfg, kind):
        super().__init__()
        h = cfg["hidden_size"]
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(h), RMSNorm(h)
        if kind == "full_attention":
            self.self_attn = Attention(cfg)
        else:
            self.linear_attn = GatedDeltaNet(cfg)
        self.mlp = MLP(cfg)
        self.kind = kind

    def forward(self, x, cos, sin):
        y = self.input_layernorm(x)
        x = x + (self.self_attn(y, cos, sin) if self.kind == "full_attention" else self.linear_attn(y))
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    """Embedding, layers and final norm."""

    def __init__(self, cfg):
        super().__init__()
        self.embed_tokens = Weight(cfg["vocab_size"], cfg["hidden_size"])
        self.layers = nn.ModuleList([Layer(cfg, k) for k in cfg["layer_types"]])
        self.norm = RMSNorm(cfg["hidden_size"])


class MTP(nn.Module):
    """The draft head: one full-attention layer over the pair (embedding, hidden)."""

    def __init__(self, cfg):
        super().__init__()
        h = cfg["hidden_size"]
        self.fc = Weight(h, 2 * h)
        self.layers = nn.ModuleList([Layer(cfg, "full_attention")])
        self.norm, self.pre_fc_norm_hidden, self.pre_fc_norm_embedding = RMSNorm(h), RMSNorm(h), RMSNorm(h)

    def merge(self, e, h):
        """The layer's input from the next token's embedding and the hidden at this position."""
        return self.fc(torch.cat([self.pre_fc_norm_embedding(e), self.pre_fc_norm_hidden(h)], -1))


class Model(nn.Module):
    """Trunk and MTP head; the LM head is the embedding."""

    def __init__(self, cfg=None, dtype=torch.float32):
        super().__init__()
        self.cfg = cfg or CONFIG
        self.dtype = dtype
        self.model = Trunk(self.cfg)
        self.mtp = MTP(self.cfg)

    def embed(self, ids):
        return F.embedding(ids, self.model.embed_tokens.weight).to(self.dtype)

    def head(self, h):
        return linear(h, self.model.embed_tokens.weight)

    def hidden(self, ids):
        """Final normed hidden [B,T,H]."""
        x = self.embed(ids)
        cos, sin = rope_tables(torch.arange(ids.shape[1], device=ids.device), self.cfg, self.dtype)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return self.model.norm(x)

    def forward(self, ids):
        return self.head(self.hidden(ids))

    def draft_step(self, ids, h, step, past, attend):
        """One step of the chain at every start p at once: ids and h [B,T(,H)] belong to slot p+step.

        past is the list of (k, v) of the earlier steps; this step's are appended. Slot p+step sees the true slots up to p and
        the chain's own. attend(q, past) -> [B,T,Hq*d].
        """
        T = ids.shape[1]
        cos, sin = rope_tables(torch.arange(T, device=ids.device) + step, self.cfg, self.dtype)
        layer = self.mtp.layers[0]
        x = self.mtp.merge(self.embed(ids), h)
        q, gate, k, v = layer.self_attn.project(layer.input_layernorm(x), cos, sin)
        past.append((k, v))
        x = x + layer.self_attn.finish(attend(q, past), gate)
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self.mtp.norm(x)


def attend_dense(q, past):
    """Attention of a chain step in plain PyTorch: causal over the first step's slots, own slots of the later ones."""
    B, T, H, d = q.shape
    r = H // past[0][0].shape[2]
    q = q.transpose(1, 2).float() * d ** -0.5
    ks = [k.repeat_interleave(r, 2).transpose(1, 2).float() for k, _ in past]
    vs = [v.repeat_interleave(r, 2).transpose(1, 2).float() for _, v in past]
    s0 = (q @ ks[0].transpose(-1, -2)).masked_fill(~torch.ones(T, T, dtype=torch.bool, device=q.device).tril(), -math.inf)
    own = [(q * k).sum(-1, keepdim=True) for k in ks[1:]]
    p = torch.softmax(torch.cat([s0] + own, -1), -1)
    o = p[..., :T] @ vs[0]
    for j, v in enumerate(vs[1:]):
        o = o + p[..., T + j:T + j + 1] * v
    return o.transpose(1, 2).reshape(B, T, H * d).to(past[0][0].dtype)


def export(model, folder):
    """Writes config.json, generation_config.json and model.safetensors (BF16; A_log and dt_bias F32)."""
    from safetensors.torch import save_file
    os.makedirs(folder, exist_ok=True)
    sd = {}
    for name, t in model.state_dict().items():
        keep = name.endswith(("A_log", "dt_bias"))
        sd[name] = t.detach().float().cpu().contiguous() if keep else t.detach().to(torch.bfloat16).cpu().contiguous()
    save_file(sd, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    write_json(os.path.join(folder, "config.json"), model.cfg)
    write_json(os.path.join(folder, "generation_config.json"), {"eos_token_id": model.cfg["eos_token_id"], "do_sample": False})


def write_json(path, value):
    """Indented JSON with a final newline."""
    with open(path, "w") as f:
        json.dump(value, f, indent=2)
        f.write("\n")


def load(folder, dtype=torch.float32):
    """The model of a folder written by export."""
    from safetensors.torch import load_file
    m = Model(json.load(open(os.path.join(folder, "config.json"))), dtype)
    m.load_state_dict({k: v.float() for k, v in load_file(os.path.join(folder, "model.safetensors")).items()})
    return m


if __name__ == "__main__":
    torch.manual_seed(0)
    export(Model(), os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
