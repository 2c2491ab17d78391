"""A Llama of 1.2 billion parameters for one decode step with a KV cache, as plain torch (exports to ONNX as it is)."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, KV_HEADS, FFN, VOCABULARY = 16, 2048, 32, 8, 8192, 128256
HEAD = WIDTH // HEADS


class RMSNorm(nn.Module):
    """nn.RMSNorm, which the exporter does not take."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        f = x.float()
        return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(), RMSNorm()
        self.q, self.k, self.v = (nn.Linear(WIDTH, n * HEAD, bias=False) for n in (HEADS, KV_HEADS, KV_HEADS))
        self.o = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up, self.down = nn.Linear(WIDTH, FFN, bias=False), nn.Linear(WIDTH, FFN, bias=False), nn.Linear(FFN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, past_k: torch.Tensor, past_v: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor):
        n, s, _ = x.shape
        h = self.norm1(x)
        split = lambda t, heads: t.view(n, s, heads, HEAD).transpose(1, 2)  # noqa: E731
        q, k, v = split(self.q(h), HEADS), split(self.k(h), KV_HEADS), split(self.v(h), KV_HEADS)
        turn = lambda t: t * cos + torch.cat((-t[..., HEAD // 2:], t[..., :HEAD // 2]), -1) * sin  # noqa: E731
        k, v = torch.cat((past_k, turn(k)), 2), torch.cat((past_v, v), 2)
        if torch.onnx.is_in_onnx_export():  # the exporter does not take enable_gqa
            every = lambda t: t[:, :, None].expand(n, KV_HEADS, HEADS // KV_HEADS, -1, HEAD).reshape(n, HEADS, -1, HEAD)  # noqa: E731
            a = F.scaled_dot_product_attention(turn(q), every(k), every(v))
        else:
            a = F.scaled_dot_product_attention(turn(q), k, v, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).reshape(n, s, WIDTH))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), k, v


class Llama(nn.Module):
    """(past keys and values [2 * LAYERS, 1, KV_HEADS, past, HEAD], cos and sin [2, HEAD], token [1, 1]) -> logits and the
    new keys and values of all layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = RMSNorm(), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, past: torch.Tensor, turn: torch.Tensor, token: torch.Tensor):
        x, news = self.embedding(token), []
        for i, layer in enumerate(self.layers):
            x, k, v = layer(x, past[2 * i], past[2 * i + 1], turn[0], turn[1])
            news += [k, v]
        return self.head(self.norm(x)), *news

    @staticmethod
    def decode_inputs(past: int) -> list[torch.Tensor]:
        angle = past * 500000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
        angle = torch.cat((angle, angle))
        return [torch.randn(2 * LAYERS, 1, KV_HEADS, past, HEAD), torch.stack((angle.cos(), angle.sin())), torch.tensor([[17]])]
