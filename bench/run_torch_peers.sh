#!/usr/bin/env bash
# Times a libtorch module under Tessera, under libtorch alone, in PyTorch alone, and in PyTorch's
# DistributedDataParallel and (from version 2.6 on) FSDP2 over Gloo, in turn for several rounds, and
# writes the medians and ratios: OUT/torch.md.
#
#   bench/run_torch_peers.sh [--build DIR] [--out DIR] [--rounds N] [--steps K] [--python PROGRAM]
#                            [--no-install]
#
# DIR of --build holds a release build with TESSERA_BUILD_BENCH (default: build/release). PyTorch is the
# distribution's package python3-torch, with the same library as libtorch-dev, or that of PROGRAM, such
# as the Python of a virtual environment; DIR is then built with its libtorch (TESSERA_TORCH_ROOT).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/release out=build/torch_peers rounds=5 steps=8 install=yes
python=/usr/bin/python3  # the Python of the distribution's PyTorch
while (($# > 0)); do
  case "$1" in
    --build) build=${2:?--build needs a folder}; shift 2 ;;
    --out) out=${2:?--out needs a folder}; shift 2 ;;
    --rounds) rounds=${2:?--rounds needs a number}; shift 2 ;;
    --steps) steps=${2:?--steps needs a number}; shift 2 ;;
    --python) python=${2:?--python needs a program}; install=no; shift 2 ;;
    --no-install) install=no; shift ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "error: '$1' is unknown; see bench/run_torch_peers.sh --help" >&2; exit 2 ;;
  esac
done
step=$build/bench/torch_step
if [[ ! -x $step ]]; then
  echo "error: $step is missing; build it (target torch_step), or name the folder with --build" >&2
  exit 2
fi
if [[ $install == yes ]]; then
  scripts/install_deps.sh python3-torch libtorch-dev libopenblas0-pthread openmpi-bin libopenmpi-dev
fi
blas=$(readlink -f /usr/lib/*/libblas.so.3 | head -n 1)
if [[ $python == /usr/bin/python3 && $blas != *openblas* ]]; then
  echo "error: libblas.so.3 is $blas; libtorch needs OpenBLAS (update-alternatives)" >&2
  exit 2
fi

fsdp2=no
if "$python" -c 'from torch.distributed.fsdp import fully_shard' 2>/dev/null; then fsdp2=yes; fi
mkdir -p "$out"
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
log=$out/torch.jsonl
: >"$log"
gpt() { "$python" bench/peers/pytorch_gpt.py "$@" --steps "$steps" >>"$log"; }
ours() { scripts/mpirun.sh -n 2 "$step" "$1" "$steps" >>"$log"; }
as_threads() { "$step" "$1" "$steps" "$2" >>"$log"; }

for ((round = 1; round <= rounds; ++round)); do
  echo "round $round of $rounds (load $(cut -d' ' -f1 /proc/loadavg))" >&2
  gpt ddp
  if [[ $fsdp2 == yes ]]; then gpt fsdp2; fi
  ours ddp
  ours zero3
  ours zero2
  as_threads ddp 2
  as_threads zero3 2
  gpt single
  as_threads alone 1
  as_threads ddp 1
  as_threads zero3 1
done

"$python" bench/peers/summarize_torch.py "$log" | tee "$out/torch.md"
