#!/usr/bin/env bash
# Builds the adapter for libtorch modules against the libtorch of PyTorch's wheel, and runs its tests on
# the CPU. Then compiles the adapter's CUDA part, if the CUDA toolkit's headers are there. Not part of
# CI, which uses Debian's libtorch: the wheel is 540 MB and needs 1.2 GB of disk.
#
# scripts/trials/torch_wheel.sh [FOLDER] [VERSION]
#   FOLDER   for a virtual environment and a build (default: build/torch_wheel)
#   VERSION  of PyTorch (default: the newest)
#
# Even the wheel's CPU libraries need two of CUDA's (cudart, cupti): if this machine has no toolkit with
# them, the script installs NVIDIA's wheels.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$source/build/torch_wheel}
version=${2:+==$2}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$source"

step() { echo "== $*"; }

step "the wheel"
python3 -m venv "$folder/venv"
install() { "$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps "$1"; }
install "torch$version"
torch=$(echo "$folder"/venv/lib/python3*/site-packages/torch)
sed -n "s/^__version__ = '\(.*\)'/torch \1/p" "$torch/version.py"

# missing LIBRARY: prints the libraries that the loader does not find for it.
missing() {
  ldd "$torch/lib/$1" | sed -n 's/^[[:space:]]*\(lib[^ ]*\) => not found$/\1/p' | sort -u
}
# complete LIBRARY: installs the NVIDIA wheels with the libraries that it lacks, where the rpath of torch's
# libraries finds them.
complete() {
  local library cuda wheel
  cuda=$(sed -n "s/^cuda[^=]*= '\([0-9]*\).*/\1/p" "$torch/version.py")
  for library in $(missing "$1"); do
    case $library in
      libcudart.so.*) wheel=nvidia-cuda-runtime ;;
      libcupti.so.*) wheel=nvidia-cuda-cupti ;;
      libcufile.so.*) wheel=nvidia-cufile ;;
      libcusparseLt.so.*) wheel=nvidia-cusparselt-cu$cuda ;;
      libnvshmem_host.so.*) wheel=nvidia-nvshmem-cu$cuda ;;
      *)
        echo "error: $1 needs $library, and this script knows no wheel that has it" >&2
        return 1
        ;;
    esac
    install "$wheel"
  done
  if [[ -n $(missing "$1") ]]; then
    echo "error: the loader does not find these libraries of $1: $(missing "$1")" >&2
    return 1
  fi
}
complete libtorch_cpu.so

# build TARGET ARGUMENT...: configures with these arguments, then builds TARGET.
build() {
  local target=$1
  shift
  cmake -S . -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTESSERA_WERROR=ON \
    -DTESSERA_TORCH=ON -DTESSERA_TORCH_ROOT="$torch" -DTESSERA_CUDA=OFF -DTESSERA_BUILD_TOOLS=OFF \
    -DTESSERA_BUILD_EXAMPLES=OFF "$@" >"$folder/configure.log" 2>&1 || {
    tail -20 "$folder/configure.log" >&2
    exit 1
  }
  grep "Adapter for modules" "$folder/configure.log"
  cmake --build "$folder/build" --target "$target"
}

step "the adapter and its tests, on the CPU"
build test_torch -DTESSERA_TORCH_CUDA=OFF
"$folder/build/tests/torch/test_torch"

step "the CUDA part of the adapter"
if [[ ! -e $torch/lib/libtorch_cuda.so ]]; then
  echo "skipped: this wheel has no libtorch_cuda.so"
  exit 0
fi
build tessera_torch -DTESSERA_TORCH_CUDA=AUTO
complete libtorch_cuda.so
# libtorch_cuda needs symbols of its own NCCL, which an older one of the machine lacks.
install "$(sed -n 's/^Requires-Dist: \(nvidia-nccl-cu[0-9]*==[0-9.]*\).*/\1/p' \
  "$torch"/../torch-*.dist-info/METADATA | head -n 1)"
build test_torch -DTESSERA_TORCH_CUDA=AUTO
echo "compiled and linked; running it needs a GPU"
