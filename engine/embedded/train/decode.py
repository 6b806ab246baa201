"""Token-by-token decoding of a batch with the trunk, for rollouts and for measuring; on a GPU one step is a captured graph."""

import torch
import torch.nn.functional as F

import model as M
from chain import compiled


def delta(S, q, k, v, decay, beta):
    """One step of the gated delta rule: S [B,H,dk,dv] in place; returns its output [B,H,dv]."""
    old = S * decay[..., None, None]
    w = beta[..., None] * (v - (k[..., None] * old).sum(-2))
    new = old + k[..., None] * w[..., None, :]
    S.copy_(new)
    return (q[..., None] * new).sum(-2)


class Decoder:
    """State of a batch of equal-length sequences: KV of the attention layers, conv window and S of the GDN layers.

    taps lists after how many layers the residual stream is wanted; step leaves these, side by side, in self.tapped.
    """

    def __init__(self, model, batch, length, device, taps=()):
        self.m, self.device, self.taps, self.tapped = model, device, taps, None
        cfg = model.cfg
        self.length, self.batch = length, batch
        dt = model.dtype
        self.pos = torch.zeros((), dtype=torch.long, device=device)
        self.ids = torch.zeros(batch, dtype=torch.long, device=device)
        self.heat = torch.zeros(batch, 1, device=device)
        self.cos, self.sin = M.rope_tables(torch.arange(length, device=device), cfg, dt)
        self.kv, self.conv, self.S = {}, {}, {}
        for i, layer in enumerate(model.model.layers):
            if layer.kind == "full_attention":
                self.kv[i] = torch.zeros(2, batch, cfg["num_key_value_heads"], length, cfg["head_dim"], dtype=dt, device=device)
            else:
                g = layer.linear_attn
                self.conv[i] = torch.zeros(batch, 3, 2 * g.kd + g.vd, dtype=dt, device=device)
                self.S[i] = torch.zeros(batch, g.hv, g.d, g.vd // g.hv, device=device)
        self.graph, self.delta = None, compiled(device)(delta)

    def reset(self):
        """Back to the empty sequence."""
        self.pos.zero_()
        for t in [*self.kv.values(), *self.conv.values(), *self.S.values()]:
            t.zero_()

    def gdn(self, i, layer, x):
        g = layer.linear_attn
        u, z, b, a = g.inputs(x)
        win = torch.cat([self.conv[i], u[:, None]], 1)
        c = F.silu((win.float() * g.conv1d.weight[:, 0].float().t()).sum(1)).to(x.dtype)
        self.conv[i].copy_(win[:, 1:])
        q, k, v = g.heads(c)
        r = g.hv // g.hk
        q, k = (t.float().repeat_interleave(r, 1) for t in (q, k))
        beta, decay = g.gates(b, a)
        o = self.delta(self.S[i], q * g.d ** -0.5, k, v.float(), decay.exp(), beta).to(x.dtype)
        return g.out_proj(g.norm(o, z.unflatten(-1, (g.hv, -1))).flatten(1))

    def attention(self, i, layer, x):
        at = layer.self_attn
        cos, sin = (t.index_select(0, self.pos.view(1)) for t in (self.cos, self.sin))
        q, gate, k, v = at.project(x[:, None], cos, sin)
        kc, vc = self.kv[i]
        kc.index_copy_(2, self.pos.view(1), k.transpose(1, 2))
        vc.index_copy_(2, self.pos.view(1), v.transpose(1, 2))
        q = q.view(x.shape[0], at.hkv, at.hq // at.hkv, at.d)
        s = (q @ kc.transpose(-1, -2)).float() * at.d ** -0.5
        s = s.masked_fill(torch.arange(self.length, device=x.device) > self.pos, float("-inf"))
        o = torch.softmax(s, -1).to(x.dtype) @ vc
        return at.finish(o.reshape(x.shape[0], 1, -1), gate)[:, 0]

    def step(self):
        """Feeds self.ids at self.pos; returns the final normed hidden, the logits and the next ids (greedy where heat is 0)."""
        x = self.m.embed(self.ids)
        tapped = []
        for i, layer in enumerate(self.m.model.layers):
            y = layer.input_layernorm(x)
            x = x + (self.attention(i, layer, y) if layer.kind == "full_attention" else self.gdn(i, layer, y))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            tapped += [x] if i + 1 in self.taps else []
        if tapped:
            self.tapped = torch.cat(tapped, -1)
        h = self.m.model.norm(x)
        logits = self.m.head(h).float()
        noise = -torch.log(-torch.log(torch.rand_like(logits).clamp_(1e-9, 1 - 1e-7)))
        nxt = (logits + self.heat * noise).argmax(-1)
        self.pos.add_(1)
        return h, logits, nxt

    @torch.no_grad()
    def advance(self):
        """One step, through the captured graph on a GPU."""
        if self.device == "cpu":
            return self.step()
        if self.graph is None:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.step()
            torch.cuda.current_stream().wait_stream(side)
            self.reset()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = self.step()
            self.reset()
        self.graph.replay()
        return self.out

    @torch.no_grad()
    def rollout(self, prompts, lengths, new, heat, hidden=None, tapped=None):
        """Continues row b of prompts [B,P], of lengths[b] tokens, by `new` tokens; heat [B] is the temperature (0 is greedy).

        Returns [B,P+new]; row b is good up to lengths[b]+new. hidden [B,P+new-1,H], if given, gets the trunk's hidden states,
        tapped [B,P+new-1,H*taps] the residual streams that the decoder taps.
        """
        P = prompts.shape[1]
        self.heat.copy_(heat[:, None])
        out = torch.zeros(self.batch, P + new, dtype=torch.long, device=self.device)
        out[:, :P] = prompts
        self.advance()
        self.reset()
        for t in range(P + new - 1):
            self.ids.copy_(out[:, t])
            h, _, nxt = self.advance()
            if hidden is not None:
                hidden[:, t] = h
            if tapped is not None:
                tapped[:, t] = self.tapped
            out[:, t + 1] = torch.where(t + 1 < lengths, out[:, t + 1], nxt)
        return out
