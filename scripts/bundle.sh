#!/usr/bin/env bash
# Packs the compiler for a machine that has neither its libraries nor the network: a GPU machine with a driver, nvcc
# and Python. Unpacked anywhere, bin/tripod runs there (libc of this machine or newer); everything else that it needs
# lies beside it in lib/, and LLVM and lld are inside it.
#
# usage: scripts/bundle.sh [-o FILE.tar.xz] [--level 0..9] [MODEL.onnx...]
#   Needs build/bin/tripod (scripts/build.sh). The bundle holds bin/tripod, lib/, the Python client, include/tripod, the
#   user guide, what runs packed conformance cases (tests/ops/packed.py), and the models named. --level is xz's.
set -euo pipefail
cd "$(dirname "$0")/.."

output=build/tripod-bundle.tar.xz
level=6
models=()
while [ $# -gt 0 ]; do
  case "$1" in
    -o) output=${2:?-o needs a file}; shift ;;
    --level) level=${2:?--level needs a number}; shift ;;
    -h|--help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "bundle.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
    *) [ -f "$1" ] || { echo "bundle.sh: no model $1" >&2; exit 2; }; models+=("$1") ;;
  esac
  shift
done
[ -x build/bin/tripod ] || { echo "bundle.sh: build/bin/tripod is missing: run scripts/build.sh" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/tripod
mkdir -p "$root/bin" "$root/lib" "$root/tests/ops" "$root/docs"
strip -o "$root/bin/tripod" "$(readlink -f build/bin/tripod)"
# The program looks for libraries in ../lib first (tools/CMakeLists.txt). libc's own parts must be the machine's.
ldd "$root/bin/tripod" | awk '$2 == "=>" { print $3 }' | grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' |
  while read -r library; do cp -L "$library" "$root/lib/"; done
cp -r include python "$root/"
rm -rf "$root"/python/tripod/__pycache__
cp tests/ops/packed.py tests/ops/results.py tests/ops/known_failures*.txt "$root/tests/ops/"
cp docs/user-guide.md docs/finding-a-wrong-result.md "$root/docs/"
for m in ${models[@]+"${models[@]}"}; do mkdir -p "$root/models"; cp -L "$m" "$root/models/"; done
tar -C "$work" --owner=0 --group=0 -cf - tripod | xz -T0 -"$level" > "$output"
echo "bundle: $output, $(stat -c %s "$output") bytes"
