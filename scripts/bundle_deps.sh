#!/usr/bin/env bash
# Fills a folder with what Tessera is built and tested with, from the installed packages of Debian or
# Ubuntu, so that it can be built where there is neither a network nor packages:
#
#   scripts/bundle_deps.sh [options] [FOLDER]        default: third_party/bundle
#   cmake -S . -B build -DTESSERA_BUNDLE=FOLDER      on the other machine, x86-64 too
#
#   --cudnn-frontend FOLDER   the folder of cudnn_frontend.h too, which no package has: include/ of
#             Python's nvidia-cudnn-frontend, or of its sources (default: what
#             scripts/install_deps.sh has fetched, if it has)
#   --check   Afterwards builds the library, the command, a test and the benchmarks against the bundle
#             in a scratch folder, where the packages are hidden (scripts/without_packages.sh).
#
# Headers (Eigen, fmt, nlohmann-json, CLI11, xxHash, Google Benchmark), sources (GoogleTest) and one
# library (Google Benchmark). Not MPI and oneDNN: a build does without them.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

check=no folder=third_party/bundle frontend=''
while (($# > 0)); do
  case "$1" in
    --check) check=yes ;;
    --cudnn-frontend) frontend=${2:?--cudnn-frontend needs a folder}; shift ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) echo "error: '$1' is unknown; see scripts/bundle_deps.sh --help" >&2; exit 2 ;;
    *) folder=$1 ;;
  esac
  shift
done

fetched=third_party/cudnn-frontend/include
if [[ -z $frontend && -e $fetched/cudnn_frontend.h ]]; then frontend=$fetched; fi

need() {
  if [[ ! -e $1 ]]; then
    echo "error: $1 is missing: install the package $2 (scripts/install_deps.sh)" >&2
    exit 1
  fi
}
need /usr/include/eigen3/Eigen/Core libeigen3-dev
need /usr/include/fmt/format.h libfmt-dev
need /usr/include/nlohmann/json.hpp nlohmann-json3-dev
need /usr/include/CLI/CLI.hpp libcli11-dev
need /usr/include/xxhash.h libxxhash-dev
need /usr/include/benchmark/benchmark.h libbenchmark-dev
need /usr/src/googletest/googletest/src/gtest-all.cc googletest
libraries=/usr/lib/$(uname -m)-linux-gnu
need "$libraries/libbenchmark_main.a" libbenchmark-dev

if [[ -n $(ls -A "$folder" 2>/dev/null) && ! -e $folder/versions.txt ]]; then
  echo "error: $folder is no bundle, and not empty: name another folder" >&2
  exit 2
fi
mkdir -p "$(dirname "$folder")"
filled=$(mktemp -d "$(dirname "$folder")/bundle-XXXXXX")
trap 'rm -rf "$filled"' EXIT
mkdir -p "$filled/include" "$filled/lib" "$filled/src/googletest"
# Eigen's unsupported modules are not used.
mkdir "$filled/include/eigen3"
cp -r /usr/include/eigen3/Eigen "$filled/include/eigen3/"
cp -r /usr/include/{fmt,nlohmann,CLI,benchmark} /usr/include/xxhash.h "$filled/include/"
cp -P "$libraries"/libbenchmark.so* "$libraries"/libbenchmark_main.a "$filled/lib/"
if [[ -n $frontend ]]; then
  need "$frontend/cudnn_frontend.h" nvidia-cudnn-frontend
  cp -r "$frontend"/cudnn_frontend* "$filled/include/"
fi
for part in googletest googlemock; do
  mkdir "$filled/src/googletest/$part"
  cp -r "/usr/src/googletest/$part"/{include,src} "$filled/src/googletest/$part/"
done
# The licences go with what they are of.
for package in libeigen3-dev libfmt-dev nlohmann-json3-dev libcli11-dev libxxhash-dev \
  libbenchmark-dev googletest; do
  mkdir -p "$filled/licenses/$package"
  cp -L "/usr/share/doc/$package/copyright" "$filled/licenses/$package/"
  printf '%s %s\n' "$package" "$(dpkg-query -W -f='${Version}' "$package")" >>"$filled/versions.txt"
done
chmod -R u+w,go+rX "$filled"
rm -rf "$folder"
mv "$filled" "$folder"
trap - EXIT

mib=$(du -sm "$folder" | cut -f 1)
echo "$folder: $mib MiB"
sed 's/^/  /' "$folder/versions.txt"
if ((mib >= 40)); then
  echo "error: that is too large to be carried along: at most 40 MiB" >&2
  exit 1
fi
[[ $check == yes ]] || exit 0

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
scripts/without_packages.sh cmake -S . -B "$scratch" -DTESSERA_BUNDLE="$(realpath "$folder")" \
  -DCMAKE_BUILD_TYPE=Release -DTESSERA_MPI=OFF -DTESSERA_ONEDNN=OFF -DTESSERA_CUDA=OFF \
  -DTESSERA_EMULATED_CUDA=OFF -DTESSERA_BUILD_BENCH=ON
scripts/without_packages.sh cmake --build "$scratch" --parallel "$(nproc)" \
  --target tessera_command test_base tessera_benchmarks
"$scratch/tests/test_base" --gtest_brief=1
"$scratch/tools/tessera" --version
scripts/without_packages.sh "$scratch/bench/tessera_benchmarks" --benchmark_list_tests >/dev/null
echo "builds against $folder alone"
