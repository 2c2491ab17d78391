#!/usr/bin/env bash
# Configures and builds; leaves the compiler at build/bin/tripod.
#
# usage: scripts/build.sh [--config release|debug|asan|tsan] [--no-tests] [TARGET...]
#   release (default) lives in build/release and is what build/bin/tripod points to; the others in build/CONFIG.
#   asan is AddressSanitizer and UBSan, and holds the fuzz targets (fuzzers): by clang where it is installed with its
#   fuzzer, else by g++ with a plain driver. tsan is ThreadSanitizer.
#   Needs what scripts/setup.sh installs.
set -euo pipefail
cd "$(dirname "$0")/.."

config=release
tests=ON
targets=()
while [ $# -gt 0 ]; do
  case "$1" in
    --config) config=${2:?--config needs a name}; shift ;;
    --no-tests) tests=OFF ;;
    -h|--help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "build.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
    *) targets+=("$1") ;;
  esac
  shift
done

type=Release
sanitize=""
case "$config" in
  release) ;;
  debug) type=Debug ;;
  asan) sanitize=address,undefined ;;
  tsan) sanitize=thread ;;
  *) echo "build.sh: no configuration '$config': release, debug, asan or tsan" >&2; exit 2 ;;
esac
settings=()
if [ -n "$sanitize" ]; then
  # Sanitizers make compilers see things that are not there; and these builds are for finding faults, not for speed.
  settings+=(-DTRIPOD_WERROR=OFF "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -g1")
fi
if [ "$config" = asan ] && compgen -G "/usr/lib/llvm-19/lib/clang/19/lib/*/libclang_rt.fuzzer*.a" > /dev/null; then
  settings+=(-DCMAKE_CXX_COMPILER=clang++-19)
fi

# Clones of one commit share their objects: paths below the repository count as relative to it.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

cmake -S . -B "build/$config" -G Ninja -DCMAKE_BUILD_TYPE=$type -DTRIPOD_SANITIZE=$sanitize \
  -DTRIPOD_TESTS=$tests ${settings[@]:+"${settings[@]}"} --log-level=WARNING
# LLVM's headers make some compiles take over a gigabyte: no more jobs than cores.
cmake --build "build/$config" -j "$(nproc)" ${targets[@]:+--target "${targets[@]}"}
if [ "$config" = release ]; then
  mkdir -p build/bin
  ln -sf ../release/bin/tripod build/bin/tripod
fi
