#!/usr/bin/env python3
"""Builds the networks of scripts/model_zoo (seeded random weights, exporter idioms) into .cache/models.

usage: scripts/make_models.py [NAME...] [--force] [--ops]
  NAME     only these (resnet50, mobilenet_v3, efficientnet_b0, vit_b16, bert_base, gpt2, gpt2_decode, llama_block,
           detector_nms); default all. gpt2 and gpt2_decode share gpt2.weights and are made together.
  --force  also those that are there already
  --ops    print each model's op types, dtypes and inputs
"""
from __future__ import annotations

import argparse
import hashlib
import sys
import time
from pathlib import Path
from typing import Callable

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parent))
from model_zoo import convnets, transformers  # noqa: E402
from model_zoo.net import ExternalWeights  # noqa: E402
from models import CACHE, describe_ops  # noqa: E402

SINGLE: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": convnets.resnet50, "mobilenet_v3": convnets.mobilenet_v3,
    "efficientnet_b0": convnets.efficientnet_b0, "vit_b16": transformers.vit_b16,
    "bert_base": transformers.bert_base, "llama_block": transformers.llama_block,
    "detector_nms": convnets.detector_nms,
}
GPT2 = ("gpt2", "gpt2_decode")
NAMES = [*SINGLE, *GPT2]


def sources_hash() -> str:
    """Changes when a builder does: the files made from other sources are made again."""
    folder = Path(__file__).resolve().parent / "model_zoo"
    return hashlib.sha256(b"".join(p.read_bytes() for p in sorted(folder.glob("*.py")))).hexdigest()[:16]


def save(name: str, model: onnx.ModelProto) -> None:
    partial = CACHE / f"{name}.partial"
    partial.write_bytes(model.SerializeToString(deterministic=True))
    partial.rename(CACHE / f"{name}.onnx")


def make(names: list[str], force: bool = False) -> None:
    """Makes sure that the models `names` lie in .cache/models and come from the present sources."""
    CACHE.mkdir(parents=True, exist_ok=True)
    stamp, current = CACHE / "made.stamp", sources_hash()
    made = dict(line.split() for line in stamp.read_text().splitlines()) if stamp.exists() else {}
    todo = [n for n in names if force or made.get(n) != current or not (CACHE / f"{n}.onnx").exists()]
    if set(todo) & set(GPT2):
        todo = [n for n in todo if n not in GPT2] + list(GPT2)
    weights = ExternalWeights(CACHE / "gpt2.weights")
    for name in todo:
        start = time.monotonic()
        model = SINGLE[name]() if name in SINGLE else transformers.gpt2(weights, decode=name == "gpt2_decode")
        save(name, model)
        if name == "gpt2_decode":
            weights.write()
        made[name] = current
        print(f"models: made {name} in {time.monotonic() - start:.1f} s", flush=True)
    stamp.write_text("".join(f"{n} {h}\n" for n, h in sorted(made.items())))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--ops", action="store_true")
    args = parser.parse_args()
    if set(args.names) - set(NAMES):
        print(f"make_models: no model is called {', '.join(sorted(set(args.names) - set(NAMES)))}", file=sys.stderr)
        return 2
    names = args.names or NAMES
    make(names, args.force)
    if args.ops:
        for name in names:
            print(describe_ops(CACHE / f"{name}.onnx"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
