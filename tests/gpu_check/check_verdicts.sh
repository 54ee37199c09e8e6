#!/usr/bin/env bash
# Tests the results of scripts/gpu_check.sh: verdicts, failures, batches, refusals, figures and
# status.
#
#   check_verdicts.sh SCRATCH
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

source tests/gpu_check/made_up_machine.sh

all_is_well() {
  check 0 FAKE_GPUS=2 --
  has '^\| met ' 'AdamW, fp32' '0.952 \(4000 GB/s'
  has '^\| met ' 'torch.optim' "4000 GB/s, PyTorch's 3900"
  has '^\| met ' 'matrix products' '0.986, the least of 3: c_fc dW'
  has '^\| met ' 'squared norms, layer norm backward' '0.81 squared norm, bf16'
  has '^\| met ' 'largest batch up to 64' 'tessera 1000, PyTorch 800.0, both at batch 64'
  has '^\| met ' 'at least 1.15 of' '1.25 by a plain step, goal 1.25 reached; tessera 1000 by a plain step, 1000 by one with recorded products'
  has '^\| met ' 'at least 1.08 of' '1.25: tessera 1000 tokens/s and 7 bytes by remainders; 1000 with recorded products; PyTorch 800.0 and 2000000'
  has '^\| met ' 'at least 5 within 10 %' '9 of 10 within 10 %' 'not: train: --offload state -33.3 %;' \
    'not planned: train: --offload optimizer; predictions: GPT-2 on one rank, --graph'
  has '^\| met ' 'offload optimizer' '2 times: 0.2 s, without 0.1 s; by 16 threads a rank'
  has '^\| met ' 'planned' '12 of 12 runs' 'tessera compare .*gpt2-large'
  has '^\| met ' 'unattributed' '1048576'
  has '^\| met ' 'killed' '2 of 2 named it'
  has '^\| met ' 'memcheck'
  has '^\| zero1 ' '2 MiB'
  has '^\| hybrid ' '2 MiB'
  has '^\| met ' 'bit-identical' 'hybrid at most 3.0e-08 apart' 'compare .*--ranks 8 --shard-group 4'
  has 'before: SM 1980 MHz, memory 2619 MHz, 400.0 W, 50 C, held by software power cap\+software thermal slowdown'
  has 'commit some commit'
  has_not '^\| (NOT met|refused|not measured) '
  [[ $(calls 'tessera train .*--model gpt2 .*--batch 64') == 4 ]] || fail "not one search and three measurements at batch 64"
  # The figures are a fixed list, except for measured times.
  figures_of "$scratch/gpu.json" | sed 's/ [0-9]* | ms / MS | ms /' |
    diff tests/gpu_check/figures.txt - >>"$scratch/output" || fail "the figures are others"

  # A later call without time does not repeat earlier figures.
  KEEP=1 check 4 PART_SECONDS=4 --
  has_not '^\| (met|NOT met|refused|measured) '
  [[ -z $(figures_of "$scratch/gpu.json") ]] || fail "there are figures of what was not measured"
}

# An interrupted and resumed part gives the results of one run.
verdicts_of() { grep -E '^\| (met|NOT met|not measured|measured|refused) ' "$scratch/gpu.md"; }
resumed() {
  check 0 -- "$@"
  verdicts_of >"$scratch/in_one_go"
  figures_of "$scratch/gpu.json" >"$scratch/figures_in_one_go"
  KEEP=1 check 4 PART_SECONDS=10 FAKE_SLOW_SECONDS=6 FAKE_SLOW='tessera train .*--device cuda .*--steps (50|30)|--strategies zero1' -- "$@"
  has_not '^\| NOT met '
  cp "$scratch/gpu.md" "$scratch/cut.md"
  KEEP=1 check 0 -- --resume "$@"
  verdicts_of | diff "$scratch/in_one_go" - >>"$scratch/output" || fail "resumed, the verdicts are others"
  figures_of "$scratch/gpu.json" | diff "$scratch/figures_in_one_go" - >>"$scratch/output" ||
    fail "resumed, the figures are others"
}
resumed_training() { resumed test train; }
resumed_memory() {
  resumed memory
  [[ $(calls 'compare .*gpt2-large .*--strategies dp ') == 0 ]] || fail "a command that was done has been run again"
  mv "$scratch/cut.md" "$scratch/gpu.md"
  has '^\| not measured ' 'planned' 'the same in [123] of 12 runs'
  has '^\| not measured ' 'unattributed' 'in [123] of 12 runs'
}

