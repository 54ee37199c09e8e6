#!/usr/bin/env bash
# Times Tessera and its peers on this machine, in turn for several rounds, and writes the medians and
# ratios: OUT/peers.json and OUT/peers.md.
#
#   bench/run_peers.sh [--build DIR] [--out DIR] [--rounds N] [--no-install]
#
# Peers: PyTorch with OpenBLAS (alone, DDP and ZeRO-1 over Gloo), Gloo's and Open MPI's collectives,
# all from the distribution's packages. DIR of --build holds a release build (default: build).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build out=build/peers rounds=5 install=yes
while (($# > 0)); do
  case "$1" in
    --build) build=${2:?--build needs a folder}; shift 2 ;;
    --out) out=${2:?--out needs a folder}; shift 2 ;;
    --rounds) rounds=${2:?--rounds needs a number}; shift 2 ;;
    --no-install) install=no; shift ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "error: '$1' is unknown; see bench/run_peers.sh --help" >&2; exit 2 ;;
  esac
done
if ! [[ $rounds =~ ^[1-9][0-9]*$ ]]; then
  echo "error: --rounds: '$rounds' is not a whole number of at least 1" >&2
  exit 2
fi
tessera=$build/tools/tessera
if [[ ! -x $tessera ]]; then
  echo "error: $tessera is missing; build first, or name the folder with --build" >&2
  exit 2
fi

if [[ $install == yes ]]; then
  scripts/install_deps.sh python3-torch libopenblas0-pthread openmpi-bin libopenmpi-dev
fi
# PyTorch uses the BLAS that the system prefers; the plain reference library is ten times slower.
blas=$(readlink -f /usr/lib/*/libblas.so.3 | head -n 1)
if [[ $blas != *openblas* ]]; then
  echo "error: libblas.so.3 is $blas; PyTorch needs OpenBLAS (update-alternatives)" >&2
  exit 2
fi

python=/usr/bin/python3  # the Python of the distribution's PyTorch
mkdir -p "$out"
mpicxx -std=c++20 -O3 -o "$out/mpi_collectives" bench/peers/mpi_collectives.cpp
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # for containers

log=$out/peers.jsonl
: >"$log"
# run NAME COMMAND...: appends the output of COMMAND, one JSON object per line.
run() {
  echo "  $1" >&2
  shift
  "$@" >>"$log"
}
ours() {
  "$tessera" bench "$@" --json "$out/ours.json" >/dev/null
  tr -d '\n' <"$out/ours.json"
  echo
}

for ((round = 1; round <= rounds; ++round)); do
  echo "round $round of $rounds (load $(cut -d' ' -f1 /proc/loadavg))" >&2
  run "tessera step" ours step --ranks 2 --repeat 5
  run "pytorch single" "$python" bench/peers/pytorch_gpt.py single --steps 5
  run "pytorch ddp" "$python" bench/peers/pytorch_gpt.py ddp --steps 5
  run "pytorch zero1" "$python" bench/peers/pytorch_gpt.py zero1 --steps 5
  run "tessera collectives" ours collectives --ranks 2 --repeat 10
  run "open mpi collectives" mpirun -n 2 --bind-to none --oversubscribe "$out/mpi_collectives"
  run "gloo collectives" "$python" bench/peers/gloo_collectives.py
  run "tessera adamw" ours adamw --repeat 5
done

"$python" bench/peers/summarize.py "$log" --json "$out/peers.json" --markdown "$out/peers.md"
cat "$out/peers.md"
