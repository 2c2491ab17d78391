#!/usr/bin/env bash
# Installs what Tripod needs on a bare Debian 12 machine: Debian packages by name, and a Python
# environment under build/venv for the conformance data, the reference runtimes and the TVM-FFI client.
# Running it again when everything is there takes under a second.
#
# usage: scripts/setup.sh [--build-only]     --build-only leaves out the Python peers (fast)
set -euo pipefail
cd "$(dirname "$0")/.."

debian=(
  g++ cmake ninja-build ccache lld-19 python3 python3-venv python3-dev unzip xz-utils
  llvm-19-dev liblld-19-dev libpolly-19-dev libzstd-dev zlib1g-dev
  protobuf-compiler libprotobuf-dev libfmt-dev libcli11-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  clang-19 libclang-rt-19-dev fonts-dejavu-core
)
missing=()
for p in "${debian[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "setup: installing ${missing[*]}"
  sudo=""; [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -q
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -q -y --no-install-recommends "${missing[@]}"
fi

venv=build/venv
wanted=scripts/requirements.txt
[ "${1:-}" = --build-only ] && wanted=scripts/requirements-build.txt
stamp=$venv/.installed-$(basename "$wanted")
if ! cmp -s "$wanted" "$stamp"; then
  [ -x $venv/bin/python ] || python3 -m venv $venv
  $venv/bin/python -m pip install -q --disable-pip-version-check -r "$wanted"
  cp "$wanted" "$stamp"
fi
