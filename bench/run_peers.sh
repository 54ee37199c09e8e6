#!/usr/bin/env bash
# Times Tessera and its peers on this machine, in turn for several rounds, and writes the medians and
# ratios: OUT/peers.json and OUT/peers.md.
#
#   bench/run_peers.sh [--build DIR] [--out DIR] [--rounds N] [--steps K] [--peers LIST] [--parts LIST]
#                      [--precisions LIST] [--wheel VERSION] [--no-install]
#
#   --build DIR      a release build (default: build)
#   --peers LIST     versions of PyTorch, separated by commas (default: both): debian, the
#                    distribution's package with OpenBLAS, and wheel, the one of Python's index, with
#                    MKL, scaled_dot_product_attention, fused AdamW, FSDP2 and torch.compile
#   --parts LIST     what to time, separated by commas (default: all): steps, collectives, adamw
#   --precisions LIST  of steps, separated by commas (default: fp32,bf16). Without AVX-512 a step of
#                    PyTorch in bf16 takes twenty times as long as in fp32
#   --wheel VERSION  version of the wheel (default: 2.15.0). It is installed into a virtual environment of
#                    its own, OUT/wheel, with the CUDA libraries that it does not load without: 5 GB
#
# The peers of collectives are Open MPI and each PyTorch's Gloo. Every second round runs the programs
# in the opposite order.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build out=build/peers rounds=5 steps=5 peers=debian,wheel parts=steps,collectives,adamw
precisions=fp32,bf16
wheel_version=2.15.0 install=yes
while (($# > 0)); do
  case "$1" in
    --build) build=${2:?--build needs a folder}; shift 2 ;;
    --out) out=${2:?--out needs a folder}; shift 2 ;;
    --rounds) rounds=${2:?--rounds needs a number}; shift 2 ;;
    --steps) steps=${2:?--steps needs a number}; shift 2 ;;
    --peers) peers=${2:?--peers needs a list}; shift 2 ;;
    --parts) parts=${2:?--parts needs a list}; shift 2 ;;
    --precisions) precisions=${2:?--precisions needs a list}; shift 2 ;;
    --wheel) wheel_version=${2:?--wheel needs a version}; shift 2 ;;
    --no-install) install=no; shift ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "error: '$1' is unknown; see bench/run_peers.sh --help" >&2; exit 2 ;;
  esac