no_time_at_all() {
  check 4 PART_SECONDS=4 -- kernels memory nccl
  has_not '^\| (met|NOT met|refused|measured) |\*\*'
}

# Parts for several GPUs run on machines with several GPUs. Each option is compared with none.
several_gpus() {
  check 0 -- multi
  for each in bandwidth 'zero3 and hybrid beside ddp' 'gathers that run' channel-priority spare max-ctas windows; do
    has '^\| not measured ' "$each" 'one GPU'
  done
  [[ $(calls '^(tessera|tessera_cuda_bench) ') == 0 ]] || fail "one GPU has been measured as several"
  check 0 FAKE_GPUS=4 -- multi
  has '^\| measured ' 'bus bandwidth' 'all_gather: 350.25 GB/s of 4 ranks, 268435456 bytes'
  has '^\| measured ' 'beside ddp' 'ddp: 0.1 s, 7 bytes; zero3: 0.1 s, 7 bytes; hybrid: 0.1 s'
  has '^\| measured ' 'gathers that run' '0.700 of their time'
  has '^\| measured ' 'channel-priority' '0.1 s, without 0.1 s; all_gather: 350.25'
  has '^\| measured ' 'spare-multiprocessors' '0.1 s, without 0.1 s \|'
  [[ $(calls 'train .*--strategy zero3 .*--spare-multiprocessors 8') == 4 ]] || fail "not every rank spares any"
  [[ $(calls 'train .*--strategy zero3 .*--nccl-windows') == 4 ]] || fail "not every rank has the option"
  [[ $(calls '^tessera_cuda_bench nccl --max-ctas 8$') == 4 ]] || fail "the benchmark has not the option"
  [[ $(calls 'hybrid --steps 12 .*--shard-group 2') == 4 ]] || fail "hybrid has no two groups"
  # A library without an option is named; the other options are still measured.
  check 1 FAKE_GPUS=3 FAKE_REFUSES=--nccl-windows -- multi
  has '^\| not measured ' 'windows' 'status 2: error: --nccl-windows: NCCL 2.26.5 is too old'
  has '^\| measured ' 'max-ctas'
}

predicted() {
  check 0 -- predictions
  has '^\| squared norm, bf16 \| 2390 GB/s \| 2390 GB/s \| 1 \|'
  has '^\| measured ' 'ms a step; 128.2 before' '100 ms'
  has '^\| --graph \| 100 \| 100 \|'
  has '^\| --recompute block \| 100 \| 100 \|'
  has '^\| --recompute gelu \| this build has no such option'
}

# A missed bar is no failure.
missed_bars() {
  check 3 FAKE_ADAMW_RATIO=0.85 FAKE_PRODUCT=0.96 FAKE_ADAMW=3800 FAKE_MOVED=0.79 -- kernels
  has '^\| NOT met ' 'AdamW, fp32' '0.85' 'tessera_cuda_bench adamw'
  has '^\| NOT met ' 'torch.optim'
  has '^\| NOT met ' 'matrix products' '0.96'
  has '^\| NOT met ' 'squared norms, layer norm backward' '0.79 cross entropy, bf16'
  has '^\| met ' 'AdamW, bf16'
  has_not 'Failed'
  figures_of "$scratch/gpu.json" | grep -F "0.85 | ratio | adamw_fp32 | NOT met" >>"$scratch/output" ||
    fail "the figure has not its verdict"
  check 3 FAKE_OFFLOADED=0.36 FAKE_OURS_FITS=8 -- train
  has '^\| NOT met ' 'offload optimizer' '3.6 times: 0.36 s, without 0.1 s'
  check 1 FAKE_TRAINER=0.5 FAKE_TRAINER_STATUS=1 -- test
  has '^\| NOT met ' 'plain and wrapped' '0.5 of the loss apart'
  check 3 FAKE_LOSS=5.6 FAKE_BITS=different -- test
  has '^\| NOT met ' 'fp32 losses' '0.1 apart'
  has '^\| NOT met ' 'bit-identical'
  check 3 FAKE_APART=1.1e-05 -- test
  has '^\| NOT met ' 'bit-identical' 'of N = 1 2 4 8 only 1 2'
  check 3 FAKE_PEAK=1001 FAKE_UNATTRIBUTED=67108864 -- memory
  has '^\| NOT met ' 'planned' 'ddp of 4 ranks: \[1001\], planned \[1000\]'
  has '^\| NOT met ' 'unattributed'
}

