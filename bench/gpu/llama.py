"""A Llama of 1.2 billion parameters for one decode step with a KV cache, in torch; llama_onnx.py is the same as ONNX."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import llama_onnx
from llama_onnx import EPSILON, FFN, HEAD, HEADS, KV_HEADS, LAYERS, VOCABULARY, WIDTH


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH, eps=EPSILON), nn.RMSNorm(WIDTH, eps=EPSILON)
        self.q, self.k, self.v = (nn.Linear(WIDTH, n * HEAD, bias=False) for n in (HEADS, KV_HEADS, KV_HEADS))
        self.o = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up, self.down = nn.Linear(WIDTH, FFN, bias=False), nn.Linear(WIDTH, FFN, bias=False), nn.Linear(FFN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, past_k: torch.Tensor, past_v: torch.Tensor):
        n, s, _ = x.shape
        h = self.norm1(x)
        split = lambda t, heads: t.view(n, s, heads, HEAD).transpose(1, 2)  # noqa: E731
        q, k, v = split(self.q(h), HEADS), split(self.k(h), KV_HEADS), split(self.v(h), KV_HEADS)

        def turn(t: torch.Tensor) -> torch.Tensor:
            a, b = t[..., :HEAD // 2], t[..., HEAD // 2:]
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

        k, v = torch.cat((past_k, turn(k)), 2), torch.cat((past_v, v), 2)
        a = F.scaled_dot_product_attention(turn(q), k, v, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).reshape(n, s, WIDTH))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), k, v


class Llama(nn.Module):
    """Inputs and outputs in the order of llama_onnx."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH, eps=EPSILON), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, token: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *past: torch.Tensor):
        x, news = self.embedding(token), []
        for i, layer in enumerate(self.layers):
            x, k, v = layer(x, cos, sin, past[2 * i], past[2 * i + 1])
            news += [k, v]
        return self.head(self.norm(x)), *news

    def write_onnx(self, path: Path) -> None:
        weights = dict(self.named_parameters())

        def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
            w = weights[f"{name}.weight"].detach().half()
            return (w.T if len(shape) == 2 and name != "embedding" else w).contiguous().cpu().numpy()

        llama_onnx.write(path, weight)

    @staticmethod
    def decode_inputs(past: int) -> list[torch.Tensor]:
        angle = past * 500000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
        return [torch.tensor([[17]]), angle.cos()[None, None], angle.sin()[None, None],
                *(torch.randn(1, KV_HEADS, past, HEAD) for _ in range(2 * LAYERS))]
