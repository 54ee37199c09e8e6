#!/usr/bin/env bash
# Copies the installed packages of Debian or Ubuntu that Tessera is built and tested with into a
# folder, so that it can be built on a machine without a network and without packages:
#
#   scripts/bundle_deps.sh [options] [FOLDER]        default: third_party/bundle
#   cmake -S . -B build -DTESSERA_BUNDLE=FOLDER      on the other machine, also x86-64
#
#   --cudnn-frontend FOLDER   also copies cuDNN's frontend, which no package contains, from the FOLDER that
#             has cudnn_frontend.h: include/ of Python's nvidia-cudnn-frontend or of its sources
#             (default: the copy that scripts/install_deps.sh fetches, if it exists)
#   --check   then builds the library, the command, a test and the benchmarks against the bundle in a
#             scratch folder, with the packages hidden (scripts/without_packages.sh); with nvcc and
#             cuDNN, also compiles a source that uses cuDNN's frontend
#
# Headers (Eigen, fmt, nlohmann-json, CLI11, xxHash, Google Benchmark), sources (GoogleTest) and one
# library (Google Benchmark). Not MPI and oneDNN, which a build does not need.
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
# Lists the quoted includes of the headers under a folder that do not exist, one line "HEADER NAME"
# each, with HEADER relative to the folder. The compiler looks beside the header, then in the
# folder.
missing_includes() {
  local header name
  find "$1" -type f -printf './%P\0' |
    (cd "$1" && xargs -0 sed -nE \
      '/^[[:space:]]*#[[:space:]]*include[[:space:]]*"/{F;s/^[^"]*"([^"]*)".*/\1/p}') |
    paste -d ' ' - - |
    while read -r header name; do
      if [[ ! -e $1/${header%/*}/$name && ! -e $1/$name ]]; then echo "$header $name"; fi
    done
}

# Copies cuDNN's frontend from folder $1 into the empty folder $2: the files named after it, and
# their quoted includes. Folder $1 may hold other things, such as cuDNN's own headers.
copy_frontend() {
  local header name path missing copied=yes
  cp -r "$1"/cudnn_frontend* "$2/"
  while [[ $copied == yes ]]; do
    copied=no
    missing=$(missing_includes "$2")
    while read -r header name; do
      for path in "${header%/*}/$name" "$name"; do
        if [[ ! -f $1/$path || -e $2/$path ]]; then continue; fi
        mkdir -p "$(dirname "$2/$path")"
        cp "$1/$path" "$2/$path"
        copied=yes
      done
    done <<<"$missing"
  done
  if [[ -n $missing ]]; then
    echo "error: cuDNN's frontend in '$1' is incomplete: these headers include files that are missing" >&2
    echo "$missing" >&2
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
  echo "error: '$folder' is neither empty nor a bundle: name another folder" >&2
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
  mkdir -p "$filled/frontend/include"  # they include each other as ../include
  copy_frontend "$frontend" "$filled/frontend/include"
  cp -r "$filled/frontend/include/." "$filled/include/"
  rm -r "$filled/frontend"
fi
for part in googletest googlemock; do
  mkdir "$filled/src/googletest/$part"
  cp -r "/usr/src/googletest/$part"/{include,src} "$filled/src/googletest/$part/"
done
# Copies the licences of all these packages.
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
  echo "error: $folder has $mib MiB; a bundle may have less than 40 MiB" >&2
  exit 1
fi
[[ $check == yes ]] || exit 0

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cuda=OFF
if command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]; then cuda=AUTO; fi
scripts/without_packages.sh cmake -S . -B "$scratch" -DTESSERA_BUNDLE="$(realpath "$folder")" \
  -DCMAKE_BUILD_TYPE=Release -DTESSERA_MPI=OFF -DTESSERA_ONEDNN=OFF -DTESSERA_CUDA=$cuda \
  -DTESSERA_EMULATED_CUDA=OFF -DTESSERA_BUILD_BENCH=ON | tee "$scratch/log"

# Compiles one file that uses the frontend: the whole module would take minutes. Its command in the
# JSON file has to be unescaped.
frontend_user=kernels/attention/cuda/attention_cudnn.cpp
command=$(sed -nE "s| -o [^ ]*||;s|^ *\"command\": \"(.*$frontend_user)\",?$|\1|p" \
  "$scratch/compile_commands.json" | sed -E 's/\\(.)/\1/g')
if [[ -z $frontend ]]; then
  echo "skipped: $frontend_user, since the bundle lacks cuDNN's frontend"
elif [[ -z $command ]]; then
  echo "$frontend_user is not compiled: $(grep -E '^-- Without (CUDA|cuDNN):' "$scratch/log" ||
    echo 'nvcc was not found')"
else
  eval "$command -O0 -o $scratch/frontend_user.o -MD -MF $scratch/read"
  if ! grep -q "$(realpath "$folder")/include/cudnn_frontend.h" "$scratch/read"; then
    echo "error: $frontend_user includes cudnn_frontend.h from outside the bundle" >&2
    exit 1
  fi
  echo "$frontend_user compiles against $folder"
fi

scripts/without_packages.sh cmake --build "$scratch" --parallel "$(nproc)" \
  --target tessera_command test_base tessera_benchmarks
"$scratch/tests/test_base" --gtest_brief=1
"$scratch/tools/tessera" --version
scripts/without_packages.sh "$scratch/bench/tessera_benchmarks" --benchmark_list_tests >/dev/null
echo "the build needs only the packages in $folder"