# The goals beside PyTorch: the fastest run counts, and is named.
beside_torch() {
  check 3 FAKE_THEIRS=950 -- train
  has '^\| met ' 'fits both' 'tessera 1000, PyTorch 950.0'
  has '^\| NOT met ' 'at least 1.15 of' '1.053 by a plain step, goal 1.25 not reached; tessera 1000 by a plain step, none by one with'
  has '^\| NOT met ' 'at least 1.08 of' '1.053: tessera 1000 tokens/s and 7 bytes by remainders; no figure with recorded products'
  check 0 FAKE_THEIRS=850 FAKE_FAST=--graph -- train
  has '^\| met ' 'at least 1.15 of' '1.529 by a step as one graph, goal 1.25 reached' '--steps 30 .*--graph'
  check 0 FAKE_THEIRS=850 -- train
  has '^\| met ' 'at least 1.15 of' '1.176 by a plain step, goal 1.25 not reached'
  # Recorded products, and an option that is fast and small; a fast one that is not small does not count.
  check 0 FAKE_FAST='--products|remainder --steps|--recompute gelu --steps' FAKE_HEAVY='remainder --steps|--head-rows' -- kernels train
  has '^\| met ' 'at least 1.15 of' '1.625 by a step with recorded products, goal' '1000 by a plain step, 1300 by one' '--products'
  has '^\| met ' 'at least 1.08 of' '1.625: tessera 1300 tokens/s and 7 bytes by remainders, --recompute gelu; 1300 with recorded products'
  [[ $(calls '^tessera_cuda_bench --choose .* gpt2:64 gpt2-xl:8$') == 1 ]] || fail "not the products of both trainings"
  [[ $(calls '--model gpt2-xl .*--recompute gelu --products') == 1 ]] || fail "not the fastest of the small runs has recorded products"
  # Another work folder takes the recorded products from beside the page.
  rm -r "$scratch/work"
  KEEP=1 check 0 -- train
  has '^\| met ' 'at least 1.15 of' '1000 by a plain step, 1000 by one with recorded products'
  check 3 FAKE_HEAVY='--master-weights' -- train
  has '^\| NOT met ' '--recompute layer-norm' 'tessera 3000000 bytes, PyTorch 2000000'
  has '^\| NOT met ' 'at least 1.08 of' "no run holds fewer bytes than PyTorch's 2000000: remainders 3000000; remainders, --recompute layer"
  # A run that fails does not keep the others from being judged.
  check 1 FAKE_KILLED='--recompute gelu --steps|layer-norm --steps' -- train
  has '^\| not measured ' '--recompute layer-norm' 'it failed, status 137'
  has '^\| met ' 'at least 1.08 of' 'by remainders'
  check 0 FAKE_NO_TORCH=1 -- train
  has '^\| not measured ' 'at least 1.15 of' 'no python3 with PyTorch 2; tessera 1000 by a plain step'
  has '^\| not measured ' 'at least 1.08 of' 'no python3 with PyTorch 2; tessera 1000 tokens/s and 7 bytes by remainders'
}

# A run that had no time might have been the fastest.
no_time_for_the_fastest() {
  check 3 FAKE_THEIRS=950 FAKE_SLOW='remainder --products' FAKE_SLOW_SECONDS=40 PART_SECONDS=35 -- kernels train
  has '^\| NOT met ' 'at least 1.15 of' '1.053 by a plain step'
  has '^\| not measured ' 'at least 1.08 of' 'not all was run: 1.053: tessera 1000 tokens/s and 7 bytes by remainders; no figure with'
}

