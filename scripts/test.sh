#!/usr/bin/env bash
# Tests Tessera. At the end it prints how long each phase took, and stores the times in
# build/test_times.json.
#
#   scripts/test.sh         does it work on this machine: builds the library, the command and the
#                           adapter for libtorch in build/user, and runs their tests
#   scripts/test.sh --all   runs every test, for those who change Tessera: the gates of
#                           scripts/lint.sh, the release build with CUDA and its doubles, its
#                           products as other processors compute them, then the thread and the
#                           address + undefined-behaviour sanitizers
#
# The release build and the user's use the machine's own compiler (CXX, or c++), the sanitizers'
# builds use clang 19 if it is installed: all compile the library, the command and the tests.
#
# CTEST_PARALLEL_LEVEL sets how many tests run at a time (default: twice the number of processors, since
# many tests wait).
# TESSERA_WERROR=ON makes warnings errors. It is off by default, since compilers warn of different
# things.
# TESSERA_CUDA_ARCHITECTURES sets CMake's option, which the build folder's cache keeps.
# CCACHE_DISABLE=1 compiles without ccache.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=no
presets=(user)
packages=--tests
case "${1:-}" in
  "") ;;
  --all)
    all=yes
    presets=(release tsan asan)
    packages=--all-tests
    ;;
  --quick)
    echo "error: there is no --quick: scripts/test.sh alone is the quick run, --all the complete one" >&2
    exit 2
    ;;
  -h | --help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  *)
    echo "error: '$1' is unknown; use --all or nothing" >&2
    exit 2
    ;;
esac

if [[ $all == yes && -n ${TESSERA_CPU:-} ]]; then
  echo "error: --all tries every value of TESSERA_CPU; unset it" >&2
  exit 2
fi

