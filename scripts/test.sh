#!/usr/bin/env bash
# Sets up, builds, and passes every test; .ci/run is this script. From nothing it takes under 40 minutes on 2 cores.
#
# usage: scripts/test.sh [--device cpu|cuda] [--only SUITE[,SUITE...]] [--list]
#   suites: includes unit ops python, and on demand the others (--list prints them all).
#   --device cuda: on a machine with a GPU and nvcc; ops and models are compiled for it and run on it; gpu
#   is 10,000 calls, threads on streams of their own, CUDA graphs and compute-sanitizer.
# Ends with the line "N passed, N failed"; the exit code is 0 when none failed.
set -uo pipefail
cd "$(dirname "$0")/.."

suites=(includes unit ops resized resized-all models gpu python steady sanitizers sanitizers-all fuzz)
# What takes longer than its worth in every run: resized-all, sanitizers-all and fuzz, when they are named.
declare -A default_suites=([cpu]=includes,unit,ops,resized,models,python,steady,sanitizers [cuda]=ops,models,gpu)
device=cpu
only=
while [ $# -gt 0 ]; do
  case "$1" in
    --device) device=${2:?--device needs cpu or cuda}; shift ;;
    --only) only=${2:?--only needs a suite}; shift ;;
    --list) printf '%s\n' "${suites[@]}"; exit 0 ;;
    -h|--help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "test.sh: unknown argument $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done
case "$device" in
  cpu|cuda) only=${only:-${default_suites[$device]}} ;;
  *) echo "test.sh: unknown device '$device': cpu or cuda" >&2; exit 2 ;;
esac
for s in ${only//,/ }; do
  printf '%s\n' "${suites[@]}" | grep -qx "$s" || { echo "test.sh: no suite '$s': ${suites[*]}" >&2; exit 2; }
done

python=build/venv/bin/python
passed=0
failed=0
broken=()

wanted() { [ -z "$only" ] || [[ ",$only," == *",$1,"* ]]; }

# count NAME COMMAND...: runs COMMAND, shows its output, and adds up its last line "N passed, N failed...". A command
# that fails without such a line, or says 0 failed and still fails, counts as one failure.
count() {
  local name=$1 log start=$SECONDS code last p f
  shift
  log=$(mktemp)
  echo "== $name"
  "$@" 2>&1 | tee "$log"
  code=${PIPESTATUS[0]}
  last=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -1)
  p=$(sed -nE 's/^([0-9]+) passed.*/\1/p' <<<"$last")
  f=$(sed -nE 's/^[0-9]+ passed, ([0-9]+) failed.*/\1/p' <<<"$last")
  passed=$((passed + ${p:-0}))
  failed=$((failed + ${f:-0}))
  if [ "$code" -ne 0 ] && [ "${f:-0}" -eq 0 ]; then failed=$((failed + 1)); fi
  [ "$code" -eq 0 ] || broken+=("$name")
  rm -f "$log"
  echo "== $name: $((SECONDS - start)) s, exit code $code"
}

# GoogleTest binaries and whatever else CMake registered; ctest's own summary turned into ours.
run_ctest() {
  local log code total bad
  log=$(mktemp)
  ctest --test-dir build/release --output-on-failure -j "$(nproc)" --timeout 600 | tee "$log"
  code=${PIPESTATUS[0]}
  total=$(sed -nE 's/.*tests failed out of ([0-9]+)$/\1/p; s/.*tests passed.* out of ([0-9]+)$/\1/p' "$log" | tail -1)
  bad=$(sed -nE 's/.*, ([0-9]+) tests? failed out of.*/\1/p' "$log" | tail -1)
  rm -f "$log"
  echo "$((${total:-0} - ${bad:-0})) passed, ${bad:-0} failed"
  return "$code"
}

