"""Inputs for the real models: pictures drawn with a real font, tones, texts; five sizes where dims are free.

`CASES[name]` gives a model's list of `Case`s. Everything is drawn or computed here from fixed seeds.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageFont

ROOT = Path(__file__).resolve().parents[2]
FONT = Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf")  # Debian's fonts-dejavu-core
LINES = ["Ahead of time", "one native model", "Invoice 2048-17", "Total: 1,536.90 EUR", "compiled for 2 cores",
         "The quick brown fox", "Shelf B42, row 7", "jumps over it 99x"]


@dataclass
class Case:
    """One run: `label` names the size; `inputs` maps the model's input names to arrays."""

    label: str
    inputs: dict[str, np.ndarray]


def page(height: int, width: int, seed: int = 0) -> np.ndarray:
    """A drawn page: u8[height, width, 3], text lines of several sizes over a soft gradient, a frame, a disc."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    base = 225 + 20 * np.sin(x / width * 3)[..., None] + np.array([0, -6, -12]) * (y / height)[..., None]
    image = Image.fromarray(np.clip(base, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    draw.rectangle([2, 2, width - 3, height - 3], outline=(90, 90, 120), width=2)
    r = min(height, width) // 6
    draw.ellipse([width - 2 * r - 8, height - 2 * r - 8, width - 8, height - 8], fill=(200, 120, 90))
    top, i = 12, seed
    while top + 18 < height:
        size = int(rng.integers(16, 34))
        font = ImageFont.truetype(str(FONT), size)
        draw.text((14 + int(rng.integers(0, max(1, width // 6))), top), LINES[i % len(LINES)], fill=(20, 20, 40), font=font)
        top += int(size * 1.7)
        i += 1
    return np.asarray(image)


def text_line(text: str, height: int, width: int) -> np.ndarray:
    """A single line cut out: u8[height, width, 3], the text filling the height and as much of the width as it needs."""
    image = Image.new("RGB", (width, height), (236, 232, 226))
    size = int(height * 0.72)
    font = ImageFont.truetype(str(FONT), size)
    while font.getlength(text) > width - 8 and size > 8:
        size -= 1
        font = ImageFont.truetype(str(FONT), size)
    ImageDraw.Draw(image).text((4, (height - size * 1.2) / 2), text, fill=(15, 15, 35), font=font)
    return np.asarray(image)


def chw(images: list[np.ndarray], mean: list[float], std: list[float]) -> np.ndarray:
    """u8[h, w, 3] pictures as f32[n, 3, h, w], (x / 255 - mean) / std."""
    x = np.stack(images).astype(np.float32) / np.float32(255)
    x = (x - np.float32(mean)) / np.float32(std)
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
HALF = ([0.5] * 3, [0.5] * 3)
UNIT = ([0.0] * 3, [1.0] * 3)


def images(name: str, sizes: list[tuple[int, int, int]], norm: tuple[list[float], list[float]]) -> list[Case]:
    """Pages at (batch, height, width)."""
    return [Case(f"{b}x3x{h}x{w}", {name: chw([page(h, w, seed=i) for i in range(b)], *norm)}) for b, h, w in sizes]


def ocr_lines(sizes: list[tuple[int, int]], height: int = 48) -> list[Case]:
    """Batches of single text lines at (batch, width)."""
    return [Case(f"{b}x3x{height}x{w}", {"x": chw([text_line(LINES[(i + w) % len(LINES)], height, w) for i in range(b)], *HALF)})
            for b, w in sizes]


def tone(samples: int, rate: int, seed: int) -> np.ndarray:
    """f32[samples] in [-1, 1]: a gliding tone with harmonics, an envelope, and a little noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(samples) / rate
    pitch = 130 + 60 * np.sin(2 * math.pi * 1.7 * t + seed)
    phase = 2 * math.pi * np.cumsum(pitch) / rate
    voice = sum(np.sin(k * phase) / k for k in range(1, 9)) * (0.6 + 0.4 * np.sin(2 * math.pi * 3.1 * t))
    return (0.25 * voice + 0.01 * rng.standard_normal(samples)).astype(np.float32)


def speech(batch: int, samples: int, rate: int, seed: int = 0) -> np.ndarray:
    """f32[batch, samples], each row another stretch of `tone`."""
    return np.stack([tone(samples, rate, seed + i) for i in range(batch)])


