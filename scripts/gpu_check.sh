#!/usr/bin/env bash
# Checks and measures this machine's GPU: builds for it, runs every CUDA test on it, measures kernels
# and training beside their limits and beside PyTorch, judges what they have to reach, and writes one
# page of Markdown, and its figures as JSON.
#
#   scripts/gpu_check.sh [options] [PART...]        default: all parts, in this order
#
#   part       s   what
#   build    240   the module and the programs, with nvcc, for the card that is found
#   test     200   every CUDA test on the real module; losses beside the processor's
#   kernels  180   kernels beside a copy on the device and plain cuBLASLt; AdamW beside PyTorch's; the
#                  fastest of cuBLASLt's algorithms, recorded in products.json beside the page
#   train    400   GPT-2 124M in bf16 beside PyTorch; zero3 beside ddp, 4 ranks on the card; gpt2-xl beside
#                  PyTorch, with less kept
#   memory   300   gpt2-large and gpt2-xl under every strategy: planned, measured, PyTorch DDP's
#   checkpoint 120   runs resumed on the card beside uninterrupted ones; a step beside a save
#   nccl     400   one process, several on the card, their tests, and one of them killed
#   multi    400   2 and more GPUs: bandwidth of collectives, zero3 and hybrid beside ddp, gathers hidden
#   predictions 150   figures from before a change beside those of now, options switched on and off
#   sanitize 400   compute-sanitizer on the tests of kernels
#
#   --part PART       the same as PART
#   --seconds N       no more than that for all parts of this call
#   --resume          leaves out the parts, and the commands of a part, that have been done for this
#                     build; so repeating the same call finishes all parts
#   --compare FILE    an older gpu.json: says what got faster or slower since, and changes no status
#   --noise PERCENT   by which speeds and times may differ and count as the same (default 3)
#   --out FOLDER      of the page, gpu.md, and of its figures, gpu.json (default: that of --work)
#   --work FOLDER     of the build, of logs and of what is kept of each part (default build/gpu_check)
#   --build FOLDER    a finished build, of which part `build` compiles nothing; with the CUDA trainer as
#                     FOLDER/cuda_trainer, built as docs/cuda-trainer.md says, or that is not measured
#   --bundle FOLDER   what scripts/bundle_deps.sh filled (default third_party/bundle, if it is there)
#   --commit TEXT     what the page says of the sources, where git cannot say it
#   --emulated        against the emulated module of --build, at tiny sizes: shows that this works
#
# The seconds are estimates for 16 cores and a large card, and more than half an hour together: on a
# machine that is lent for no longer, name the parts, and leave `sanitize` to another call. A part gets
# PART_SECONDS (580). Parts can be run by several calls: each replaces its own section of the page, also
# of one that another machine has written. PYTHON names a Python with PyTorch.
#
# Needed are CUDA 12.4 or newer, CMake, a C++ compiler, NCCL (also Python's wheel of it), and Python for
# the figures as JSON and --compare, with PyTorch for the comparisons with it. It needs no network, installs nothing, and reads the card's clocks
# but changes no setting.
#
# Every bar is printed as "met", "NOT met", "not measured" (and why), or "refused" by NCCL; what has no
# bar is "measured". The status is 0: all is well; 1: a command or a test failed; 2: wrong usage; 3:
# nothing failed, but a bar was not met; 4: neither, but there was no time for all. The speeds of
# an emulated device are printed and have no part in the status.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { echo "error: $1; see scripts/gpu_check.sh --help" >&2; exit 2; }

all_parts=(build test kernels train memory checkpoint nccl multi predictions sanitize)
out='' work=build/gpu_check given_build='' bundle='' commit='' emulated=no resume=no seconds='' parts=()
compare='' noise=''
while (($# > 0)); do
  case "$1" in
    --part | --seconds | --compare | --noise | --out | --work | --build | --bundle | --commit)
      (($# > 1)) || usage "$1 needs a value"
      case "$1" in
        --part) parts+=("$2") ;;
        --seconds) seconds=$2 ;;
        --compare)
          [[ -n $2 ]] || usage "--compare needs a file"
          compare=$2
          ;;
        --noise) noise=$2 ;;
        --out) out=$2 ;;
        --work) work=$2 ;;
        --build) given_build=$2 ;;
        --bundle) bundle=$2 ;;
        --commit) commit=$2 ;;
      esac
      shift
      ;;
    --resume) resume=yes ;;
    --emulated) emulated=yes ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) usage "'$1' is unknown" ;;
    *) parts+=("$1") ;;
  esac
  shift
done
for part in "${parts[@]}"; do
  [[ " ${all_parts[*]} " == *" $part "* ]] || usage "'$part' is no part"
done
((${#parts[@]} > 0)) || parts=("${all_parts[@]}")
[[ $seconds =~ ^[0-9]*$ ]] || usage "--seconds $seconds is no number"
if [[ $emulated == yes ]]; then
  [[ -n $given_build ]] || usage "--emulated needs --build, where the emulated module has been built"
  [[ -n $out ]] || usage "--emulated needs --out: its page is none of a GPU"
fi
out=${out:-$work}
python=$(command -v "${PYTHON:-python3}" || true)
if [[ -n $compare ]]; then
  noise=${noise:-3}
  [[ $noise =~ ^[0-9]{1,2}(\.[0-9]+)?$ ]] || usage "--noise $noise is no percentage below 100"
  [[ -n $python ]] || usage "--compare needs python3"
  "$python" -S scripts/gpu_check/figures.py check "$compare" || usage "--compare needs the gpu.json of an earlier run"
elif [[ -n $noise ]]; then
  usage "--noise is for --compare"
fi
# What is there already keeps the parts that are not run.
if [[ -n $python && -e $out/gpu.json ]] && ! "$python" -S scripts/gpu_check/figures.py check "$out/gpu.json"; then
  usage "$out/gpu.json would be replaced: move it away, or name another folder by --out"
fi
if [[ -z $bundle && -d third_party/bundle ]]; then bundle=third_party/bundle; fi

mkdir -p "$out" "$work/parts" "$work/logs" "$work/done"
out=$(realpath "$out") work=$(realpath "$work")
if [[ -n $compare ]]; then cp "$compare" "$work/compared.json"; fi  # the run may replace it
build=${given_build:-$work/build}
if [[ -d $build ]]; then build=$(realpath "$build"); fi
if [[ -n $bundle ]]; then bundle=$(realpath "$bundle"); fi
export PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
# Named, the module must be of use: tests do not skip, and what chooses by it tests CUDA.
export TESSERA_CUDA_MODULE=$build/lib/libtessera_cuda.so
if [[ $emulated == yes ]]; then export TESSERA_CUDA_MODULE=$build/lib/libtessera_cuda_emulated.so; fi
call_ends=$((SECONDS + ${seconds:-1000000}))

source scripts/gpu_check/page.sh
source scripts/gpu_check/run.sh
source scripts/gpu_check/machine.sh
source scripts/gpu_check/build.sh
source scripts/gpu_check/test.sh
source scripts/gpu_check/kernels.sh
source scripts/gpu_check/train.sh
source scripts/gpu_check/memory.sh
source scripts/gpu_check/checkpoint.sh
source scripts/gpu_check/nccl.sh
source scripts/gpu_check/multi.sh
source scripts/gpu_check/predictions.sh
source scripts/gpu_check/sanitize.sh

import_page
machine | plain >"$work/machine.md"
cat "$work/machine.md"
printf '\nestimated s: %s\n' "$(estimates "${parts[@]}")"
for part in "${parts[@]}"; do run_part "$part"; done
finish