done
for number in "--rounds $rounds" "--steps $steps"; do
  if ! [[ ${number#* } =~ ^[1-9][0-9]*$ ]]; then
    echo "error: ${number%% *}: '${number#* }' is not a whole number of at least 1" >&2
    exit 2
  fi
done
# check OPTION LIST KNOWN: refuses a LIST with an entry that is not in KNOWN.
check() {
  local entry
  for entry in ${2//,/ }; do
    [[ ,$3, == *,$entry,* ]] && continue
    echo "error: $1: '$entry' is unknown; use ${3//,/, }" >&2
    exit 2
  done
}
check --peers "$peers" debian,wheel
check --parts "$parts" steps,collectives,adamw
check --precisions "$precisions" fp32,bf16
has() { [[ ,$1, == *,$2,* ]]; }

tessera=$build/tools/tessera
if [[ ! -x $tessera ]]; then
  echo "error: $tessera is missing; build first, or name the folder with --build" >&2
  exit 2
fi
mkdir -p "$out"
out=$(realpath "$out")

distribution=/usr/bin/python3 # the Python of the distribution's PyTorch
virtual=$out/wheel/bin/python
installed_wheel() {
  "$virtual" -c 'from importlib.metadata import version; print(version("torch").split("+")[0])' 2>/dev/null
}
install_wheel() {
  if [[ $(installed_wheel) == "$wheel_version" ]]; then return; fi
  echo "installing PyTorch $wheel_version into $out/wheel" >&2
  rm -rf "$out/wheel"
  "$distribution" -m venv "$out/wheel"
  "$virtual" -m pip install --quiet --disable-pip-version-check --no-cache-dir --only-binary :all: \
    "torch==$wheel_version" numpy
}
if [[ $install == yes ]]; then
  packages=()
  if has "$peers" debian; then packages+=(python3-torch libopenblas0-pthread); fi
  if has "$peers" wheel; then packages+=(python3-venv python3-dev g++); fi
  if has "$parts" collectives; then packages+=(openmpi-bin libopenmpi-dev); fi
  scripts/install_deps.sh "${packages[@]}"
  if has "$peers" wheel; then install_wheel; fi
fi
if has "$peers" wheel && [[ $(installed_wheel) != "$wheel_version" ]]; then
  echo "error: $out/wheel has no PyTorch $wheel_version; leave out --no-install" >&2
  exit 2
fi
# PyTorch uses the BLAS that the system prefers; the plain reference library is ten times slower.
blas=$(readlink -f /usr/lib/*/libblas.so.3 | head -n 1) || blas=missing
if has "$peers" debian && [[ $blas != *openblas* ]]; then
  echo "error: libblas.so.3 is $blas; PyTorch needs OpenBLAS (update-alternatives)" >&2
  exit 2
fi

export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE # OpenBLAS chooses its kernels for this processor
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # for containers
if has "$parts" collectives; then
  mpicxx -std=c++20 -O3 -o "$out/mpi_collectives" bench/peers/mpi_collectives.cpp
fi
if has "$peers" wheel; then
  # torch.compile searches the system's folder before its own. A libtorch-dev of the distribution there
  # has no vector functions, and PyTorch then compiles scalar code.
  printf '#!/bin/sh\nexec /usr/bin/g++ -L"%s" "$@"\n' \
    "$("$virtual" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch/lib" >"$out/g++"
  chmod +x "$out/g++"
  # Compiling in the process itself leaves no workers behind that run beside the steps.
  export CXX=$out/g++ TORCHINDUCTOR_CACHE_DIR=$out/compiled TORCHINDUCTOR_COMPILE_THREADS=1
fi

log=$out/peers.jsonl
: >"$log"
ours() {
  rm -f "$out/ours.json"
  "$tessera" bench "$@" --json "$out/ours.json" >/dev/null || return
  tr -d '\n' <"$out/ours.json"
  echo
}
# Ours begins with two untimed steps and PyTorch with three. One timed step more lets both end with the
# same step, so that its loss can be compared.
tessera_step() { # RANKS STRATEGY PRECISION
  ours step --ranks "$1" --strategies "$2" --precision "$3" --repeat $((steps + 1))
}
debian() { "$distribution" bench/peers/"$1".py "${@:2}"; }
wheel() { "$virtual" bench/peers/"$1".py "${@:2}"; }
open_mpi() { mpirun -n 2 --bind-to none --oversubscribe "$out/mpi_collectives"; }

# Programs of a round, those of a pair next to each other.
jobs=()
# torch_job WHICH MODE PRECISION [OPTIONS]: adds a program of that PyTorch, if it is a peer.
torch_job() {
  if has "$peers" "$1"; then
    jobs+=("$1 pytorch_gpt $2 --precision $3 --steps $steps${4:+ $4}")
  fi
}
if has "$parts" steps; then
  for precision in ${precisions//,/ }; do
    for pair in "1 ddp single" "2 ddp ddp" "2 zero1 zero1" "2 zero3 fsdp2"; do
      read -r ranks strategy mode <<<"$pair"
      jobs+=("tessera_step $ranks $strategy $precision")
      # Version 1.13 has no FSDP2 over Gloo, and no fast bf16 products on CPUs.
      if [[ $precision == fp32 && $mode != fsdp2 ]]; then torch_job debian "$mode" fp32; fi
      torch_job wheel "$mode" "$precision"
      # PyTorch's ZeRO-1 is DDP with another optimizer: it has no variants of its own.
      case $mode in
        single | fsdp2) torch_job wheel "$mode" "$precision" --compile ;;
        ddp)
          torch_job wheel ddp "$precision" --bucket-view
          torch_job wheel ddp "$precision" "--bucket-view --compile"
          ;;
      esac
    done
  done
fi
if has "$parts" collectives; then
  jobs+=("ours collectives --ranks 2 --repeat 10" open_mpi)
  for peer in ${peers//,/ }; do jobs+=("$peer gloo_collectives"); done
fi
if has "$parts" adamw; then jobs+=("ours adamw --repeat 5"); fi

# attempt COMMAND...: prints what COMMAND prints. PyTorch's processes abort at their end now and then
# ("terminate called without an active exception"), so that one that fails is run once more. Any other
# program that fails ends the measurement.
attempt() {
  local try tries=(1)
  case "$1" in debian | wheel) tries=(1 2) ;; esac
  for try in "${tries[@]}"; do
    if "$@" >"$out/job.out" 2>"$out/job.log"; then
      cat "$out/job.out"
      return
    fi
    echo "  attempt $try failed: $*" >&2
  done
  cat "$out/job.log" >&2
  return 1
}

commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
for ((round = 1; round <= rounds; ++round)); do
  read -r load _ </proc/loadavg
  echo "round $round of $rounds (load $load)" >&2
  printf '{"round": %d, "load": %s, "date": "%s", "commit": "%s"}\n' \
    "$round" "$load" "$(date -u +%FT%TZ)" "$commit" >>"$log"
  for ((i = 0; i < ${#jobs[@]}; ++i)); do
    job=${jobs[round % 2 == 1 ? i : ${#jobs[@]} - 1 - i]}
    echo "  $job" >&2
    read -ra words <<<"$job"
    attempt "${words[@]}" >>"$log"
  done
done

"$distribution" bench/peers/summarize.py "$log" --json "$out/peers.json" --markdown "$out/peers.md"
cat "$out/peers.md"