mkdir -p build
rm -f build/*/cpu_*.log  # of another processor
phases=build/test_phases.tsv
: >"$phases"
began=$(date +%s)
failed=()
summary=()

# phase NAME COMMAND...: runs COMMAND and records its seconds.
phase() {
  local name=$1 start status=0
  shift
  start=$(date +%s.%N)
  "$@" || status=$?
  printf '%s\t%s\n' "$name" "$(awk "BEGIN { print $(date +%s.%N) - $start }")" >>"$phases"
  return "$status"
}

phase "packages" scripts/install_deps.sh "$packages"

# Clones share the compiler cache: paths below the project's root count as relative.
launcher=''
if [[ -z ${CCACHE_DISABLE:-} ]] && command -v ccache >/dev/null; then
  launcher=ccache
  CCACHE_BASEDIR=$(pwd -P)
  # Precompiled headers hit only if ccache need not see macros and times in them.
  CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:+$CCACHE_SLOPPINESS,}pch_defines,time_macros,include_file_mtime,include_file_ctime
  export CCACHE_BASEDIR CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS CCACHE_STATSLOG=$PWD/build/ccache.log
  rm -f "$CCACHE_STATSLOG"
fi
# GCC supports mold from version 12.1 on.
linker=''
if echo 'int main() {}' | "${CXX:-c++}" -x c++ -fuse-ld=mold -o /dev/null - 2>/dev/null; then
  linker=-fuse-ld=mold
fi
sanitizes() { [[ $1 == tsan || $1 == asan ]]; }
clang=''
for name in clang++-19 clang++; do
  if [[ -z $clang ]] && command -v "$name" >/dev/null && [[ $("$name" -dumpversion) == 19.* ]]; then
    clang=$name
  fi
done
if [[ -z $clang && $all == yes ]]; then
  echo "no clang 19 here: the sanitizers' builds are made with the machine's own compiler"
fi

# CMake forgets every setting of a folder when its compiler changes, so such a folder is configured
# again.
forget_other_compiler() {
  local cache=build/$1/CMakeCache.txt kept
  if [[ -z $2 || ! -f $cache ]]; then return; fi
  kept=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$cache")
  if [[ $kept != "$(command -v "$2")" ]]; then rm -rf "$cache" "build/$1/CMakeFiles"; fi
}

configure() {
  local preset=$1 compiler='' werror=${TESSERA_WERROR:-OFF} options=()
  if [[ $preset == release ]]; then
    options=(-DTESSERA_BUILD_BENCH=ON  # they are only compiled, once
      "-DCMAKE_CUDA_COMPILER_LAUNCHER=$launcher"
      ${TESSERA_CUDA_ARCHITECTURES:+"-DTESSERA_CUDA_ARCHITECTURES=$TESSERA_CUDA_ARCHITECTURES"})
  elif sanitizes "$preset"; then
    compiler=$clang
    # In instrumented code GCC warns that variables of its own library are uninitialised.
    if [[ -z $clang ]]; then werror=OFF; fi
  fi
  forget_other_compiler "$preset" "$compiler"
  cmake --preset "$preset" -DTESSERA_WERROR="$werror" \
    ${compiler:+"-DCMAKE_CXX_COMPILER=$compiler"} -DCMAKE_CXX_COMPILER_LAUNCHER=$launcher \
    -DCMAKE_EXE_LINKER_FLAGS=$linker -DCMAKE_MODULE_LINKER_FLAGS=$linker "${options[@]}" >/dev/null || return
  if sanitizes "$preset" && ! grep -q '^TESSERA_SANITIZE:[A-Z]*=.' "build/$preset/CMakeCache.txt"; then
    echo "error: build/$preset is configured without a sanitizer; remove it" >&2
    return 1
  fi
}

# run_tests PRESET LOG [CTEST_OPTION...]: the output goes to LOG.log and LOG.xml in the build's folder.
run_tests() {
  local preset=$1 log=$2
  shift 2
  ctest --preset "$preset" --parallel "${CTEST_PARALLEL_LEVEL:-$(($(nproc) * 2))}" \
    --no-tests=error --output-junit "$log.xml" --test-output-size-passed 1000000 "$@" 2>&1 | tee "build/$preset/$log.log"
}

# Another processor computes products in another way: the tests that depend on it run again in each way
# that this processor can take (docs/determinism.md). What it lacks is printed.
run_combinations() {
  local combinations words status=0
  combinations=$(scripts/cpu_combinations.sh build/release/tools/tessera) || return 1
  while read -r words <&3; do
    if [[ $words == native ]]; then continue; fi  # the run before
    echo "== release with TESSERA_CPU=$words"
    TESSERA_CPU=$words run_tests release "cpu_$words" \
      --tests-regex '^(kernels|nn|parity)\.|^torch\..*Parity' || status=1
    summary+=("$(printf '%-8s %s' "$words" "$(outcome "release/cpu_$words")")")
  done 3<<<"$combinations"  # tests may read their standard input
  return "$status"
}
# outcome LOG: the line that counts the tests.
outcome() { grep -E '% tests passed' "build/$1.log" || echo "did not finish"; }

# On a distribution without clang 19, such as Ubuntu 22.04, only CI requires the gates.
gates() {
  local status=0
  scripts/lint.sh || status=$?
  if ((status == 2)) && [[ ${TESSERA_WERROR:-OFF} != ON ]]; then
    echo "the gates are skipped: their tools are missing (above)"
    return 0
  fi
  return "$status"
}
if [[ $all == yes ]]; then
  echo "== gates"
  phase "gates" gates || failed+=(gates)
fi
for preset in "${presets[@]}"; do
  echo "== $preset"
  # Tests of the files themselves (what includes what, what must not compile) give the same result in
  # every build: they run once.
  selection=()
  if sanitizes "$preset"; then selection=(--label-exclude once); fi
  phase "configure $preset" configure "$preset"
  phase "build $preset" cmake --build --preset "$preset"
  phase "test $preset" run_tests "$preset" tests "${selection[@]}" || failed+=("$preset")
  summary+=("$(printf '%-8s %s' "$preset" "$(outcome "$preset/tests")")")
  if [[ $preset == release ]]; then
    phase "test other instructions" run_combinations || failed+=("release with other instructions")
  fi
done

scripts/test_times.py "${presets[@]/#/build/}" --phases "$phases" --since "$began" \
  --json build/test_times.json || failed+=(times)
if [[ -n $launcher && -s $CCACHE_STATSLOG ]]; then  # ccache crashes without the log
  echo
  echo "ccache in this run"
  ccache --show-log-stats 2>/dev/null | sed 's/^/  /'
fi

echo
for preset in "${presets[@]}"; do
  for log in "build/$preset"/{tests,cpu_*}.log; do
    if [[ ! -f $log ]] || ! grep -q '^The following tests FAILED:' "$log"; then continue; fi
    echo "== ${log%.log}: what failed"
    sed -n '/^The following tests FAILED:/,$p' "$log"
  done
done
printf '%s\n' "${summary[@]}"
if ((${#failed[@]} > 0)); then
  echo "failed: ${failed[*]}"
  exit 1
fi
echo "all tests passed"