# Plans are compared with the steps of one device, in whichever calls they were measured.
planned_steps() {
  check 0 -- plans
  has '^\| not measured ' 'at least 5 within' 'no figures of part kernels: run it first'
  check 0 -- kernels plans
  has '^\| not measured ' 'at least 5 within' 'no steps of parts train and predictions: run them first'
  check 0 -- kernels predictions plans
  has '^\| not measured ' 'at least 5 within' 'fewer than 5 steps' '2 of 2 within 10 %; not planned: predictions: GPT-2 on one rank, --graph'
  # More figures are there: the part runs again.
  KEEP=1 check 0 -- --resume train plans
  has '^\| met ' 'at least 5 within' '9 of 10 within 10 %; not: '
  has '^\| train: remainders, --recompute gelu \| gpt2-xl, batch 8 \| 100 \| 100 \| \+0.0 % \|'
  has '^\| train: --offload optimizer \| gpt2-large, batch 8 \| 200 \| none: error: --time cannot plan'
  KEEP=1 check 0 -- --resume train plans
  [[ $(calls '^tessera ') == 0 ]] || fail "a part that was done has been run again"
  # Nine of ten are not enough if the step without options is not among them.
  KEEP=1 check 3 FAKE_PLANNED_GPT2=50 -- plans
  has '^\| NOT met ' 'at least 5 within' '8 of 10 within 10 %; not: train: GPT-2 on one rank -23.7 %'
  # Other recorded products: their steps are measured again.
  echo '{"other": 1}' >"$scratch/work/products.json"
  KEEP=1 check 0 -- --resume train
  [[ $(calls '^tessera train .*--products') -gt 0 ]] || fail "a step is judged by older recorded products"
  KEEP=1 check 3 FAKE_PLANNED=0.12 FAKE_PLANNED_GPT2=50 -- plans
  has '^\| NOT met ' 'at least 5 within' '0 of 10 within 10 %; not: ' 'train: remainders \+20.0 %; '
  KEEP=1 check 0 FAKE_NO_PROFILE=1 -- plans
  has '^\| not measured ' 'at least 5 within' 'no profile: it failed, status 2: error: --from WORK/measured.json: the figures have no wte dW'
  KEEP=1 check 0 FAKE_DEVICE="another card" -- kernels plans
  has '^\| not measured ' 'at least 5 within' 'part train is of another device or commit than part kernels: some commit, a card'
}

# A program killed for memory is a failure, and so is a missing one. Neither gets a verdict.
killed_or_missing() {
  rm -r "$scratch/build/tests"
  check 1 FAKE_KILLED=tessera_cuda_bench -- kernels nccl
  has '\*\*Failed:' 'status 137' 'tessera_cuda_bench adamw'
  has '\*\*Failed:' 'tests/nccl is not in the build that --build names: build it there, or leave --build out'
  has_not '^\| (met|NOT met) '
}

# The page reports a build without the example trainer, which is no failure.
without_trainer() {
  rm -r "$scratch/build/cuda_trainer"
  check 0 -- test
  has '^\| not measured ' 'plain and wrapped' 'cuda_trainer/cuda_trainer is not in the build that --build names'
  has_not 'part build compiles it'
}

# The search finds the largest batches exactly. Both are compared at the largest that fits both.
batches() {
  check 0 FAKE_OURS_FITS=23 FAKE_THEIRS_FITS=41 FAKE_OURS=1100 FAKE_THEIRS=1000 -- train
  has '^\| met ' 'fits both' 'both at batch 23'
  has '^\| met ' 'own largest' 'tessera 1100 at batch 23, PyTorch 1000.0 at batch 41'
  check 0 FAKE_OURS_FITS=41 FAKE_THEIRS_FITS=1 -- train
  has '^\| met ' 'fits both' 'both at batch 1,? '
  has '^\| met ' 'own largest' 'tessera 1000 at batch 41, PyTorch 800.0 at batch 1'
  has '^\| not measured ' 'at least 1.15 of' 'batch 64 does not fit both; at batch 1 tessera 1000 by a plain step, none'
  has '^\| not measured ' 'at least 1.08 of' "PyTorch: it does not fit the card's memory; tessera 1000 tokens/s and 7 bytes by remainders"
}

# A crash does not count as out of memory, so no smaller batch is tried.
crash() {
  check 1 FAKE_CRASHES_AT=64 -- train
  has '^\| not measured ' 'fits both' 'it failed, status 1 at batch 64'
  [[ $(calls 'batch 32') == 0 ]] || fail "a smaller batch was tried after a crash"

  check 0 FAKE_DOES_NOT_FIT="ddp dp" -- memory
  has '^\| ddp ' 'does not fit'
  has '^\| measured ' 'gpt2-xl' 'zero1'
}