def vad(sizes: list[tuple[int, int, int]], with_rate: bool) -> list[Case]:
    """Silero steps at (batch, samples, rate): a window with its context, and a state as after some steps."""
    cases = []
    for i, (b, n, rate) in enumerate(sizes):
        state = 0.1 * np.random.default_rng(i).standard_normal((2, b, 128)).astype(np.float32) if i else \
            np.zeros((2, b, 128), np.float32)
        inputs = {"input": speech(b, n, rate, seed=i), "state": state}
        if with_rate:
            inputs["sr"] = np.array(rate, dtype=np.int64)
        cases.append(Case(f"{b}x{n} at {rate // 1000} kHz", inputs))
    return cases


def vad_sequence() -> list[Case]:
    return [Case(f"{n} windows", {"input": speech(n, 576, 16000), "h": np.zeros((1, 1, 128), np.float32),
                                  "c": np.zeros((1, 1, 128), np.float32)}) for n in (1, 3, 10, 31, 100)]


def magika() -> list[Case]:
    """First and last 1024 bytes of files of this repository, stripped of outer white space, padded with 256."""
    files = ["scripts/models.py", "scripts/build.sh", "CMakeLists.txt", "include/tripod/model.h", "docs/design.md",
             "src/CMakeLists.txt", "tests/ops/run.py", "scripts/requirements.txt"]

    def features(path: Path) -> np.ndarray:
        data = path.read_bytes() if path.exists() else b"plain words, nothing else\n" * 40
        first, last = data[:4096].strip()[:1024], data[-4096:].strip()[-1024:]
        row = np.full(2048, 256, dtype=np.int32)
        row[:len(first)] = np.frombuffer(first, np.uint8)
        row[2048 - len(last):] = np.frombuffer(last, np.uint8)
        return row

    rows = [features(ROOT / f) for f in files]
    return [Case(f"{b} files", {"bytes": np.stack(rows[:b])}) for b in (1, 2, 3, 5, 8)]


