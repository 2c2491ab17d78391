"""What a model's outputs say: the text, the label, the decision, as a string that must not change."""
from __future__ import annotations

import functools
import json
from typing import Callable

import numpy as np
import onnx

from models import CACHE


@functools.cache
def ocr_characters() -> list[str]:
    """Class index -> character of the recogniser; 0 is the blank, the last one a space."""
    meta = {p.key: p.value for p in onnx.load(CACHE / "ppocr_rec.onnx", load_external_data=False).metadata_props}
    return ["", *meta["character"].splitlines(), " "]


def ocr_text(outputs: list[np.ndarray]) -> str:
    """Greedy CTC decoding of probabilities f32[batch, steps, classes]."""
    characters, lines = ocr_characters(), []
    for row in outputs[0].argmax(axis=-1):
        kept = [c for i, c in enumerate(row) if c and (i == 0 or row[i - 1] != c)]
        lines.append("".join(characters[c] for c in kept))
    return " / ".join(lines)


def ocr_boxes(outputs: list[np.ndarray]) -> str:
    """How many pixels are text at PP-OCR's threshold, to the nearest hundredth of the picture."""
    return f"{float((outputs[0] > 0.3).mean()):.2f} of the picture is text"


def file_types(outputs: list[np.ndarray]) -> str:
    labels = json.loads((CACHE / "magika_config.json").read_text())["target_labels_space"]
    return " ".join(labels[i] for i in outputs[0].argmax(axis=-1))


def is_speech(outputs: list[np.ndarray]) -> str:
    return " ".join("speech" if p > 0.5 else "silence" for p in outputs[0].reshape(-1))


def largest(outputs: list[np.ndarray]) -> str:
    return " ".join(str(i) for i in outputs[0].reshape(-1, outputs[0].shape[-1]).argmax(axis=-1)[:64])


def detections(outputs: list[np.ndarray]) -> str:
    """YOLO head f32[batch, 4 + classes, cells]: class of the best cell of each image."""
    scores = outputs[0][:, 4:]
    return " ".join(str(int(np.unravel_index(s.argmax(), s.shape)[0])) for s in scores)


DECISIONS: dict[str, Callable[[list[np.ndarray]], str]] = {
    "ppocr_rec": ocr_text, "ppocr_det": ocr_boxes, "ppocr_cls": largest, "magika": file_types,
    "nudenet_320n": detections, "open_nsfw": largest, "resnet50": largest, "mobilenet_v3": largest,
    "efficientnet_b0": largest, "vit_b16": largest, "gpt2": largest, "gpt2_decode": largest, "rxnmap": largest,
    **{n: is_speech for n in ("silero_vad", "silero_vad_half", "silero_vad_16k_op15", "silero_vad_16k_sequence",
                              "silero_vad_op18_ifless", "silero_vad_openvino_16k")},
}


def decision(model: str, outputs: list[np.ndarray]) -> str:
    """What `outputs` of `model` say; "" where there is nothing to decide."""
    return DECISIONS[model](outputs) if model in DECISIONS else ""
