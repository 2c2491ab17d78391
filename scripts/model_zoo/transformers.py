"""Transformers as PyTorch's exporter writes them: ViT-B/16, BERT-base, GPT-2 (prefill and decode), a Llama block.

Shapes are computed in the graph by Shape, Gather, Unsqueeze and Concat chains; batch and lengths are free.
"""
from __future__ import annotations

import math

import numpy as np
import onnx

from .net import F32, I64, ExternalWeights, Net

LOWEST = float(np.finfo(np.float32).min)


def _expand_like_exporter(net: Net, x: str, shape: str) -> str:
    """x.expand(shape) as the exporter writes it: -1 in `shape` replaced by 1 through Equal and Where, then Expand."""
    rank = net.op("Shape", shape)
    ones = net.op("ConstantOfShape", rank, value=onnx.numpy_helper.from_array(np.array([1], dtype=np.int64)))
    minus = net.op("Mul", ones, net.const(-1))
    return net.op("Expand", x, net.op("Where", net.op("Equal", shape, minus), ones, shape))


def _heads(net: Net, x: str, batch: str, length: str, heads: int, width: int, perm: list[int]) -> str:
    """x.view(batch, length, heads, width).permute(perm)."""
    return net.op("Transpose", net.reshape(x, [batch, length, heads, width]), perm=perm)


