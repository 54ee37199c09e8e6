#!/usr/bin/env bash
# Checks that no type or function has two definitions that differ (C++'s one-definition rule): the
# library, the command and the program of tests/base are compiled source by source with link-time
# optimisation, and GCC's linker plugin compares what they define, with -Wodr and
# -Wlto-type-mismatch as errors. It generates neither code nor programs.
#
#   scripts/check_odr.sh [FOLDER]              build there (default: build/odr)
#   scripts/check_odr.sh --objects OBJECT...   compare these objects, compiled with -flto
#
# CXX names the compiler (default: g++; GCC only). Without CUDA: its module is a separate program.
set -euo pipefail

case "${1:-}" in
  -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
esac

cxx=${CXX:-g++}
if ! "$cxx" --version | grep -q 'Free Software Foundation'; then
  echo "error: '$cxx' is not GCC, whose linker plugin compares definitions: set CXX to a g++" >&2
  exit 2
fi
# Merges the objects and stops before any code is generated.
compare() {
  local merged status=0
  merged=$(mktemp)
  "$cxx" -r -nostdlib -flinker-output=rel -flto=auto -O0 -Werror=odr -Werror=lto-type-mismatch \
    -o "$merged" "$@" || status=1
  rm -f "$merged"
  if ((status != 0)); then
    echo "error: some of the $# objects define the same name differently, see above" >&2
    exit 1
  fi
  echo "$# objects have no conflicting definitions"
}
if [[ ${1:-} == --objects ]]; then
  shift
  compare "$@"
  exit 0
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-build/odr}
launcher=()
if [[ -z ${CCACHE_DISABLE:-} ]] && command -v ccache >/dev/null; then
  launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
# -O0 is fast and does not affect the comparison. Each source is compiled separately; otherwise there
# would be nothing to compare.
cmake -S . -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" "${launcher[@]}" \
  -DCMAKE_BUILD_TYPE=Odr -DCMAKE_CXX_FLAGS_ODR="-O0 -flto -fno-fat-lto-objects" \
  -DTESSERA_TOGETHER=OFF \
  -DTESSERA_CUDA=OFF -DTESSERA_EMULATED_CUDA=OFF -DTESSERA_BUILD_EXAMPLES=OFF >/dev/null
targets='tessera|tessera_c_objects|tessera_measure|tessera_tools|tessera_command|tessera_test_sources|test_base'
mapfile -t objects < <(ninja -C "$folder" -t targets all |
  sed -nE "s/^(.*\.o): CXX_COMPILER__($targets)(_unscanned)?_Odr.*/\1/p" | sort)
if ((${#objects[@]} < 200)) || [[ " ${objects[*]}" == */together/* ]]; then
  echo "error: ${#objects[@]} objects instead of one for each source: adapt this script to the build" >&2
  exit 1
fi
ninja -C "$folder" "${objects[@]}"
cd "$folder"
compare "${objects[@]}"
