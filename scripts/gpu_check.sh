#!/usr/bin/env bash
# Checks and measures this machine's GPU: builds for it, runs every CUDA test on it, measures kernels
# and training beside their limits and beside PyTorch, and writes one page of Markdown.
#
#   scripts/gpu_check.sh [options] [PART...]        default: all parts, in this order
#
#   build      the module and the programs, with nvcc, for the card that is found
#   test       every CUDA test on the real module
#   sanitize   compute-sanitizer on the small ones
#   kernels    kernels beside a copy on the device and plain cuBLASLt; AdamW beside PyTorch's
#   train      GPT-2 124M in bf16 beside PyTorch; zero3 beside ddp, 4 ranks on the card
#   memory     gpt2-large and gpt2-xl under every strategy: planned, measured, PyTorch DDP's
#   nccl       one process, several processes on the card, and one of them killed
#
#   --out FOLDER      of the page, gpu.md (default docs/benchmarks)
#   --work FOLDER     of the build, of logs and of what is kept of each part (default build/gpu_check)
#   --build FOLDER    a finished build, instead of the one of part `build`
#   --bundle FOLDER   what scripts/bundle_deps.sh filled (default third_party/bundle, if it is there)
#   --emulated        against the emulated module of --build, at tiny sizes: shows that this works
#
# It needs CUDA 12.4 or newer, CMake, a C++ compiler, NCCL (also Python's wheel of it), and for the
# comparisons a Python with PyTorch. It needs no network and installs nothing. Parts can be run by
# several calls: each replaces its own section of the page. A part gets PART_SECONDS (580), prints as
# it goes, and what fails in it is in the page; the status is then 1. It reads the card's clocks and
# changes no setting.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

all_parts=(build test sanitize kernels train memory nccl)
out='' work=build/gpu_check given_build='' bundle='' emulated=no parts=()
while (($# > 0)); do
  case "$1" in
    --out) out=${2:?--out needs a folder}; shift ;;
    --work) work=${2:?--work needs a folder}; shift ;;
    --build) given_build=${2:?--build needs a folder}; shift ;;
    --bundle) bundle=${2:?--bundle needs a folder}; shift ;;
    --emulated) emulated=yes ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *)
      if [[ " ${all_parts[*]} " != *" $1 "* ]]; then
        echo "error: '$1' is neither a part nor an option; see scripts/gpu_check.sh --help" >&2
        exit 2
      fi
      parts+=("$1")
      ;;
  esac
  shift
