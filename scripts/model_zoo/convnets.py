"""Convolutional networks: ResNet-50, MobileNetV3-Large, EfficientNet-B0, and a detector that ends in NMS.

All take images f32[batch, 3, height, width] with free batch, height and width.
"""
from __future__ import annotations


import numpy as np
import onnx

from .net import I64, Net


def _images(net: Net, name: str = "input") -> str:
    return net.input(name, ["batch", 3, "height", "width"])


def resnet50() -> onnx.ModelProto:
    """torchvision's ResNet-50 v1.5, BatchNormalization left as nodes (as the model zoo has it), opset 8 and IR 3,
    where every initializer is a graph input too."""
    net = Net("resnet50", opset=8, seed=50, ir=3)

    def conv_bn(x: str, name: str, c_in: int, c_out: int, k: int, stride: int = 1, gamma: float = 1.0) -> str:
        with net.scope(name.replace("bn", "conv")):
            x = net.conv(x, c_in, c_out, k, stride, bias=False)
        with net.scope(name.replace("conv", "bn")):
            return net.batch_norm(x, c_out, gamma)

    x = net.op("Relu", conv_bn(_images(net), "conv1", 3, 64, 7, 2))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    c_in = 64
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), start=1):
        for b in range(blocks):
            stride = 2 if stage > 1 and b == 0 else 1
            with net.scope(f"layer{stage}"), net.scope(f"layer{stage}.{b}"):
                y = net.op("Relu", conv_bn(x, "conv1", c_in, width, 1))
                y = net.op("Relu", conv_bn(y, "conv2", width, width, 3, stride))
                y = conv_bn(y, "conv3", width, width * 4, 1, gamma=0.3)
                if b == 0:
                    with net.scope("downsample"):
                        x = conv_bn(x, "conv", c_in, width * 4, 1, stride, gamma=0.7)
                x = net.op("Relu", net.op("Add", y, x))
            c_in = width * 4
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    with net.scope("fc"):
        x = net.gemm(x, 2048, 1000)
    net.output(x, "output", ["batch", 1000])
    return net.build(initializers_as_inputs=True)


def _squeeze_excite(net: Net, x: str, c: int, mid: int, act: str) -> str:
    """x * gate(pool(x)): Relu and HardSigmoid (MobileNetV3) or SiLU and Sigmoid (EfficientNet)."""
    s = net.op("GlobalAveragePool", x)
    with net.scope("fc1"):
        s = net.conv(s, c, mid, 1)
    s = net.op("Relu", s) if act == "relu" else net.silu(s)
    with net.scope("fc2"):
        s = net.conv(s, mid, c, 1, gain=1.0)
    s = net.op("HardSigmoid", s, alpha=1 / 6) if act == "relu" else net.op("Sigmoid", s)
    return net.op("Mul", s, x)


# kernel, expanded channels, output channels, squeeze-excite, hard-swish (else Relu), stride
MOBILENET_V3 = [
    (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2), (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1), (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1),
]


