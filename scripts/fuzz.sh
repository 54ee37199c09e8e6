#!/usr/bin/env bash
# Long runs of the targets of tests/fuzz, by libFuzzer under the address and undefined-behaviour
# sanitizers. Prints how many inputs each target ran and what it found. The status is 1 if it found
# anything, 2 if it cannot run.
#
#   scripts/fuzz.sh [TARGET...] [--seconds S | --runs N]
#
#   TARGET       a source tests/fuzz/TARGET_fuzz.cpp (default: all of them)
#   --seconds S  seconds for each target (default: 60)
#   --runs N     inputs for each target
#   --seed N     seed of the random numbers (default: a new one every time)
#   --corpus DIR keeps inputs that reach new code for later runs, in one folder per target, and writes
#                inputs that fail to DIR/found (default: tessera-fuzz in XDG_CACHE_HOME or in ~/.cache)
#   --build DIR  builds in DIR, and configures it if it does not exist (default: build/asan)
#   --no-build   uses the build in DIR unchanged
#   --minimize   first reduces each corpus to the inputs that it needs
#
# To run an input that failed again:
#   build/asan/tests/fuzz/fuzz_TARGET INPUT
# Once the fault is fixed, keep the input as a seed: tests/fuzz/corpus/TARGET/found-WHAT.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

targets=() limit=(-max_total_time=60) seed=0 build=build/asan builds=yes minimize=no
corpus=${XDG_CACHE_HOME:-$HOME/.cache}/tessera-fuzz
while (($# > 0)); do
  case "$1" in
    --seconds | --runs | --seed | --corpus | --build)
      (($# > 1)) || { echo "error: $1 needs a value" >&2; exit 2; }
      if [[ $1 == --se* || $1 == --runs ]] && ! [[ $2 =~ ^[0-9]+$ ]]; then
        echo "error: $1: '$2' is not a number" >&2
        exit 2
      fi
      case "$1" in
        --seconds) limit=("-max_total_time=$2") ;;
        --runs) limit=("-runs=$2") ;;
        --seed) seed=$2 ;;
        --corpus) corpus=$2 ;;
        --build) build=$2 ;;
      esac
      shift
      ;;
    --no-build) builds=no ;;
    --minimize) minimize=yes ;;
    -h | --help)
      sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    -*)
      echo "error: '$1' is unknown; see scripts/fuzz.sh --help" >&2
      exit 2
      ;;
    *) targets+=("$1") ;;
  esac
  shift
done

known=()
for source in tests/fuzz/*_fuzz.cpp; do
  known+=("$(basename "$source" _fuzz.cpp)")
done
if ((${#targets[@]} == 0)); then targets=("${known[@]}"); fi
for target in "${targets[@]}"; do
  if [[ " ${known[*]} " != *" $target "* ]]; then
    echo "error: '$target' is not a target; use ${known[*]}" >&2
    exit 2
  fi
done

if [[ $builds == yes ]]; then
  if [[ ! -f $build/CMakeCache.txt ]]; then
    compiler=$(command -v clang++-19 || command -v clang++) || {
      echo "error: clang++ was not found, and libFuzzer needs it: run scripts/install_deps.sh --all-tests" >&2
      exit 2
    }
    cmake --preset asan -B "$build" -DCMAKE_CXX_COMPILER="$compiler" >/dev/null
  fi
  cmake --build "$build" --target "${targets[@]/#/fuzz_}"
fi
if ! grep -qs '^TESSERA_LINKS_LIBFUZZER:[A-Z]*=1' "$build/CMakeCache.txt"; then
  echo "error: $build is not built with libFuzzer: configure it with the preset asan and clang 19" >&2
  exit 2
fi

options=(-max_len=4096 -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=64 -print_final_stats=1
  "-seed=$seed")
export ASAN_OPTIONS=${ASAN_OPTIONS:-quarantine_size_mb=32}
mkdir -p "$corpus/found"
all=0 findings=0
printf '%-20s %12s %10s %8s  %s\n' target executions 'a second' corpus findings
for target in "${targets[@]}"; do
  program=$build/tests/fuzz/fuzz_$target
  own=$corpus/$target
  words=()
  if [[ -f tests/fuzz/$target.dict ]]; then words=("-dict=tests/fuzz/$target.dict"); fi
  mkdir -p "$own"
  if [[ $minimize == yes ]]; then
    mv "$own" "$own.all"
    mkdir "$own"
    "$program" -merge=1 "${options[@]}" "$own" "$own.all" "tests/fuzz/corpus/$target" \
      >"$corpus/$target.log" 2>&1 || { cat "$corpus/$target.log"; exit 1; }
    rm -rf "$own.all"
  fi
  status=0
  "$program" "${options[@]}" "${limit[@]}" "${words[@]}" "-artifact_prefix=$corpus/found/$target-" \
    "$own" "tests/fuzz/corpus/$target" >"$corpus/$target.log" 2>&1 || status=$?
  stat() { sed -n "s/^stat::$1: *//p" "$corpus/$target.log"; }
  executions=$(stat number_of_executed_units)
  all=$((all + ${executions:-0}))
  found=none
  if ((status != 0)); then
    findings=$((findings + 1))
    found=$(sed -n 's/.*Test unit written to //p' "$corpus/$target.log" | tail -n 1)
    found=${found:-"status $status, see $corpus/$target.log"}
  fi
  printf '%-20s %12s %10s %8s  %s\n' "$target" "${executions:-?}" "$(stat average_exec_per_sec)" \
    "$(find "$own" -type f | wc -l)" "$found"
done
printf '%-20s %12s %10s %8s  %s\n' all "$all" '' '' "$findings"
((findings == 0))