# Python unit suites: every tests/**/check_*.py is a program that ends with "N passed, N failed".
run_python_checks() {
  local p=0 f=0 last
  for check in $(find tests -name 'check_*.py' | sort); do
    echo "-- $check"
    last=$($python "$check" 2>&1 | tee /dev/stderr | tail -1)
    if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
      p=$((p + BASH_REMATCH[1])); f=$((f + BASH_REMATCH[2]))
    else
      echo "$check gave no summary line"; f=$((f + 1))
    fi
  done
  echo "$p passed, $f failed"
  [ "$f" -eq 0 ]
}

# What is linked into every model, and what reads untrusted bytes: the runtime's unit tests (two threads calling one model
# among them) under AddressSanitizer and UBSan, and again under ThreadSanitizer; the fuzz targets of the C API and of the
# importer on their corpus.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
export TSAN_OPTIONS=allocator_may_return_null=1:die_after_fork=0
run_sanitizers() {
  local p=0 f=0
  scripts/build.sh --config asan runtime_test fuzz_capi fuzz_onnx && scripts/build.sh --config tsan runtime_test || return 1
  good() { if "$@"; then p=$((p + 1)); else f=$((f + 1)); echo "not good: $*"; fi; }
  good build/asan/bin/runtime_test --gtest_brief=1
  good build/tsan/bin/runtime_test --gtest_brief=1
  good $python tests/fuzz/run.py capi onnx --seconds 15
  echo "$p passed, $f failed"
  [ "$f" -eq 0 ]
}

# The rest of the compiler too: all unit tests of what needs no LLVM, the error models, a sample of the operators.
run_sanitizers_all() {
  local p=0 f=0 tests=(base sym graph onnx graphopt loop runtime)
  scripts/build.sh --config asan tripod "${tests[@]/%/_test}" || return 1
  good() { if "$@"; then p=$((p + 1)); else f=$((f + 1)); echo "not good: $*"; fi; }
  for t in "${tests[@]}"; do good "build/asan/bin/${t}_test" --gtest_brief=1; done
  good $python tests/errors/check_errors.py --compiler build/asan/bin/tripod
  good $python tests/ops/run.py --compiler build/asan/bin/tripod --every 25 --mode stripped
  echo "$p passed, $f failed"
  [ "$f" -eq 0 ]
}

run_fuzz() {
  scripts/build.sh --config asan fuzzers && $python tests/fuzz/run.py --seconds 10
}

finish() {
  [ ${#broken[@]} -eq 0 ] || echo "test.sh: not good: ${broken[*]}"
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] && [ ${#broken[@]} -eq 0 ]
  exit $?
}

start=$SECONDS
scripts/setup.sh || { echo "test.sh: setup failed"; failed=1; finish; }
echo "== setup: $((SECONDS - start)) s"
wanted includes && count includes $python scripts/check_includes.py
if [ "$only" != includes ]; then
  start=$SECONDS
  scripts/build.sh || { echo "test.sh: the build failed"; failed=$((failed + 1)); broken+=(build); finish; }
  echo "== build: $((SECONDS - start)) s"
fi
wanted unit && count unit run_ctest
wanted ops && count ops $python tests/ops/run.py --target "$device" --summary
wanted resized && count resized $python tests/ops/resized.py --mode resized --every 12 --summary
wanted resized-all && count resized-all $python tests/ops/resized.py --mode resized --summary
wanted models && count models $python tests/models/run.py --target "$device"
# Of the models that the suite before has compiled.
wanted gpu && count gpu $python tests/gpu/steady.py build/models/{magika,minilm,mobilenet_v3}.cuda.so \
  --sanitizer memcheck,racecheck,synccheck,initcheck
wanted python && count python run_python_checks
wanted steady && count steady $python bench/runtime.py --check --seconds 1
wanted sanitizers && count sanitizers run_sanitizers
wanted sanitizers-all && count sanitizers-all run_sanitizers_all
wanted fuzz && count fuzz run_fuzz
finish