def mobilenet_v3() -> onnx.ModelProto:
    """MobileNetV3-Large, BatchNorm folded into the convolutions as the exporter does, HardSwish ops, opset 14."""
    net = Net("mobilenet_v3", opset=14, seed=3)

    def act(x: str, hard_swish: bool) -> str:
        return net.op("HardSwish" if hard_swish else "Relu", x)

    with net.scope("features.0"):
        x = act(net.conv(_images(net), 3, 16, 3, 2), True)
    c = 16
    for i, (k, mid, out, se, hs, stride) in enumerate(MOBILENET_V3, start=1):
        with net.scope(f"features.{i}"), net.scope("block"):
            y = x
            if mid != c:
                with net.scope("0"):
                    y = act(net.conv(y, c, mid, 1), hs)
            with net.scope("1"):
                y = act(net.conv(y, mid, mid, k, stride, groups=mid), hs)
            if se:
                with net.scope("2"):
                    y = _squeeze_excite(net, y, mid, (mid // 4 + 4) // 8 * 8, "relu")
            with net.scope("3"):
                y = net.conv(y, mid, out, 1, gain=1.0)
            x = net.op("Add", y, x) if stride == 1 and out == c else y
        c = out
    with net.scope("features.16"):
        x = act(net.conv(x, c, 960, 1), True)
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    with net.scope("classifier.0"):
        x = act(net.gemm(x, 960, 1280), True)
    with net.scope("classifier.3"):
        x = net.gemm(x, 1280, 1000)
    net.output(x, "output", ["batch", 1000])
    return net.build()


# expansion, kernel, stride, output channels, repeats
EFFICIENTNET_B0 = [(1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3),
                   (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)]


def efficientnet_b0() -> onnx.ModelProto:
    """EfficientNet-B0, BatchNormalization left as nodes, SiLU as Sigmoid and Mul, opset 13."""
    net = Net("efficientnet_b0", opset=13, seed=7)

    def conv_bn(x: str, name: str, c_in: int, c_out: int, k: int, stride: int = 1, groups: int = 1,
                gamma: float = 1.0, gain: float = 2.0) -> str:
        with net.scope(name), net.scope("0"):
            x = net.conv(x, c_in, c_out, k, stride, groups, bias=False, gain=gain)
        with net.scope(name), net.scope("1"):
            return net.batch_norm(x, c_out, gamma)

    x = net.silu(conv_bn(_images(net), "features.0", 3, 32, 3, 2))
    c = 32
    for stage, (expand, k, first_stride, out, repeats) in enumerate(EFFICIENTNET_B0, start=1):
        for r in range(repeats):
            stride, mid = first_stride if r == 0 else 1, c * expand
            with net.scope(f"features.{stage}"), net.scope(f"{r}"), net.scope("block"):
                y = net.silu(conv_bn(x, "0", c, mid, 1)) if expand > 1 else x
                y = net.silu(conv_bn(y, "1", mid, mid, k, stride, groups=mid))
                with net.scope("2"):
                    y = _squeeze_excite(net, y, mid, max(1, c // 4), "silu")
                y = conv_bn(y, "3", mid, out, 1, gain=3.5)  # the gate halves
                x = net.op("Add", y, x) if stride == 1 and out == c else y
            c = out
    x = net.silu(conv_bn(x, "features.8", c, 1280, 1))
    x = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    with net.scope("classifier.1"):
        x = net.gemm(x, 1280, 1000)
    net.output(x, "output", ["batch", 1000])
    return net.build()


def _anchors(net: Net, feature: str, stride: int) -> str:
    """Centres f32[1, h*w, 2] (x, y, in pixels) of a feature map's cells, and nothing static in it: Range over the
    map's own height and width, Expand, Stack."""
    h, w = net.dim(feature, 2), net.dim(feature, 3)
    zero, one = net.const(0), net.const(1)
    xs = net.op("Cast", net.op("Range", zero, w, one), to=1)
    ys = net.op("Cast", net.op("Range", zero, h, one), to=1)
    size = net.shape_of([h, w])
    grid_x = net.op("Expand", net.axes_op("Unsqueeze", xs, [0]), size)
    grid_y = net.op("Expand", net.axes_op("Unsqueeze", ys, [1]), size)
    both = net.op("Concat", net.axes_op("Unsqueeze", grid_x, [2]), net.axes_op("Unsqueeze", grid_y, [2]), axis=2)
    centre = net.op("Mul", net.op("Add", both, net.const(0.5, np.float32)), net.const(float(stride), np.float32))
    return net.reshape(centre, [1, -1, 2])


def detector_nms(classes: int = 12) -> onnx.ModelProto:
    """A small one-stage detector: backbone, two heads, box decoding, NonMaxSuppression, gathering, opset 17.

    Outputs: boxes f32[num, 4] (x1 y1 x2 y2, pixels), scores f32[num], labels i64[num], images i64[num].
    """
    net = Net("detector_nms", opset=17, seed=11)
    x, c, features = _images(net, "images"), 3, []
    for i, width in enumerate((16, 32, 64, 128, 128)):
        with net.scope(f"backbone.{i}"), net.scope("conv"):
            x = net.silu(net.conv(x, c, width, 3, 2))
        with net.scope(f"backbone.{i}"), net.scope("residual"):
            x = net.op("Add", x, net.silu(net.conv(x, width, width, 3, gain=0.5)))
        c = width
        features.append((x, width, 2 ** (i + 1)))
    all_boxes, all_scores = [], []
    for level, (f, width, stride) in enumerate(features[3:]):
        with net.scope(f"head.{level}"):
            centre = _anchors(net, f, stride)
            batch = net.dim(f, 0)
            with net.scope("box"):
                box = net.conv(f, width, 4, 1, gain=0.05)
            with net.scope("cls"):
                cls = net.conv(f, width, classes, 3, gain=4.0)
            box = net.op("Transpose", net.reshape(box, [batch, 4, -1]), perm=[0, 2, 1])
            cls = net.op("Transpose", net.reshape(cls, [batch, classes, -1]), perm=[0, 2, 1])
            shift, size = net.op("Split", box, net.const([2, 2]), outputs=2, axis=2)
            scale = net.const(float(stride), np.float32)
            middle = net.op("Add", centre, net.op("Mul", shift, scale))
            half = net.op("Mul", net.op("Exp", size), net.const(float(stride) * 1.5, np.float32))
            all_boxes.append(net.op("Concat", net.op("Sub", middle, half), net.op("Add", middle, half), axis=2))
            all_scores.append(net.op("Sigmoid", cls))
    boxes, scores = net.op("Concat", *all_boxes, axis=1), net.op("Concat", *all_scores, axis=1)
    scores = net.op("Transpose", scores, perm=[0, 2, 1])
    chosen = net.op("NonMaxSuppression", boxes, scores, net.const(20), net.const([0.5], np.float32),
                    net.const([0.6], np.float32), center_point_box=0)
    image, label, index = [net.op("Gather", chosen, net.const(i), axis=1) for i in range(3)]
    pairs = net.op("Concat", *[net.axes_op("Unsqueeze", v, [1]) for v in (image, index)], axis=1)
    triples = net.op("Concat", *[net.axes_op("Unsqueeze", v, [1]) for v in (image, label, index)], axis=1)
    net.output(net.op("GatherND", boxes, pairs), "boxes", ["num", 4])
    net.output(net.op("GatherND", scores, triples), "scores", ["num"])
    net.output(net.op("Identity", label), "labels", ["num"], I64)
    net.output(net.op("Identity", image), "image_ids", ["num"], I64)
    return net.build()
