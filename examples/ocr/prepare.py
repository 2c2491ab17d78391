#!/usr/bin/env python3
"""What the OCR example needs beside the compiled models; the C++ program itself needs no Python.

usage: prepare.py characters REC.onnx OUT.txt     the characters that the recogniser knows, one a line
       prepare.py picture OUT.ppm OUT.txt         a picture with several lines of text in DejaVu fonts, and the text
       prepare.py png IN.ppm OUT.png
"""
from __future__ import annotations

import random
import sys
from pathlib import Path

FONTS = Path("/usr/share/fonts/truetype/dejavu")  # Debian's fonts-dejavu-core
SIZE = (960, 600)
# Font, size, left, top, ink, text: in reading order.
LINES = [
    ("DejaVuSans-Bold.ttf", 54, 60, 40, (20, 30, 60), "Tripod reads this picture"),
    ("DejaVuSerif.ttf", 34, 60, 140, (40, 40, 40), "ONNX in, one native model.so out"),
    ("DejaVuSans.ttf", 26, 60, 218, (20, 80, 40), "Invoice 2026-11-30"),
    ("DejaVuSansMono.ttf", 28, 560, 216, (90, 20, 20), "Total: 1234.50"),
    ("DejaVuSans.ttf", 40, 60, 290, (30, 30, 120), "free height, free width"),
    ("DejaVuSansMono-Bold.ttf", 24, 60, 378, (60, 60, 60), "a model in one file"),
    ("DejaVuSerif-Bold.ttf", 44, 60, 440, (110, 50, 10), "Nothing to install"),
    ("DejaVuSans.ttf", 20, 60, 530, (50, 50, 50), "Small print is no problem"),
]


def write_characters(model: Path, out: Path) -> None:
    import onnx

    metadata = {p.key: p.value for p in onnx.load(model, load_external_data=False).metadata_props}
    if "character" not in metadata:
        sys.exit(f"prepare: {model.name} has no metadata 'character'")
    out.write_text("\n".join(metadata["character"].splitlines()) + "\n", encoding="utf-8")


def draw_picture(picture: Path, text: Path) -> None:
    from PIL import Image, ImageDraw, ImageFont

    width, height = SIZE
    noise = random.Random(1)
    image = Image.new("RGB", SIZE)
    # Uneven light and grain, as a camera gives.
    image.putdata([(light, light - 2, light - 8) for y in range(height) for x in range(width)
                   for light in [250 - x * 14 // width - y * 12 // height - noise.randrange(5)]])
    draw = ImageDraw.Draw(image)
    for font, size, left, top, ink, words in LINES:
        draw.text((left, top), words, font=ImageFont.truetype(str(FONTS / font), size), fill=ink)
    image.save(picture)
    text.write_text("".join(line[-1] + "\n" for line in LINES), encoding="utf-8")


def to_png(source: Path, out: Path) -> None:
    from PIL import Image

    Image.open(source).save(out)


def main() -> int:
    commands = {"characters": write_characters, "picture": draw_picture, "png": to_png}
    if len(sys.argv) != 4 or sys.argv[1] not in commands:
        print(__doc__, file=sys.stderr)
        return 2
    commands[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