def vit_b16() -> onnx.ModelProto:
    """ViT-B/16 at 224 pixels in timm's form: one qkv Linear, Reshape and Transpose to [3, b, h, n, d], opset 17."""
    width, heads, n = 768, 12, 197
    net = Net("vit_b16", opset=17, seed=16)
    image = net.input("input", ["batch", 3, 224, 224])
    with net.scope("patch_embed"), net.scope("proj"):
        x = net.op("Conv", image, net.normal("weight", [width, 3, 16, 16], 1 / math.sqrt(768)),
                   net.normal("bias", [width], 0.02), dilations=[1, 1], group=1, kernel_shape=[16, 16],
                   pads=[0, 0, 0, 0], strides=[16, 16])
    with net.scope("patch_embed"):
        shape = net.op("Shape", x)
        head = net.slice(shape, 0, 0, 2)
        x = net.op("Reshape", x, net.op("Concat", head, net.const([-1]), axis=0))
        x = net.op("Transpose", x, perm=[0, 2, 1])
    cls = net.normal("cls_token", [1, 1, width], 0.3)
    cls = _expand_like_exporter(net, cls, net.shape_of([net.dim(x, 0), -1, -1]))
    x = net.op("Concat", cls, x, axis=1)
    x = net.op("Add", x, net.normal("pos_embed", [1, n, width], 0.3))
    for i in range(12):
        with net.scope(f"blocks.{i}"):
            with net.scope("norm1"):
                y = net.layer_norm(x, width, eps=1e-6)
            with net.scope("attn"):
                batch, length, channels = net.dim(y, 0), net.dim(y, 1), net.dim(y, 2)
                with net.scope("qkv"):
                    qkv = net.linear(y, width, 3 * width)
                qkv = net.op("Transpose", net.reshape(qkv, [batch, length, 3, heads, width // heads]),
                             perm=[2, 0, 3, 1, 4])
                q, k, v = [net.op("Gather", qkv, net.const(j), axis=0) for j in range(3)]
                q = net.op("Mul", q, net.const((width // heads) ** -0.5, np.float32))
                scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
                y = net.op("MatMul", net.op("Softmax", scores, axis=-1), v)
                y = net.reshape(net.op("Transpose", y, perm=[0, 2, 1, 3]), [batch, length, channels])
                with net.scope("proj"):
                    y = net.linear(y, width, width)
            x = net.op("Add", x, y)
            with net.scope("norm2"):
                y = net.layer_norm(x, width, eps=1e-6)
            with net.scope("mlp"):
                with net.scope("fc1"):
                    y = net.linear(y, width, 4 * width)
                with net.scope("act"):
                    y = net.gelu(y)
                with net.scope("fc2"):
                    y = net.linear(y, 4 * width, width)
            x = net.op("Add", x, y)
    with net.scope("norm"):
        x = net.layer_norm(x, width, eps=1e-6)
    x = net.op("Gather", x, net.const(0), axis=1)
    with net.scope("head"):
        x = net.gemm(x, width, 1000)
    net.output(x, "output", ["batch", 1000])
    return net.build()


def bert_base() -> onnx.ModelProto:
    """BERT-base, uncased vocabulary, LayerNorm and GELU decomposed, opset 14, three i64 inputs [batch, sequence]."""
    width, heads, vocab, positions = 768, 12, 30522, 512
    net = Net("bert_base", opset=14, seed=12)
    ids, mask, types = [net.input(n, ["batch", "sequence"], I64)
                        for n in ("input_ids", "attention_mask", "token_type_ids")]
    length = net.dim(ids, 1)
    with net.scope("embeddings"):
        # f32 mask: 0 where attended, the lowest float elsewhere, [batch, 1, 1, sequence]
        wide = net.axes_op("Unsqueeze", net.axes_op("Unsqueeze", mask, [1]), [2])
        off = net.op("Sub", net.const(1.0, np.float32), net.op("Cast", wide, to=F32))
        bias = net.op("Mul", off, net.const(LOWEST, np.float32))
        position_ids = net.param("position_ids", np.arange(positions, dtype=np.int64)[None])
        position_ids = net.slice(position_ids, 1, 0, net.axes_op("Unsqueeze", length, [0]))
        x = net.op("Add", net.op("Gather", net.normal("word_embeddings.weight", [vocab, width], 0.5), ids),
                   net.op("Gather", net.normal("token_type_embeddings.weight", [2, width], 0.2), types))
        x = net.op("Add", x, net.op("Gather", net.normal("position_embeddings.weight", [positions, width], 0.2),
                                    position_ids))
        with net.scope("LayerNorm"):
            x = net.layer_norm(x, width, 1e-12, decomposed=True)
    for i in range(12):
        with net.scope(f"encoder.layer.{i}"):
            with net.scope("attention"):
                with net.scope("query"):
                    q = net.linear(x, width, width)
                with net.scope("key"):
                    k = net.linear(x, width, width)
                    k = _heads(net, k, net.dim(k, 0), net.dim(k, 1), heads, 64, [0, 2, 3, 1])
                with net.scope("value"):
                    v = net.linear(x, width, width)
                    v = _heads(net, v, net.dim(v, 0), net.dim(v, 1), heads, 64, [0, 2, 1, 3])
                q = _heads(net, q, net.dim(q, 0), net.dim(q, 1), heads, 64, [0, 2, 1, 3])
                scores = net.op("Div", net.op("MatMul", q, k), net.const(8.0, np.float32))
                probabilities = net.op("Softmax", net.op("Add", scores, bias), axis=-1)
                y = net.op("Transpose", net.op("MatMul", probabilities, v), perm=[0, 2, 1, 3])
                y = net.reshape(y, [net.dim(y, 0), net.dim(y, 1), width])
                with net.scope("output"):
                    y = net.linear(y, width, width)
                    x = net.layer_norm(net.op("Add", y, x), width, 1e-12, decomposed=True)
            with net.scope("intermediate"):
                y = net.gelu(net.linear(x, width, 4 * width))
            with net.scope("output"):
                y = net.linear(y, 4 * width, width)
                x = net.layer_norm(net.op("Add", y, x), width, 1e-12, decomposed=True)
    with net.scope("pooler"):
        pooled = net.op("Tanh", net.gemm(net.op("Gather", x, net.const(0), axis=1), width, width))
    net.output(x, "last_hidden_state", ["batch", "sequence", width])
    net.output(pooled, "pooler_output", ["batch", width])
    return net.build()


def _gelu_new(net: Net, x: str) -> str:
    """GPT-2's tanh approximation, as the exporter decomposes it."""
    cube = net.op("Pow", x, net.const(3.0, np.float32))
    inner = net.op("Add", x, net.op("Mul", cube, net.const(0.044715, np.float32)))
    t = net.op("Tanh", net.op("Mul", inner, net.const(math.sqrt(2 / math.pi), np.float32)))
    half = net.op("Mul", x, net.const(0.5, np.float32))
    return net.op("Mul", half, net.op("Add", t, net.const(1.0, np.float32)))


def _conv1d(net: Net, x: str, n_in: int, n_out: int) -> str:
    """Hugging Face's Conv1D: x.view(-1, n_in), Gemm, view back; weight f32[n_in, n_out]."""
    shape = [net.dim(x, 0), net.dim(x, 1), n_out]
    flat = net.reshape(x, [-1, n_in])
    y = net.op("Gemm", flat, net.normal("weight", [n_in, n_out], 1 / math.sqrt(n_in)),
               net.normal("bias", [n_out], 0.02), alpha=1.0, beta=1.0)
    return net.reshape(y, shape)


def gpt2(weights: ExternalWeights, decode: bool, layers: int = 12) -> onnx.ModelProto:
    """GPT-2 small, opset 17, its weights in a file that prefill and decode share.

    Prefill: input_ids i64[batch, sequence] -> logits, present.N.key and .value f32[batch, 12, sequence, 64].
    Decode: also past_key_values.N.key and .value f32[batch, 12, past, 64]; presents have past + sequence rows.
    """
    width, heads, vocab, positions = 768, 12, 50257, 1024
    net = Net("gpt2_decode" if decode else "gpt2", opset=17, seed=2, external=weights)
    ids = net.input("input_ids", ["batch", "sequence"], I64)
    pasts = [[net.input(f"past_key_values.{i}.{n}", ["batch", heads, "past", 64]) for n in ("key", "value")]
             for i in range(layers)] if decode else []
    presents: list[tuple[str, str]] = []
    length = net.dim(ids, 1)
    start = net.dim(pasts[0][0], 2) if decode else net.const(0)
    position_ids = net.op("Range", start, net.op("Add", start, length), net.const(1))
    with net.scope("transformer"):
        table = net.normal("wte.weight", [vocab, width], 0.1)
        x = net.op("Add", net.op("Gather", table, ids),
                   net.op("Gather", net.normal("wpe.weight", [positions, width], 0.1),
                          net.axes_op("Unsqueeze", position_ids, [0])))
    for i in range(layers):
        with net.scope("transformer"), net.scope(f"h.{i}"):
            with net.scope("ln_1"):
                y = net.layer_norm(x, width)
            with net.scope("attn"):
                with net.scope("c_attn"):
                    qkv = _conv1d(net, y, width, 3 * width)
                parts = net.op("Split", qkv, net.const([width] * 3), outputs=3, axis=2)
                q, k, v = [_heads(net, p, net.dim(p, 0), net.dim(p, 1), heads, 64, [0, 2, 1, 3]) for p in parts]
                if decode:
                    k = net.op("Concat", pasts[i][0], k, axis=-2)
                    v = net.op("Concat", pasts[i][1], v, axis=-2)
                presents.append((k, v))
                scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
                scores = net.op("Div", scores, net.const(8.0, np.float32))
                n_q, n_k = net.dim(q, 2), net.dim(k, 2)
                one = [net.axes_op("Unsqueeze", s, [0]) for s in (net.op("Sub", n_k, n_q), n_k)]
                causal = net.param("bias", np.tril(np.ones((positions, positions), dtype=np.bool_))[None, None])
                causal = net.slice(net.slice(causal, 2, one[0], one[1]), 3, 0, one[1])
                scores = net.op("Where", causal, scores, net.const(LOWEST, np.float32))
                y = net.op("MatMul", net.op("Softmax", scores, axis=-1), v)
                y = net.op("Transpose", y, perm=[0, 2, 1, 3])
                y = net.reshape(y, [net.dim(y, 0), net.dim(y, 1), width])
                with net.scope("c_proj"):
                    y = _conv1d(net, y, width, width)
            x = net.op("Add", y, x)
            with net.scope("ln_2"):
                y = net.layer_norm(x, width)
            with net.scope("mlp"):
                with net.scope("c_fc"):
                    y = _conv1d(net, y, width, 4 * width)
                with net.scope("act"):
                    y = _gelu_new(net, y)
                with net.scope("c_proj"):
                    y = _conv1d(net, y, 4 * width, width)
            x = net.op("Add", x, y)
    with net.scope("transformer"), net.scope("ln_f"):
        x = net.layer_norm(x, width)
    with net.scope("lm_head"):
        logits = net.op("MatMul", x, net.op("Transpose", table, perm=[1, 0]))
    net.output(logits, "logits", ["batch", "sequence", vocab])
    total = "past + sequence" if decode else "sequence"
    for i, pair in enumerate(presents):
        for value, n in zip(pair, ("key", "value")):
            net.output(value, f"present.{i}.{n}", ["batch", heads, total, 64])
    return net.build()


def _rms_norm(net: Net, x: str, n: int) -> str:
    """LlamaRMSNorm: x * reciprocal(sqrt(mean(x^2) + eps)) * weight."""
    mean = net.reduce_mean(net.op("Pow", x, net.const(2.0, np.float32)), [-1])
    scale = net.op("Reciprocal", net.op("Sqrt", net.op("Add", mean, net.const(1e-6, np.float32))))
    return net.op("Mul", net.normal("weight", [n], 0.1, 1.0), net.op("Mul", x, scale))


def _rotate(net: Net, x: str, cos: str, sin: str, width: int) -> str:
    """Rotary embedding of f32[batch, heads, n, width]: x * cos + rotate_half(x) * sin."""
    half = width // 2
    first, second = net.slice(x, 3, 0, half), net.slice(x, 3, half, np.iinfo(np.int64).max)
    rotated = net.op("Concat", net.op("Neg", second), first, axis=-1)
    return net.op("Add", net.op("Mul", x, cos), net.op("Mul", rotated, sin))


def llama_block(layers: int = 2) -> onnx.ModelProto:
    """Two Llama layers with grouped queries, rotary embedding, a cache and SwiGLU, opset 18.

    inputs_embeds f32[batch, sequence, 1024], attention_mask i64[batch, past + sequence] (1: attended),
    position_ids i64[batch, sequence], past_key_values.N.{key,value} f32[batch, 4, past, 64]; past may be 0.
    """
    width, heads, groups, d, hidden = 1024, 16, 4, 64, 2816
    net = Net("llama_block", opset=18, seed=18, ir=9)
    x = net.input("inputs_embeds", ["batch", "sequence", width])
    mask = net.input("attention_mask", ["batch", "past + sequence"], I64)
    positions = net.input("position_ids", ["batch", "sequence"], I64)
    pasts = [[net.input(f"past_key_values.{i}.{n}", ["batch", groups, "past", d]) for n in ("key", "value")]
             for i in range(layers)]
    presents: list[tuple[str, str]] = []
    batch, length, past = net.dim(x, 0), net.dim(x, 1), net.dim(pasts[0][0], 2)
    total = net.op("Add", past, length)

    # additive mask f32[batch, 1, sequence, past + sequence]: key position > query position, or masked out
    rows = net.axes_op("Unsqueeze", net.op("Range", past, total, net.const(1)), [1])
    columns = net.axes_op("Unsqueeze", net.op("Range", net.const(0), total, net.const(1)), [0])
    future = net.op("Greater", columns, rows)
    hidden_keys = net.op("Equal", net.axes_op("Unsqueeze", mask, [1, 2]), net.const(0))
    blocked = net.op("Or", net.axes_op("Unsqueeze", future, [0, 1]), hidden_keys)
    bias = net.op("Where", blocked, net.const(LOWEST, np.float32), net.const(0.0, np.float32))

    with net.scope("rotary_emb"):
        inv = (1.0 / 10000.0 ** (np.arange(0, d, 2, dtype=np.float64) / d)).astype(np.float32)
        inv = _expand_like_exporter(net, net.param("inv_freq", inv[None, :, None]), net.shape_of([batch, -1, 1]))
        angle = net.op("MatMul", inv, net.op("Cast", net.axes_op("Unsqueeze", positions, [1]), to=F32))
        angle = net.op("Transpose", angle, perm=[0, 2, 1])
        angle = net.op("Concat", angle, angle, axis=-1)
        cos, sin = net.op("Cos", angle), net.op("Sin", angle)
        cos, sin = net.axes_op("Unsqueeze", cos, [1]), net.axes_op("Unsqueeze", sin, [1])

    for i in range(layers):
        with net.scope(f"layers.{i}"):
            with net.scope("input_layernorm"):
                y = _rms_norm(net, x, width)
            with net.scope("self_attn"):
                projected = []
                for name, n in (("q_proj", heads), ("k_proj", groups), ("v_proj", groups)):
                    with net.scope(name):
                        p = net.linear(y, width, n * d, bias=False)
                        projected.append(_heads(net, p, batch, length, n, d, [0, 2, 1, 3]))
                q, k, v = projected
                q, k = _rotate(net, q, cos, sin, d), _rotate(net, k, cos, sin, d)
                k = net.op("Concat", pasts[i][0], k, axis=-2)
                v = net.op("Concat", pasts[i][1], v, axis=-2)
                presents.append((k, v))
                repeated = []
                for kv in (k, v):  # repeat_kv: each group serves heads / groups queries
                    wide = net.axes_op("Unsqueeze", kv, [2])
                    wide = _expand_like_exporter(net, wide, net.shape_of([batch, groups, heads // groups, total, d]))
                    repeated.append(net.reshape(wide, [batch, heads, total, d]))
                scores = net.op("MatMul", q, net.op("Transpose", repeated[0], perm=[0, 1, 3, 2]))
                scores = net.op("Mul", scores, net.const(1 / math.sqrt(d), np.float32))
                probabilities = net.op("Softmax", net.op("Add", scores, bias), axis=-1)
                y = net.op("Transpose", net.op("MatMul", probabilities, repeated[1]), perm=[0, 2, 1, 3])
                y = net.reshape(y, [batch, length, -1])
                with net.scope("o_proj"):
                    y = net.linear(y, heads * d, width, bias=False)
            x = net.op("Add", x, y)
            with net.scope("post_attention_layernorm"):
                y = _rms_norm(net, x, width)
            with net.scope("mlp"):
                with net.scope("gate_proj"):
                    gate = net.silu(net.linear(y, width, hidden, bias=False))
                with net.scope("up_proj"):
                    up = net.linear(y, width, hidden, bias=False)
                with net.scope("down_proj"):
                    y = net.linear(net.op("Mul", gate, up), hidden, width, bias=False)
            x = net.op("Add", x, y)
    with net.scope("norm"):
        x = _rms_norm(net, x, width)
    net.output(x, "last_hidden_state", ["batch", "sequence", width])
    for i, pair in enumerate(presents):
        for value, n in zip(pair, ("key", "value")):
            net.output(value, f"present.{i}.{n}", ["batch", groups, "past + sequence", d])
    return net.build()
