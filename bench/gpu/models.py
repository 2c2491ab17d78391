#!/usr/bin/env python3
"""Whole models in f16 on one GPU, beside Inductor (reduce-overhead) and eager torch under a CUDA graph, in one run.

The networks are torch's own (torchvision, transformers) with seeded random weights, exported to ONNX in f32, and a Llama
written here (llama.py, llama_onnx.py) in f16; Tripod compiles them with --precision=f16, torch runs them in f16. Compared on
normal random data: error of the first output against torch in f32, relative to its range, and top-1; time as the median
of 50 interleaved calls.

usage: bench/gpu/models.py [--tripod PROGRAM] [--work DIR] [MODEL...]    on the GPU machine; without MODEL all
"""
from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import torch
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]
from device_model import DeviceModel  # noqa: E402
from llama import Llama  # noqa: E402
from run import graph_of, medians  # noqa: E402


@dataclass
class Network:
    build: Callable[[], nn.Module]
    inputs: Callable[[], list[torch.Tensor]]
    half: bool = False  # inputs and outputs are f16 for Tripod too
    options: tuple[str, ...] = ()  # of `tripod compile`


class First(nn.Module):
    """A transformers model as a function of token ids that gives its first output."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids, use_cache=False, return_dict=False)[0] if hasattr(self.model.config, "n_layer") else \
            self.model(ids, return_dict=False)[0]


def bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    return First(BertModel(BertConfig(attn_implementation="sdpa")))


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return First(GPT2LMHeadModel(GPT2Config(attn_implementation="sdpa")))


def vision(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import torchvision

        return getattr(torchvision.models, name)(weights=None)

    return build


def llama() -> nn.Module:
    with torch.device("cuda"):  # 1.5 billion numbers
        return Llama()


def images(n: int) -> Callable[[], list[torch.Tensor]]:
    return lambda: [torch.randn(n, 3, 224, 224)]


def tokens(n: int, length: int, vocabulary: int) -> Callable[[], list[torch.Tensor]]:
    return lambda: [torch.randint(0, vocabulary, (n, length))]


NETWORKS = {
    "resnet50_b1": Network(vision("resnet50"), images(1)),
    "resnet50_b32": Network(vision("resnet50"), images(32)),
    "efficientnet_b0_b1": Network(vision("efficientnet_b0"), images(1)),
    "efficientnet_b0_b32": Network(vision("efficientnet_b0"), images(32)),
    "vit_b16_b1": Network(vision("vit_b_16"), images(1)),
    "vit_b16_b32": Network(vision("vit_b_16"), images(32)),
    "bert_b1s128": Network(bert, tokens(1, 128, 30522)),
    "bert_b8s384": Network(bert, tokens(8, 384, 30522)),
    "gpt2_s512": Network(gpt2, tokens(1, 512, 50257)),
    "llama_decode_kv2048": Network(llama, lambda: Llama.decode_inputs(2048), half=True, options=("--dim", "past=2048")),
}


def settle(m: nn.Module) -> nn.Module:
    """Random networks are calibrated once, so that signals neither vanish nor explode over the layers."""
    m.eval().requires_grad_(False)
    for layer in m.modules():
        if isinstance(layer, nn.Linear) and not layer.weight.any():  # torchvision's heads are zeros
            nn.init.normal_(layer.weight, std=layer.in_features ** -0.5)
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None
    if any(isinstance(layer, nn.BatchNorm2d) for layer in m.modules()):
        m.train()
        m(torch.randn(16, 3, 224, 224, device="cuda"))
        m.eval()
    return m


def compiled(name: str, m: nn.Module, inputs: list[torch.Tensor], args: argparse.Namespace) -> tuple[Path, float]:
    """model.so and the seconds that `tripod compile` took, cache cold."""
    onnx, so = args.work / f"{name}.onnx", args.work / f"{name}.so"
    if isinstance(m, Llama):
        m.write_onnx(onnx)
    else:
        torch.onnx.export(m, tuple(inputs), str(onnx), dynamo=True, verbose=False, external_data=False)
    start = time.monotonic()
    r = subprocess.run([args.tripod, "compile", str(onnx), "--target=cuda", "--arch=sm_90a", "--precision=f16",
                        "--cache", str(args.work / f"{name}.cache"), *NETWORKS[name].options, "-o", str(so)], capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(r.stderr.strip()[-300:])
    return so, time.monotonic() - start


def measure(name: str, args: argparse.Namespace, stream: Any) -> str:
    network = NETWORKS[name]
    torch.manual_seed(0)
    m = settle(network.build().cuda())
    inputs = [t.cuda() for t in network.inputs()]
    want = m(*inputs)
    want = want[0] if isinstance(want, (tuple, list)) else want
    half = [t.half() if t.is_floating_point() else t for t in inputs]
    so, seconds = compiled(name, m, inputs, args)
    m = m.half()
    if network.half:
        inputs = half
    if "b" in name and isinstance(next(m.children(), None), nn.Conv2d):
        m = m.to(memory_format=torch.channels_last)
    with torch.cuda.stream(stream):
        fast = torch.compile(m, mode="reduce-overhead")
        for _ in range(4):
            fast(*half)
    eager = graph_of([lambda: m(*half)], stream)
    results = [torch.empty(want.shape, device="cuda", dtype=torch.float16 if network.half else torch.float32)]
    model = DeviceModel(str(so), stream)
    outputs = model.outputs(results)
    ours = model.call(inputs, outputs)
    graph = graph_of([ours], stream)
    t = medians([graph, eager, Called(fast, half), Called(ours, None)], stream)
    got = outputs[0].float()
    error = ((got - want).abs().max() / (want.max() - want.min())).item()
    top = (got.argmax(-1) == want.argmax(-1)).float().mean().item()
    return (f"| {name} | {t[0] * 1e3:.3f} | {t[3] * 1e3:.3f} | {t[2] * 1e3:.3f} | {t[1] * 1e3:.3f} | {t[0] / t[2]:.2f} | {error:.1e} | "
            f"{top:.3f} | {seconds:.1f} |")


class Called:
    """A function in the place of a graph."""

    def __init__(self, function: Callable[..., Any], inputs: list[Any] | None):
        self.function, self.inputs = function, inputs

    def replay(self) -> None:
        self.function(*self.inputs) if self.inputs is not None else self.function()


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", help=" ".join(NETWORKS))
    p.add_argument("--tripod", default=str(HERE.parents[1] / "build/bin/tripod"))
    p.add_argument("--work", type=Path, default=HERE.parents[1] / "build/gpu-models")
    args = p.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    torch.backends.cudnn.benchmark = True
    stream = torch.cuda.Stream()
    failed = 0
    print("| model | Tripod, CUDA graph ms | Tripod, call ms | Inductor ms | eager, CUDA graph ms | Tripod / Inductor | error | top-1 | build s |\n"
          "|---|---|---|---|---|---|---|---|---|")
    with torch.no_grad():
        for name in args.models or NETWORKS:
            try:
                print(measure(name, args, stream), flush=True)
            except Exception as e:  # noqa: BLE001  one model that fails must not end the others
                failed += 1
                print(f"| {name} | {type(e).__name__}: {' '.join(str(e).split())[-250:]} |", flush=True)
            torch.compiler.reset()
            torch.cuda.empty_cache()
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
