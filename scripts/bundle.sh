#!/usr/bin/env bash
# Packs the compiler for a machine that has neither its libraries nor the network: a GPU machine with a driver, nvcc
# and Python. Unpacked anywhere, bin/tripod runs there (glibc of this machine or newer).
#
# usage: scripts/bundle.sh [-o FILE.tar.xz] [MODEL.onnx...]
#   Needs build/bin/tripod (scripts/build.sh). The bundle holds bin/tripod, the shared libraries it needs beyond libc,
#   the Python client, include/tripod, tests/ops' runner and the models named.
set -euo pipefail
cd "$(dirname "$0")/.."

output=build/tripod-bundle.tar.xz
models=()
while [ $# -gt 0 ]; do
  case "$1" in
    -o) output=${2:?-o needs a file}; shift ;;
    -h|--help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "bundle.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
    *) [ -f "$1" ] || { echo "bundle.sh: no model $1" >&2; exit 2; }; models+=("$1") ;;
  esac
  shift
done
[ -x build/bin/tripod ] || { echo "bundle.sh: build/bin/tripod is missing: run scripts/build.sh" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/tripod
mkdir -p "$root/bin" "$root/lib" "$root/models" "$root/tests"
strip -o "$root/lib/tripod" "$(readlink -f build/bin/tripod)"
# libc's own parts must come from the machine it runs on.
ldd "$root/lib/tripod" | awk '$2 == "=>" { print $3 }' | grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' |
  while read -r library; do cp -L "$library" "$root/lib/"; done
cat > "$root/bin/tripod" <<'END'
#!/bin/sh
here=$(cd "$(dirname "$0")/.." && pwd)
LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$here/lib/tripod" "$@"
END
chmod +x "$root/bin/tripod"
cp -r include python "$root/"
cp -r tests/ops tests/harness.py "$root/tests/"
for m in "${models[@]}"; do cp -L "$m" "$root/models/"; done
tar -C "$work" -cf - tripod | xz -T0 -6 > "$output"
echo "bundle: $output, $(stat -c %s "$output") bytes"