done
((${#parts[@]} > 0)) || parts=("${all_parts[@]}")
if [[ $emulated == yes && -z $given_build ]]; then
  echo "error: --emulated needs --build, a folder in which the emulated module has been built" >&2
  exit 2
fi
if [[ $emulated == yes && -z $out ]]; then
  echo "error: --emulated needs --out: its page is none of a GPU" >&2
  exit 2
fi
out=${out:-docs/benchmarks}
if [[ -z $bundle && -d third_party/bundle ]]; then bundle=third_party/bundle; fi

mkdir -p "$out" "$work/parts" "$work/logs"
out=$(realpath "$out") work=$(realpath "$work")
build=${given_build:-$work/build}
if [[ -d $build ]]; then build=$(realpath "$build"); fi
cuda=${CUDA_HOME:-/usr/local/cuda}
export PATH=$PATH:$cuda/bin
if [[ $emulated == yes ]]; then
  export TESSERA_CUDA_MODULE=$build/lib/libtessera_cuda_emulated.so
else
  # Named, it must be of use: tests do not skip, and what chooses by it tests CUDA.
  export TESSERA_CUDA_MODULE=$build/lib/libtessera_cuda.so
fi
python=$(command -v "${PYTHON:-python3}" || true)

# --- A part and its section of the page -----------------------------------------------------------

part='' section='' failed=0 commands=0 deadline=0

# Paths as they are in any checkout.
plain() { sed -e "s|$work|WORK|g" -e "s|$PWD/||g" -e "s|$PWD|.|g" -e "s|$HOME|~|g"; }

note() { printf '%s\n\n' "$*" | plain | tee -a "$section"; }

# not_run WHAT WHY: a gap that is no failure of this code.
not_run() { note "Not run: $1: $2."; }

# keep LINES COMMAND...: runs it, shows what it prints, and keeps the last LINES of that in the page;
# as Markdown where LINES is "table". Gives its status, which counts as a failure if it is not 0
# and $allowed is not it.
allowed=
keep() {
  local lines=$1 status=0 left=$((deadline - SECONDS))
  shift
  commands=$((commands + 1))
  local log=$work/logs/$part-$commands.log shown
  shown=$(printf '%q ' "$@" | plain)
  if ((left < 5)); then
    failed=$((failed + 1))
    note "Not run, the part's time was over: \`$shown\`"
    return 1
  fi
  printf '$ %s\n' "$shown"
  timeout --kill-after=10 "$left" "$@" 2>&1 </dev/null | tee "$log" || status=${PIPESTATUS[0]}
  {
    printf '```\n$ %s\n' "$shown"
    if [[ $lines == table && $status == 0 ]]; then
      printf '```\n\n'
      plain <"$log"
    else
      if [[ $lines == table ]]; then lines=20; fi
      if (($(wc -l <"$log") > lines)); then echo "..."; fi
      tail -n "$lines" "$log" | plain
      if ((status == 124)); then echo "(stopped: the part's time was over)"; fi
      if ((status != 0)); then echo "(status $status)"; fi
      printf '```\n'
    fi
    echo
  } >>"$section"
  if ((status != 0)) && [[ " $allowed " != *" $status "* ]]; then
    echo "(status $status)"
    failed=$((failed + 1))
  fi
  return "$status"
}

# Whether Python has a PyTorch with the attention that is compared; says so in the page if not.
has_torch() {
  if "${python:-false}" -c 'from torch.nn.functional import scaled_dot_product_attention' \
    2>/dev/null; then
    return 0
  fi
  not_run "$1" "no python3 with PyTorch 2"
  return 1
}
torch_device=cuda
if [[ $emulated == yes ]]; then torch_device=cpu; fi

median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

# field NAME LOG: the median of a number over the later half of a run's steps.
field() { sed -n "s/.*\"$1\":\\([0-9.e+-]*\\).*/\\1/p" "$2" | tail -n "$((($(wc -l <"$2") + 1) / 2))" | median; }

# --- The machine ----------------------------------------------------------------------------------

has_card() { [[ $emulated == no ]] && command -v nvidia-smi >/dev/null; }

card() { nvidia-smi --query-gpu="$1" --format=csv,noheader | head -n 1; }

# As nvcc wants it: 90.
architecture() {
  local capability=
  if has_card; then capability=$(card compute_cap 2>/dev/null || true); fi
  if [[ ! $capability =~ ^[0-9]+\.[0-9]+$ ]]; then
    cat >"$work/probe.cu" <<'END'
#include <cstdio>
int main() {
  int major = 0, minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) != cudaSuccess) {
    return 1;
  }
  std::printf("%d.%d\n", major, minor);
}
END
    nvcc -o "$work/probe" "$work/probe.cu" && capability=$("$work/probe")
  fi
  if [[ ! $capability =~ ^[0-9]+\.[0-9]+$ ]]; then return 1; fi
  echo "${capability/./}"
}

# Where a wheel of Python has its folder NAME: nccl or cudnn.
wheel() { "${python:-false}" -c "import nvidia.$1 as n; print(list(n.__path__)[0])" 2>/dev/null || true; }

# What CMake is told of NCCL and cuDNN, which may be in wheels of Python alone: options, one a line.
library_options() {
  local nccl cudnn
  nccl=$(wheel nccl) cudnn=$(wheel cudnn)
  if [[ -f $nccl/include/nccl.h && -f $nccl/lib/libnccl.so.2 ]]; then
    printf '%s\n' "-DTESSERA_NCCL_INCLUDE=$nccl/include" "-DTESSERA_NCCL_LIBRARY=$nccl/lib/libnccl.so.2"
  fi
  if [[ -f $cudnn/include/cudnn.h && -f $cudnn/lib/libcudnn.so.9 ]]; then
    printf '%s\n' "-DTESSERA_CUDNN_INCLUDE=$cudnn/include" \
      "-DTESSERA_CUDNN_LIBRARY=$cudnn/lib/libcudnn.so.9"
  fi
  if [[ -n $bundle && -f $bundle/include/cudnn_frontend.h ]]; then
    echo "-DTESSERA_CUDNN_FRONTEND=$(realpath "$bundle")/include"
  fi
}

version_of() { { "$@" 2>/dev/null || echo "not found"; } | tail -n 1; }

machine() {
  printf '| | |\n|---|---|\n'
  if [[ $emulated == yes ]]; then
    echo "| device | **emulated on the processor: the numbers below mean nothing** |"
  elif has_card; then
    echo "| device | $(card name), $(card memory.total), compute capability $(card compute_cap) |"
    echo "| driver | $(card driver_version) |"
    echo "| clocks at the start, SM and memory | $(card clocks.sm), $(card clocks.mem); at most $(card clocks.max.sm), $(card clocks.max.mem) |"
  else
    echo "| device | no nvidia-smi |"
  fi
  echo "| processor | $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores |"
  echo "| nvcc | $(version_of nvcc --version) |"
  echo "| compiler, CMake | $(c++ --version 2>/dev/null | head -n 1); $(cmake --version | head -n 1) |"
  echo "| PyTorch | $(version_of "${python:-false}" -c 'import torch
print(torch.__version__, "with CUDA", torch.version.cuda)') |"
  if [[ -d .git ]] && command -v git >/dev/null; then
    echo "| commit | $(git rev-parse --short HEAD 2>/dev/null || echo unknown) |"
  fi
}

# --- Parts ----------------------------------------------------------------------------------------

part_build() {
  if [[ -n $given_build ]]; then
    note "A finished build was named: nothing is compiled."
  else
    local arch options=(-DCMAKE_BUILD_TYPE=Release -DTESSERA_CUDA=ON -DTESSERA_BUILD_BENCH=OFF
      -DTESSERA_BUILD_EXAMPLES=OFF -DTESSERA_MPI=OFF -DTESSERA_EMULATED_CUDA=OFF)
    if ! arch=$(architecture); then
      failed=1
      note "No compute capability: neither nvidia-smi nor a small CUDA program finds a device."
      return
    fi
    options+=("-DTESSERA_CUDA_ARCHITECTURES=$arch-real")
    if [[ -n $bundle ]]; then options+=("-DTESSERA_BUNDLE=$(realpath "$bundle")"); fi
    if command -v ninja >/dev/null; then options+=(-G Ninja); fi
    local libraries
    mapfile -t libraries < <(library_options)
    keep 12 cmake -S . -B "$build" "${options[@]}" "${libraries[@]}" || return 0
    keep 12 cmake --build "$build" --parallel "$(nproc)" --target tessera_command tessera_cuda \
      tessera_cuda_bench test_cuda test_cuda_comm test_cuda_parity test_cuda_cli || return 0
  fi
  keep 60 "$build/tools/tessera" doctor || return 0
  if ! grep -q 'cuda:0' "$work/logs/$part-$commands.log"; then
    failed=$((failed + 1))
    note "No CUDA device can be used: see \`not usable\` above."
  fi
}

# Test programs of the CUDA module that have been built.
test_programs() { find "$build/tests" -maxdepth 2 -type f -perm -u+x -name 'test_cuda*' | sort; }

# Suites, one a line: each has a process of its own, so that one that crashes takes no other along.
suites_of() { "$1" --gtest_list_tests | sed -n 's/^\([^ #]*\)\..*/\1/p'; }

part_test() {
  local program suite programs suites log
  mapfile -t programs < <(test_programs)
  if ((${#programs[@]} == 0)); then
    failed=1
    note "There are no test programs in $build: run part build first."
    return
  fi
  : >"$work/skipped"
  printf '| suite | passed | skipped | failed | s |\n|---|---|---|---|---|\n' >"$work/suites"
  for program in "${programs[@]}"; do
    mapfile -t suites < <(suites_of "$program")
    if ((${#suites[@]} == 0)); then
      failed=$((failed + 1))
      echo "| $(basename "$program") | cannot be started | | | |" >>"$work/suites"
      continue
    fi
    if [[ $emulated == yes ]]; then suites=("${suites[0]}"); fi
    for suite in "${suites[@]}"; do run_suite "$program" "$suite"; done
    if [[ $emulated == yes ]]; then break; fi
  done
  if ! grep -q '| [1-9][0-9]* | [0-9]* | [0-9]* | [0-9]* |$' "$work/suites"; then
    failed=$((failed + 1))
    note "No test has passed."
  fi
  plain <"$work/suites" >>"$section"
  echo >>"$section"
  if [[ -s $work/skipped ]]; then
    note "Skipped, with the reasons that the tests give:"
    sort "$work/skipped" | uniq | sed 's/^/- /' | plain | tee -a "$section"
    echo >>"$section"
  fi
}

run_suite() {
  local program=$1 suite=$2 status=0 begin=$SECONDS left=$((deadline - SECONDS))
  local log=$work/logs/test-${program##*/}-${suite//\//-}.log
  if ((left < 5)); then
    failed=$((failed + 1))
    echo "| $suite | not run: the part's time was over | | | |" >>"$work/suites"
    return
  fi
  timeout --kill-after=10 "$left" "$program" --gtest_filter="$suite.*" --gtest_color=no \
    >"$log" 2>&1 </dev/null || status=$?
  local passed skipped wrong
  passed=$(grep -c '^\[       OK ' "$log" || true)
  skipped=$(grep -c '^\[  SKIPPED \] .*(' "$log" || true)
  wrong=$(grep -c '^\[  FAILED  \] .*(' "$log" || true)
  printf '%s.%s: %s passed, %s skipped, %s failed\n' "$(basename "$program")" "$suite" \
    "$passed" "$skipped" "$wrong"
  echo "| $suite | $passed | $skipped | $wrong | $((SECONDS - begin)) |" >>"$work/suites"
  awk '/: Skipped$/ { getline; reason = $0 }
       /^\[  SKIPPED \] .*\(/ { print $4 ": " reason }' "$log" >>"$work/skipped"
  if ((status != 0)); then
    failed=$((failed + 1))
    { printf '`%s` ended with status %s:\n\n```\n' "$suite" "$status"
      grep -v '^\[       OK \|^\[ RUN ' "$log" | tail -n 30
      printf '```\n\n'; } | plain | tee -a "$section"
  fi
}

part_sanitize() {
  if [[ $emulated == yes ]] || ! command -v compute-sanitizer >/dev/null; then
    not_run "compute-sanitizer" "there is none, or no device for it"
    return
  fi
  local program=$build/tests/cuda/test_cuda tool
  # Racecheck sees shared memory alone: the kernels that sum in it.
  local sums='*SquaredNorm*:*LayerNorm*:*CrossEntropy*:*Bias*:*Attention*:*Embedding*'
  local kernels="$sums:*Add*:*Cast*:*Accumulate*:*Update*:*Gelu*:*Dropout*:*Normal*:*NonFinite*:*StepScalars*:*Combine*"
  declare -A filters=([memcheck]="$kernels" [racecheck]="$sums" [initcheck]="$kernels" [synccheck]="$sums")
  for tool in memcheck racecheck initcheck synccheck; do
    keep 12 compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 "$program" \
      --gtest_brief=1 --gtest_filter="${filters[$tool]}" || true
  done
}

part_kernels() {
  local program=$build/bench/cuda/tessera_cuda_bench small=() elems=500000000
  if [[ $emulated == yes ]]; then small=(--small) elems=1000; fi
  local group
  for group in adamw memory attention products collectives; do
    keep table "$program" "${small[@]}" "$group" || true
  done
  if has_torch "AdamW in PyTorch"; then
    keep table "$python" bench/peers/torch_adamw.py --device "$torch_device" --parameters "$elems" || true
  fi
}

# Random tokens, a file of uint16: a text's bytes would be of 256 kinds only.
tokens() {
  local file=$work/tokens.bin
  if [[ ! -s $file ]]; then
    "${python:-false}" -c "
import array, random
random.seed(1)
array.array('H', (random.randrange($1) for _ in range(2_000_000))).tofile(open('$file', 'wb'))"
  fi
  echo "$file"
}

# train NAME OPTION...: a run of the command, its log in $work/NAME.jsonl.
train() {
  local name=$1
  shift
  rm -f "$work/$name.jsonl"
  keep 25 "$build/tools/tessera" train --device cuda "${data[@]}" "${model[@]}" --precision bf16 \
    --log "$work/$name.jsonl" "$@"
}

gpt2_model() {
  if [[ $emulated == yes ]]; then
    model=(--layers 1 --hidden 16 --heads 2 --seq 8 --vocab 256) data=(--data README.md)
    shape=(--layers 1 --hidden 16 --heads 2 --seq 8 --vocab 256) batches=(2 1) steps=4
  else
    model=(--model gpt2) data=(--tokens "$(tokens 50257)")
    shape=(--layers 12 --hidden 768 --heads 12 --seq 1024 --vocab 50257)
    batches=(64 32 16 8) steps=30
  fi
}

# The largest of the batches that fits, a run of it as $work/single.jsonl, in $batch.
train_single() {
  allowed=3 # does not fit
  for batch in "${batches[@]}"; do
    if train single --batch "$batch" --steps "$steps" --graph; then break; fi
  done
  allowed=
}

part_train() {
  local model data shape batches batch steps ours peer
  gpt2_model
  train_single
  if [[ ! -s $work/single.jsonl ]]; then return; fi
  ours=$(field tokens_per_second "$work/single.jsonl")
  peer="not run"
  if has_torch "the same model in PyTorch"; then
    local compile=(--compile)
    if [[ $emulated == yes ]]; then compile=(); fi
    if keep 12 "$python" bench/peers/torch_gpt.py --device "$torch_device" "${shape[@]}" \
      --batch "$batch" --steps "$steps" "${compile[@]}"; then
      peer=$(sed -n 's/.*"tokens_per_second": \([0-9.]*\).*/\1/p' "$work/logs/$part-$commands.log")
    fi
  fi
  note "| one rank, batch $batch | tokens/s, median of the later half |
|---|---|
| tessera | $ours |
| PyTorch | $peer |"
  compare_sharded "$(((batch + 3) / 4))"
}

# zero3 beside ddp, 4 ranks that share the card.
compare_sharded() {
  local strategy rows="| 4 ranks on the card, batch $1 each | s a step, median | peak bytes a rank |
|---|---|---|"
  for strategy in ddp zero3; do
    train "$strategy" --batch "$1" --ranks 4 --strategy "$strategy" --steps "$(((steps + 1) / 2))" || continue
    rows+="
| $strategy | $(field seconds "$work/$strategy.jsonl") | $(sed -n 's/.*"peak_bytes":\(\[[^]]*\]\).*/\1/p' "$work/$strategy.jsonl" | tail -n 1) |"
  done
  note "$rows"
}

# compared NAME RANKS BATCH OPTION...: every strategy by itself, since not all may fit.
compared() {
  local name=$1 ranks=$2 batch=$3 strategy
  shift 3
  for strategy in ddp zero1 zero2 zero3; do
    allowed=3
    keep 30 "$build/tools/tessera" compare --device cuda "${data[@]}" "$@" --ranks "$ranks" \
      --batch "$batch" --precision bf16 --steps 2 --strategies "$strategy" \
      --json "$work/$name-$strategy.json" || true
    allowed=
    planned_beside_measured "$name, $ranks ranks, $strategy" "$work/$name-$strategy.json"
  done
}

planned_beside_measured() {
  [[ -s $2 && -n $python ]] || return 0
  "$python" - "$1" "$2" <<'END' | tee -a "$section" || failed=$((failed + 1))
import json, sys
name, path = sys.argv[1:]
for strategy in json.load(open(path))["strategies"]:
    measured = [rank["peak_bytes"] for rank in strategy["ranks"]]
    planned = [rank["planned_peak_bytes"] for rank in strategy["ranks"]]
    if measured == planned:
        print(f"{name}: at most {max(measured)} bytes a rank, as planned on every rank\n")
    else:
        print(f"{name}: {measured} bytes, but planned {planned}\n")
        sys.exit(1)
END
}

part_memory() {
  local data model shape batches steps
  gpt2_model
  local large=(--model gpt2-large) xl=(--model gpt2-xl)
  local large_shape=(--layers 36 --hidden 1280 --heads 20 --seq 1024 --vocab 50257)
  if [[ $emulated == yes ]]; then large=("${model[@]}") xl=("${model[@]}") large_shape=("${shape[@]}"); fi
  rm -f "$work"/gpt2-*.json
  compared gpt2-large 4 1 "${large[@]}"
  if has_torch "gpt2-large under PyTorch DDP"; then
    keep 8 "$python" bench/peers/torch_gpt.py --device "$torch_device" --ddp "${large_shape[@]}" \
      --batch 1 --steps 3 || true
  fi
  compared gpt2-xl 8 1 "${xl[@]}" --recompute block
  # What the device reports beside what the library holds.
  keep 40 "$build/tools/tessera" train --device cuda "${data[@]}" "${large[@]}" --precision bf16 \
    --batch 1 --steps 2 || true
}

part_nccl() {
  local model data shape batches steps
  gpt2_model
  local command=("$build/tools/tessera" train --device cuda "${data[@]}" "${model[@]}"
    --precision bf16 --batch 2 --strategy zero3 --comm nccl)
  keep 25 env RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29571 \
    "${command[@]}" --steps 4 || true
  if [[ ! -x scripts/nccl_one_gpu.sh ]]; then
    not_run "several processes on one card" "scripts/nccl_one_gpu.sh is not there"
    return
  fi
  keep 25 scripts/nccl_one_gpu.sh -n 2 "${command[@]}" --steps 4 || true
  keep 25 bash -c 'scripts/nccl_one_gpu.sh -n 2 "$@" & job=$!
    sleep "${KILL_AFTER:-20}"
    victim=$(pgrep -P "$job" | head -n 1)
    kill -KILL "$victim" && echo "killed one process"
    begin=$SECONDS; wait "$job"; status=$?
    echo "the others have left after $((SECONDS - begin)) s, status $status"
    ((status != 0 && SECONDS - begin <= 10))' killer "${command[@]}" --steps 1000000 || true
}

# --- The page -------------------------------------------------------------------------------------

titles() {
  case "$1" in
    build) echo "Build" ;;
    test) echo "Tests" ;;
    sanitize) echo "compute-sanitizer" ;;
    kernels) echo "Kernels" ;;
    train) echo "Training" ;;
    memory) echo "Memory" ;;
    nccl) echo "NCCL" ;;
  esac
}

write_page() {
  local each
  {
    printf '# A GPU, checked and measured\n\n'
    printf 'Written by `scripts/gpu_check.sh`; WORK is its folder. Each section is of the last run of its part.\n\n'
    cat "$work/machine.md"
    for each in "${all_parts[@]}"; do
      printf '\n## %s\n\n' "$(titles "$each")"
      if [[ -f $work/parts/$each.md ]]; then cat "$work/parts/$each.md"; else echo "Not run."; fi
    done
  } | cat -s >"$work/page.md"
  mv "$work/page.md" "$out/gpu.md"
}

machine | plain >"$work/machine.md"
cat "$work/machine.md"
status=0
for part in "${parts[@]}"; do
  printf '\n== %s\n' "$part"
  section=$work/parts/$part.unfinished failed=0 commands=0
  deadline=$((SECONDS + ${PART_SECONDS:-580})) began=$SECONDS
  printf '`scripts/gpu_check.sh %s`, %s\n\n' "$part" "$(date -u +'%Y-%m-%d %H:%M UTC')" >"$section"
  "part_$part"
  if ((failed > 0)); then
    status=1
    note "**$failed failed** in $((SECONDS - began)) s."
  else
    note "Done in $((SECONDS - began)) s."
  fi
  mv "$section" "$work/parts/$part.md"
  write_page
done
echo "the page: $out/gpu.md"
exit "$status"