def tokens(sizes: list[tuple[int, int]], vocab: int, masked: bool = True) -> list[Case]:
    """BERT-style inputs at (batch, length): [CLS] words [SEP]; rows after the first are padded at the end."""
    cases = []
    for b, s in sizes:
        rng = np.random.default_rng(b * 1000 + s)
        ids = rng.integers(1000, vocab - 500, (b, s))
        mask = np.ones((b, s), np.int64)
        ids[:, 0], ids[:, -1] = 101, 102
        for row in range(1, b):
            keep = max(2, s - row * max(1, s // (b + 1)))
            ids[row, keep - 1], ids[row, keep:], mask[row, keep:] = 102, 0, 0
        types = np.zeros((b, s), np.int64)
        types[:, s // 2:] = 1 if s > 8 else 0
        cases.append(Case(f"{b}x{s}", {"input_ids": ids.astype(np.int64), "attention_mask": mask, "token_type_ids": types}))
    return cases


def reactions() -> list[Case]:
    """rxnmap: atom types, neighbour counts, roles, and graph distances of made-up molecules."""
    cases = []
    for n in (9, 32, 64, 128, 200):
        rng = np.random.default_rng(n)
        half = np.arange(n) * 2 // n
        position = np.arange(n)
        distances = np.where(half[:, None] == half[None], np.abs(position[:, None] - position[None]) + 2, 1)
        cases.append(Case(f"{n} atoms", {
            "atoms": rng.choice([8, 9, 10, 18, 19, 37], (1, n)).astype(np.int64),
            "neighbors": rng.integers(2, 6, (1, n)), "roles": (half + 2)[None].astype(np.int64),
            "distances": np.minimum(distances, 12)[None].astype(np.int64)}))
    return cases


def pitch() -> list[Case]:
    return [Case(f"{b} windows", {"serving_default_input_2:0": speech(b, 43844, 22050, seed=b)[..., None]})
            for b in (1, 2, 3, 4, 5)]


def nsfw() -> list[Case]:
    """BGR minus the means of the Caffe model, NHWC."""
    cases = []
    for b in (1, 2, 3, 4, 5):
        x = np.stack([page(224, 224, seed=i)[..., ::-1] for i in range(b)]).astype(np.float32)
        cases.append(Case(f"{b}x224x224x3", {"input_0": x - np.float32([104, 117, 123])}))
    return cases


def gpt2(decode: bool) -> list[Case]:
    """Prefill at (batch, length); decode steps at (batch, past), one new token each (the last case: three)."""
    cases = []
    if not decode:
        for b, s in ((1, 128), (2, 16), (1, 1), (3, 37), (1, 200)):
            ids = np.random.default_rng(s).integers(0, 50257, (b, s))
            cases.append(Case(f"{b}x{s}", {"input_ids": ids}))
        return cases
    for b, past, new in ((1, 1, 1), (1, 64, 1), (2, 17, 1), (1, 511, 1), (2, 30, 3)):
        rng = np.random.default_rng(past)
        inputs: dict[str, np.ndarray] = {"input_ids": rng.integers(0, 50257, (b, new))}
        for i in range(12):
            for n in ("key", "value"):
                inputs[f"past_key_values.{i}.{n}"] = rng.standard_normal((b, 12, past, 64), dtype=np.float32)
        cases.append(Case(f"{b}x{new} after {past}", inputs))
    return cases


def llama() -> list[Case]:
    cases = []
    for b, s, past in ((1, 64, 0), (2, 16, 0), (1, 1, 40), (3, 5, 12), (1, 1, 300)):
        rng = np.random.default_rng(s + past)
        mask = np.ones((b, past + s), np.int64)
        if b > 1:
            mask[1:, :2] = 0  # padded on the left, as a batch of prompts is
            mask[:, past + s - 1] = 1
        position = np.maximum(np.cumsum(mask, axis=1) - 1, 0)[:, past:]
        inputs = {"inputs_embeds": rng.standard_normal((b, s, 1024), dtype=np.float32), "attention_mask": mask,
                  "position_ids": position.astype(np.int64)}
        for i in range(2):
            for n in ("key", "value"):
                inputs[f"past_key_values.{i}.{n}"] = rng.standard_normal((b, 4, past, 64), dtype=np.float32)
        cases.append(Case(f"{b}x{s} after {past}", inputs))
    return cases


CLASSIFIER_SIZES = [(1, 224, 224), (2, 224, 224), (1, 256, 192), (3, 97, 131), (1, 64, 320)]
VAD_STEPS = [(1, 576, 16000), (2, 576, 16000), (3, 576, 16000), (5, 576, 16000), (8, 576, 16000)]
VAD_BOTH_RATES = VAD_STEPS[:3] + [(1, 288, 8000), (4, 288, 8000)]

CASES: dict[str, Callable[[], list[Case]]] = {
    "ppocr_det": lambda: images("x", [(1, 320, 320), (1, 640, 640), (1, 480, 736), (2, 256, 352), (1, 736, 96)], IMAGENET),
    "ppocr_rec": lambda: ocr_lines([(1, 320), (6, 320), (1, 96), (2, 483), (1, 960)]),
    "ppocr_cls": lambda: ocr_lines([(1, 192), (6, 192), (2, 192), (3, 192), (4, 192)]),
    "silero_vad": lambda: vad(VAD_BOTH_RATES, True),
    "silero_vad_half": lambda: vad(VAD_STEPS, False),
    "silero_vad_16k_op15": lambda: vad(VAD_STEPS, True),
    "silero_vad_16k_sequence": vad_sequence,
    "silero_vad_op18_ifless": lambda: vad(VAD_BOTH_RATES, True),
    "silero_vad_openvino_16k": lambda: vad([(1, 576, 16000)] * 5, False),
    "magika": magika,
    "nudenet_320n": lambda: images("images", [(1, 320, 320), (2, 320, 320), (1, 640, 640), (1, 256, 416), (3, 160, 96)], UNIT),
    "minilm": lambda: tokens([(1, 128), (8, 128), (1, 2), (3, 37), (1, 384)], 30522),
    "open_nsfw": nsfw,
    "rxnmap": reactions,
    "basic_pitch": pitch,
    "resnet50": lambda: images("input", CLASSIFIER_SIZES, IMAGENET),
    "mobilenet_v3": lambda: images("input", CLASSIFIER_SIZES, IMAGENET),
    "efficientnet_b0": lambda: images("input", CLASSIFIER_SIZES, IMAGENET),
    "vit_b16": lambda: images("input", [(b, 224, 224) for b in (1, 2, 3, 4, 5)], HALF),
    "bert_base": lambda: tokens([(1, 128), (2, 64), (1, 2), (3, 37), (1, 384)], 30522),
    "gpt2": lambda: gpt2(decode=False),
    "gpt2_decode": lambda: gpt2(decode=True),
    "llama_block": llama,
    "detector_nms": lambda: images("images", [(1, 256, 256), (2, 256, 256), (1, 320, 480), (3, 96, 128), (1, 512, 352)], UNIT),
}
