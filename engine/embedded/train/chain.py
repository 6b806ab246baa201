"""The MTP chain at every start of a row at once: compiled pieces and masked attention, on a GPU or plain."""

import torch
import torch.nn.functional as F

import model as M


class Chain:
    """Draft steps over rows of T starts. Step j of start p is slot p+j+1 of the cache: the pair (hidden, token p+j+1)."""

    def __init__(self, m, T, device, steps=5):
        self.m = m
        self.set_up(T, device, m.cfg, m.dtype, steps)

    def set_up(self, T, device, cfg, dtype, steps):
        """Compiles the pieces around attention, for rows of T starts."""
        self.T, self.device, self.unfused = T, device, device != "cuda"
        comp = compiled(device)
        self.fast = (comp(self._pre), comp(self._post))
        self.pre, self.post = self.fast
        self.tables = [M.rope_tables(torch.arange(T, device=device) + j, cfg, dtype) for j in range(steps)]
        self.masks, self.flex = {}, None

    def plain(self, on):
        """Runs without compiled pieces, or with them again."""
        self.pre, self.post = (self._pre, self._post) if on else self.fast
        self.unfused = on or self.device != "cuda"

    def _pre(self, ids, h, cos, sin):
        layer = self.m.mtp.layers[0]
        x = self.m.mtp.merge(self.m.embed(ids), h)
        return (x, *layer.self_attn.project(layer.input_layernorm(x), cos, sin))

    def _post(self, x, o, gate):
        layer = self.m.mtp.layers[0]
        x = x + layer.self_attn.finish(o, gate)
        return self.m.mtp.norm(x + layer.mlp(layer.post_attention_layernorm(x)))

    def attend(self, q, past):
        """Attention of chain step len(past)-1: causal over step 0, own slots of the later steps."""
        B, n, H, d = q.shape
        if len(past) == 1:
            r = H // past[0][0].shape[2]
            k, v = (t.repeat_interleave(r, 2).transpose(1, 2) for t in past[0])
            return F.scaled_dot_product_attention(q.transpose(1, 2), k, v, is_causal=True).transpose(1, 2).reshape(B, n, H * d)
        if self.unfused:
            return M.attend_dense(q, past)
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        s = len(past)
        if s not in self.masks:
            self.masks[s] = create_block_mask(lambda b, h, i, j: ((j < n) & (j <= i)) | ((j >= n) & (j % n == i)), None, None, n, s * n, device="cuda")
            self.flex = self.flex or torch.compile(flex_attention, dynamic=False)
        k, v = (torch.cat([p[i] for p in past], 1).transpose(1, 2) for i in (0, 1))
        o = self.flex(q.transpose(1, 2), k, v, block_mask=self.masks[s], enable_gqa=True)
        return o.transpose(1, 2).reshape(B, n, H * d)

    def run(self, x, h, steps):
        """Yields the chain's hidden [B,T,H] after each step. x [B,>=T+steps] tokens, h [B,T,H] trunk hidden."""
        past = []
        for j in range(steps):
            z, q, gate, k, v = self.pre(x[:, 1 + j:self.T + 1 + j], h, *self.tables[j])
            past.append((k, v))
            h = self.post(z, self.attend(q, past), gate)
            yield h


def compiled(device):
    """torch.compile with fixed shapes on a GPU, nothing elsewhere."""
    return (lambda f: torch.compile(f, dynamic=False)) if device == "cuda" else (lambda f: f)


def captured(work, params):
    """work (losses and backward over static inputs) as one CUDA graph; returns a function that runs it and sets the gradients."""
    def clear():
        for p in params:
            p.grad = None
    for _ in range(2):
        clear()
        work()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        clear()
        work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    clear()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        parts = work()
    grads = {p: p.grad for p in params}

    def run():
        for p, t in grads.items():
            p.grad = t
        g.replay()
        return parts
    return run