# NCCL's limit of one rank per card is no failure; the page has its message.
refusals() {
  check 0 FAKE_NCCL_SAYS="Duplicate GPU detected : rank 0 and 1" FAKE_NCCL_NEVER=1 -- nccl
  has '^\| refused ' 'several processes' 'Duplicate GPU detected : rank 0 and 1'
  has '^\| not measured ' 'killed'
  check 0 FAKE_NCCL_SAYS="Duplicate GPU detected : rank 0 and 1" -- nccl
  has '^\| met ' 'several processes' 'with NCCL_MULTI_RANK_GPU_ENABLE=1 alone'
  check 1 FAKE_NCCL_SAYS="unhandled system error" -- nccl
  has '^\| NOT met ' 'several processes'
  check 3 FAKE_LOST_MESSAGE="something" -- nccl
  has '^\| NOT met ' 'killed' '0 of 2 named it'
}

# A failing test counts once, however often the program names it.
failing_test() {
  check 1 FAKE_FAILING_TEST=test_cuda_comm -- test
  has '^\| NOT met ' 'ranks that are threads' '1 passed, 0 skipped, 1 failed'
  has '\*\*1 failed\*\*'
  # Only the CUDA cases of the kernel tests run.
  [[ $(calls '^test_kernels --gtest_filter=[^ ]*Suite\.\*/cuda ') == 2 ]] || fail "not CUDA's kernels"
  [[ $(calls '^test_kernels ') == 3 ]] || fail "more of the kernels' tests is run"
}

# A tool that hangs does not affect the others.
sanitizers() {
  check 4 PART_SECONDS=14 FAKE_HANGS=memcheck -- sanitize
  has '^\| not measured ' 'memcheck' 'no time for it, or for its end: [23] s'
  has '^\| met ' 'racecheck'
  [[ $(calls 'gtest_filter=.*-\*LongSequence\*') == 4 ]] || fail "long sequences are not left out"

  KEEP=1 check 0 -- --resume sanitize
  has '^\| met ' 'memcheck'
  [[ $(calls compute-sanitizer) == 1 ]] || fail "not the tool alone that had not ended is run again"
  # A tool's findings count whatever else it or the program prints; a refusal is no finding.
  check 1 FAKE_SANITIZER=differs -- sanitize
  has '^\| NOT met ' 'memcheck' 'status 9; ERROR SUMMARY: 2 errors'
  has '^\| NOT met ' 'racecheck' 'status 1; ERROR SUMMARY: 0 errors'
  has '^\| not measured ' 'initcheck' 'refuses this device: Error: Device not supported'
  has '^\| NOT met ' 'synccheck' 'status 0; no summary'
}

# The next call runs only the parts that had no time.
next_call() {
  check 0 -- kernels
  KEEP=1 check 4 PART_SECONDS=4 -- train
  has '^\| not measured ' 'fits both' 'no time'
  has '^\| met ' 'AdamW, fp32'
  KEEP=1 check 0 -- --resume kernels train
  [[ $(calls tessera_cuda_bench) == 0 ]] || fail "a part that was done has been run again"
  has '^\| met ' 'fits both'
  # A run on another machine keeps the page and its figures.
  figures_of "$scratch/gpu.json" >"$scratch/before"
  rm -rf "$scratch/work"
  KEEP=1 check 0 FAKE_DEVICE="another card" -- sanitize
  has '^\| met ' 'fits both'
  has '^\| AdamW, bf16 gradients'
  figures_of "$scratch/gpu.json" | grep -v ^sanitize | diff "$scratch/before" - >>"$scratch/output" ||
    fail "the figures of the other machine are lost"
  [[ $(grep -c '"device": "a card, ' "$scratch/gpu.json") == 2 ]] || fail "the other machine is not told"
}

run_scenarios several_gpus beside_torch planned_steps no_time_for_the_fastest predicted resumed_memory resumed_training all_is_well sanitizers batches refusals missed_bars next_call \
  killed_or_missing without_trainer crash failing_test no_time_at_all
