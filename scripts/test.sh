#!/usr/bin/env bash
# Every test: the release build, then the thread and the address + undefined-behaviour sanitizers.
#
#   scripts/test.sh           all of it
#   scripts/test.sh --quick   the release build only
#
# CTEST_PARALLEL_LEVEL sets how many tests run at a time (default: the number of processors).
# TESSERA_WERROR=ON makes a warning of the release build an error. It is off by default, since other
# compilers warn of other things; the sanitizers' builds never have it: under instrumentation GCC
# takes variables of its own library for uninitialised.
# TESSERA_CUDA_ARCHITECTURES is as CMake's option, which keeps it in the folder of the build.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

presets=(release tsan asan)
case "${1:-}" in
  "") ;;
  --quick) presets=(release) ;;
  -h | --help)
    sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  *)
    echo "error: '$1' is unknown; use --quick or nothing" >&2
    exit 2
    ;;
esac

scripts/install_deps.sh --browser
no_precompiled_headers=OFF
if [[ -z ${CCACHE_DISABLE:-} ]] && command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
  no_precompiled_headers=ON  # ccache keeps no object that is compiled with them
fi

failed=()
summary=()
for preset in "${presets[@]}"; do
  echo "== $preset"
  # The benchmarks are only compiled, once.
  benchmarks=OFF
  werror=OFF
  if [[ $preset == release ]]; then
    benchmarks=ON
    werror=${TESSERA_WERROR:-OFF}
  fi
  cmake --preset "$preset" -DTESSERA_BUILD_BENCH=$benchmarks -DTESSERA_WERROR="$werror" \
    ${TESSERA_CUDA_ARCHITECTURES:+"-DTESSERA_CUDA_ARCHITECTURES=$TESSERA_CUDA_ARCHITECTURES"} \
    -DCMAKE_DISABLE_PRECOMPILE_HEADERS=$no_precompiled_headers >/dev/null
  cmake --build --preset "$preset"
  log=build/$preset/ctest.log
  # Tests of the files themselves (what includes what, what must not compile) say the same in every
  # build: once is enough.
  selection=()
  if [[ $preset != release ]]; then selection=(--label-exclude once); fi
  ctest --preset "$preset" --parallel "${CTEST_PARALLEL_LEVEL:-$(nproc)}" --no-tests=error \
    "${selection[@]}" 2>&1 | tee "$log" || failed+=("$preset")
  summary+=("$(printf '%-8s %s' "$preset" "$(grep -E '% tests passed' "$log" || echo 'did not finish')")")
done

echo
for preset in "${failed[@]}"; do
  echo "== $preset: what failed"
  sed -n '/^The following tests FAILED:/,$p' "build/$preset/ctest.log"
done
printf '%s\n' "${summary[@]}"
if ((${#failed[@]} > 0)); then
  echo "failed: ${failed[*]}"
  exit 1
fi
echo "all tests passed"
