#!/usr/bin/env bash
# Checks and measures this machine's GPU: builds for it, runs every CUDA test on it, compares
# kernels and training with their limits and with PyTorch, judges them by bars, and writes one page
# of Markdown and its figures as JSON.
#
#   scripts/gpu_check.sh [options] [PART...]        default: all parts, in this order
#
#   part       s   what
#   build    240   the module and the programs, with nvcc, for the card that is found
#   test     200   every CUDA test on the real module; losses compared with the processor's
#   kernels  210   kernels compared with a copy on the device and plain cuBLASLt; AdamW with PyTorch's;
#                  records cuBLASLt's fastest algorithms for gpt2 and gpt2-xl in products.json beside the
#                  page, about 35 s each
#   train    440   GPT-2 124M in bf16 compared with PyTorch; gpt2-xl with options that save memory, compared
#                  with PyTorch; gpt2-large with offload; zero3 with ddp, 4 ranks on the card
#   memory   300   gpt2-large and gpt2-xl under every strategy: planned, measured, PyTorch DDP's
#   checkpoint 120   resumed runs compared with uninterrupted ones; a step during a save
#   nccl     400   jobs of one process and of several on the card, their tests, and a process killed
#   multi    400   2 and more GPUs: bandwidth of collectives, zero3 and hybrid compared with ddp, hidden gathers
#   predictions 150   figures compared with those before a change; options switched on and off
#   plans     10   steps that parts train and predictions measured, compared with plans by a profile of
#                  the figures of part kernels; uses no GPU
#   sanitize 400   compute-sanitizer on the tests of kernels
#
#   --part PART       the same as PART
#   --seconds N       at most N seconds for all parts of this call
#   --resume          skips the parts, and the commands of a part, that are done for this build;
#                     so repeating the same call finishes all parts
#   --compare FILE    an older gpu.json: reports what got faster or slower since; the status stays the same
#   --noise PERCENT   difference up to which speeds and times count as the same (default 3)
#   --out FOLDER      for the page, gpu.md, and its figures, gpu.json (default: that of --work)
#   --work FOLDER     for the build, logs and results of each part (default build/gpu_check)
#   --build FOLDER    a finished build, so that part `build` compiles nothing; the CUDA trainer must be
#                     FOLDER/cuda_trainer, built as docs/cuda-trainer.md says, or is not measured
#   --bundle FOLDER   the folder that scripts/bundle_deps.sh filled (default third_party/bundle, if it exists)
#   --commit TEXT     the commit that the page names, if git does not know it
#   --emulated        runs against the emulated module of --build, at tiny sizes, to test this script
#
# The seconds are estimates for 16 cores and a large card, and add up to more than half an hour.
# docs/gpu-check.md has the calls for a machine that you have for half an hour. PART_SECONDS (580)
# limits each part. Several calls may run different parts: each replaces its own section of the page,
# even one that another machine wrote. PYTHON names a Python with PyTorch.
#
# Needs CUDA 12.4 or newer, CMake, a C++ compiler, NCCL (Python's wheel will do), Python for the
# figures as JSON and for --compare, and PyTorch to compare with it. It needs no network, installs
# nothing, and reads the card's clocks but changes no setting.
#
# Every bar is printed as "met", "NOT met", "not measured" (and why), or "refused" by NCCL; a figure
# without a bar is "measured". Status 0: all is well; 1: a command or a test failed; 2: wrong usage;
# 3: nothing failed, but a bar was not met; 4: nothing failed or missed its bar, but time ran out.
# The speeds of an emulated device are printed and do not affect the status.
set -euo pipefail
export LC_ALL=C  # awk and printf read and write numbers with a point

cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { echo "error: $1; see scripts/gpu_check.sh --help" >&2; exit 2; }

all_parts=(build test kernels train memory checkpoint nccl multi predictions plans sanitize)
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
  [[ " ${all_parts[*]} " == *" $part "* ]] || usage "'$part' is not a part"
done
((${#parts[@]} > 0)) || parts=("${all_parts[@]}")
[[ $seconds =~ ^[0-9]*$ ]] || usage "--seconds: '$seconds' is not a whole number"
if [[ $emulated == yes ]]; then
  [[ -n $given_build ]] || usage "--emulated needs --build, a build with the emulated module"
  [[ -n $out ]] || usage "--emulated needs --out, so that its page replaces no page of a GPU"
fi
out=${out:-$work}
python=$(command -v "${PYTHON:-python3}" || true)
if [[ -n $compare ]]; then
  noise=${noise:-3}
  [[ $noise =~ ^[0-9]{1,2}(\.[0-9]+)?$ ]] || usage "--noise: '$noise' is no percentage below 100"
  [[ -n $python ]] || usage "--compare needs python3"
  "$python" -S scripts/gpu_check/figures.py check "$compare" || usage "--compare needs the gpu.json of an earlier run"
elif [[ -n $noise ]]; then
  usage "--noise is for --compare"
fi
# An existing document keeps the parts that this call does not run.
if [[ -n $python && -e $out/gpu.json ]] && ! "$python" -S scripts/gpu_check/figures.py check "$out/gpu.json"; then
  usage "$out/gpu.json would be replaced: move it away, or name another folder with --out"
fi
if [[ -z $bundle && -d third_party/bundle ]]; then bundle=third_party/bundle; fi

mkdir -p "$out" "$work/parts" "$work/logs" "$work/done"
out=$(realpath "$out") work=$(realpath "$work")
if [[ -n $compare ]]; then cp "$compare" "$work/compared.json"; fi  # the run may replace it
build=${given_build:-$work/build}
if [[ -d $build ]]; then build=$(realpath "$build"); fi
if [[ -n $bundle ]]; then bundle=$(realpath "$bundle"); fi
export PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
# A named module must be usable: tests then do not skip, and tests that look for a module use CUDA.
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
source scripts/gpu_check/large_models.sh
source scripts/gpu_check/memory.sh
source scripts/gpu_check/checkpoint.sh
source scripts/gpu_check/nccl.sh
source scripts/gpu_check/multi.sh
source scripts/gpu_check/predictions.sh
source scripts/gpu_check/plans.sh
source scripts/gpu_check/sanitize.sh

import_page
machine | plain >"$work/machine.md"
cat "$work/machine.md"
printf '\nestimated s: %s\n' "$(estimates "${parts[@]}")"
for part in "${parts[@]}"; do run_part "$part"; done
finish
