#!/usr/bin/env bash
# Replaces every program that scripts/gpu_check.sh calls, selected by the name of this script. It
# prints results of a fictitious machine, set by the environment (FAKE_...).
name=${0##*/}
echo "$name $*" >>"$FAKE_CALLS"

if [[ -n ${FAKE_SLOW-} && "$name $*" =~ $FAKE_SLOW ]]; then sleep "${FAKE_SLOW_SECONDS-2}"; fi
if [[ -n ${FAKE_KILLED-} && "$name $*" =~ $FAKE_KILLED ]]; then kill -KILL $$; fi

# option NAME DEFAULT: sets $value to the word after NAME in the command line.
words=("$@")
option() {
  local i
  for i in "${!words[@]}"; do
    if [[ ${words[i]} == "$1" ]]; then value=${words[i + 1]}; return; fi
  done
  value=$2
}

# A test program with one suite of two tests, the second with a parameter.
tests() {
  if [[ $* == *--gtest_list_tests* ]]; then
    printf 'Running main() from fake\nSuite.\n  First\nSizes/Suite.\n  Second/0  # GetParam() = (1, fp32)\n'
    return
  fi
  if [[ $* == *"=Suite."* ]]; then
    printf '[ RUN      ] Suite.First\n[       OK ] Suite.First (1 ms)\n'
    return
  fi
  if [[ ${FAKE_FAILING_TEST-} == "$name" ]]; then
    printf '[ RUN      ] Sizes/Suite.Second/0\nnot so\n'
    printf '[  FAILED  ] Sizes/Suite.Second/0, where GetParam() = (1, fp32) (2 ms)\n'
    printf '[  FAILED  ] 1 test, listed below:\n[  FAILED  ] Sizes/Suite.Second/0, where GetParam() = (1, fp32)\n'
    exit 1
  fi
  printf '[ RUN      ] Sizes/Suite.Second/0\n[       OK ] Sizes/Suite.Second/0 (1 ms)\n'
}

# A rank of a job that works until rank 1 is gone.
work_on() {
  local lost=$FAKE_FOLDER/rank-1
  if [[ $RANK == 1 ]]; then echo $$ >"$lost"; fi
  until [[ -s $lost ]]; do sleep 0.05; done
  if [[ $RANK == 0 ]]; then echo "step 1/1000000"; fi
  while kill -0 "$(cat "$lost")" 2>/dev/null; do sleep 0.05; done
  echo "error: ${FAKE_LOST_MESSAGE-rank 1 (process 5 on here) has left}" >&2
  exit 4
}

# A gather of 10 us, of which a backward pass hides 7, after a step that hides nothing.
trace() {
  printf '{"traceEvents":['
  printf '{"name":"thread_name","ph":"M","pid":0,"tid":%s,"args":{"name":"%s"}},' 1 compute 2 gather
  printf '{"name":"x","cat":"%s","ph":"X","pid":0,"tid":%s,"ts":%s,"dur":%s,"args":{"step":%s}},' \
    all_gather 2 0 10 0 forward 1 10 10 1 forward 1 20 10 2
  printf '{"name":"x","cat":"all_gather","ph":"X","pid":0,"tid":2,"ts":27,"dur":10,"args":{}},'
  printf '{"name":"x","cat":"backward","ph":"X","pid":0,"tid":1,"ts":33,"dur":9,"args":{"step":2}}]}\n'
}

train() {
  local batch steps loss=5.5 seconds=0.1 speed=${FAKE_OURS-1000} peak=7 i
  if [[ " $* " == *" --help "* ]]; then
    printf '  --graph               one graph\n  --recompute R         none, block or every:K\n'
    return
  fi
  option --trace ''
  if [[ -n $value ]]; then trace >"$value"; fi
  if [[ -n ${FAKE_REFUSES-} && " $* " == *" $FAKE_REFUSES"* ]]; then
    echo "error: $FAKE_REFUSES: NCCL 2.26.5 is too old" >&2
    exit 2
  fi
  option --batch 4
  batch=$value
  option --steps 2
  steps=$value
  option --device cpu
  if [[ $value == cuda ]]; then loss=${FAKE_LOSS-5.5}; fi
  option --offload none
  if [[ $value == state ]]; then seconds=0.15; fi
  if [[ $value == optimizer ]]; then
    seconds=${FAKE_OFFLOADED-0.2}
    echo "optimizer updated on the host, by 16 threads a rank"
  fi
  if [[ $steps == 1000000 ]]; then work_on; fi
  if [[ $batch == "${FAKE_CRASHES_AT-}" ]]; then echo "error: a crash" >&2; exit 1; fi
  if ((batch > ${FAKE_OURS_FITS-64})); then echo "error: out of memory" >&2; exit 3; fi
  if [[ -n ${FAKE_FAST-} && "$*" =~ $FAKE_FAST ]]; then speed=1300; fi
  if [[ -n ${FAKE_HEAVY-} && "$*" =~ $FAKE_HEAVY ]]; then peak=3000000; fi
  option --log /dev/null
  for ((i = 1; i <= steps; i++)); do
    echo "{\"step\":$i,\"loss\":$loss,\"seconds\":$seconds,\"tokens_per_second\":$speed,\"peak_bytes\":[$peak]}"
  done >"$value"
}

# A plan with a profile: every step takes as long as the usual one, and GPT-2's with its own vocabulary
# as long as 64 sequences of 1024 tokens do at 1000 tokens/s.
plan_time() {
  local seconds=${FAKE_PLANNED-0.1}
  case "$*" in
    *"--vocab 50257"*) seconds=${FAKE_PLANNED_GPT2-65.536} ;;
    *"--offload optimizer"*) echo "error: --time cannot plan an update on the host" >&2; exit 2 ;;
    *--graph*) echo "error: tessera plan does not know '--graph'" >&2; exit 2 ;;
  esac
  option --json /dev/null
  printf '{\n "strategies": [\n  {\n   "seconds_per_step": %s\n  }\n ]\n}\n' "$seconds" >"$value"
}

# A profile of the figures of part kernels.
machine() {
  option --from /dev/null
  if [[ -n ${FAKE_NO_PROFILE-} ]] || ! grep -q '"name": "kernels"' "$value"; then
    echo "error: --from $value: the figures have no wte dW (TFLOP/s)" >&2
    exit 2
  fi
  option --json /dev/null
  echo '{}' >"$value"
}

json() {  # json PEAK: writes the result of --strategies to the file of --json
  local each first=yes strategies
  option --strategies ddp
  IFS=, read -ra strategies <<<"$value"
  option --json /dev/null
  {
    printf '{"strategies":['
    for each in "${strategies[@]}"; do
      [[ $first == yes ]] || printf ,
      first=no
      printf '{"name":"%s","ranks":[{"count":1,"planned_peak_bytes":1000,"peak_bytes":%s}],"devices":[{"rows":{"unattributed":%s}}]}' \
        "$each" "$1" "${FAKE_UNATTRIBUTED-1048576}"
    done
    printf ']}\n'
  } >"$value"
}

case "$name" in
  tessera)
    case "$1" in
      doctor) echo "  cuda:0   a card" ;;
      train) train "$@" ;;
      plan) if [[ " $* " == *" --time "* ]]; then plan_time "$@"; else json 1000; fi ;;
      bench) machine "$@" ;;
      compare)
        option --strategies none
        if [[ " ${FAKE_DOES_NOT_FIT-} " == *" $value "* ]]; then exit 3; fi
        json "${FAKE_PEAK-1000}"
        option --shard-group 1
        if ((value == 1)); then
          echo "losses: ${FAKE_BITS-bit-identical} under all 6 strategies in all 20 steps (5.5 -> 4.5)"
        else
          echo "losses: ${FAKE_BITS-bit-identical} under 5 strategies in all 20 steps (5.5 -> 4.5);" \
            "hybrid, which adds gradients group by group, within ${FAKE_APART-3.0e-08} of dp"
        fi
        ;;
    esac
    ;;
  tessera_cuda_bench)
    if [[ $1 == nccl ]]; then
      [[ $RANK == 0 ]] || exit 0
      echo "| collective | bus bandwidth, median | a call |"
      echo "|---|---|---|"
      for each in all_gather reduce_scatter all_reduce; do
        echo "| $each, $WORLD_SIZE ranks, 65536 bytes | 3.25 GB/s | 20.0 us |"
        echo "| $each, $WORLD_SIZE ranks, 268435456 bytes | ${FAKE_BUS-350.25} GB/s | 766.1 us |"
      done
      exit 0
    fi
    vocab=${FAKE_VOCAB-50304}
    echo "500000000 parameters, 65536 tokens in sequences of 1024, hidden 768, vocab $vocab; 11 rounds in turn"
    echo
    echo "| operation | tessera, median | limit in the same rounds | of the limit |"
    echo "|---|---|---|---|"
    case "$1" in
      --choose)
        echo '{}' >"$2"
        echo "| c_fc forward, 65536 x 3072 x 768 | 0.4400 ms | the heuristic's first: 0.4620 ms | 1.050 |"
        ;;
      adamw)
        echo "| AdamW, fp32 gradients | ${FAKE_ADAMW-4000} GB/s | device copy: 4200 GB/s | ${FAKE_ADAMW_RATIO-0.952} |"
        echo "| AdamW, bf16 gradients | 4000 GB/s | device copy: 4200 GB/s | 0.952 |"
        ;;
      products)
        echo "| c_fc forward, 65536 x 3072 x 768 | 700.0 TFLOP/s | plain cuBLASLt: 700.0 TFLOP/s | 1.000 |"
        echo "| c_fc dW, 768 x 3072 x 65536 | 700.0 TFLOP/s | plain cuBLASLt: 710.0 TFLOP/s | ${FAKE_PRODUCT-0.986} |"
        echo "| c_proj forward with residual, 65536 x 768 x 768 | 0.1400 ms | in two kernels: 0.1820 ms | 1.300 |"
        echo "| wte forward, 16384 x $vocab x 768 | 620.5 TFLOP/s | plain cuBLASLt: 621.0 TFLOP/s | 0.999 |"
        ;;
      attention) echo "| attention forward, bf16 | 285.0 TFLOP/s | product of 8192 squared: 700.0 TFLOP/s | 0.407 |" ;;
      memory)
        echo "| squared norm, bf16 | 2390 GB/s | device copy: 2950 GB/s | 0.810 |"
        echo "| cross entropy, bf16 | 2595 GB/s | device copy: 3018 GB/s | ${FAKE_MOVED-0.86} |"
        ;;
      host)
        echo "| copies from the host | 52.5 GB/s | | |"
        echo "| copies to the host | 51.5 GB/s | | |"
        echo "| copies from and to the host at once, each | 45.5 GB/s | | |"
        ;;
      launches)
        echo "| launch of a kernel, host | 3.10 us | | |"
        echo "| launch of a kernel, device | 1.25 us | | |"
        ;;
      collectives)
        echo "| all_gather, 4 ranks, 268435456 bytes each | 2956 GB/s | device copies: 3004 GB/s | 0.985 |"
        ;;
    esac
    ;;
  test_kernels | test_cuda | test_cuda_comm | test_cuda_parity | test_cuda_cli) tests "$@" ;;
  cuda_trainer)
    echo "as planned, to the byte"
    echo "largest difference: ${FAKE_TRAINER-2.1e-06} of the loss"
    exit "${FAKE_TRAINER_STATUS-0}"
    ;;
  test_comm | test_nccl_parity | test_nccl_fault) exit "${FAKE_NCCL_TEST-0}" ;;
  failing_rank)
    if [[ $WORLD_SIZE -gt 1 && -n ${FAKE_NCCL_SAYS-} && -z ${NCCL_MULTI_RANK_GPU_ENABLE-} ]] ||
      [[ -n ${FAKE_NCCL_NEVER-} ]]; then
      echo "host:1:2 [0] NCCL WARN ${FAKE_NCCL_SAYS-}" >&2
      exit 4
    fi
    ;;
  nvidia-smi)
    case "$*" in
      *clocks_event_reasons*) echo "1980 MHz, 2619 MHz, 400.0 W, 50, 0x0000000000000024" ;;
      *compute_cap*) echo 9.0 ;;
      *gpu=name*) echo "${FAKE_DEVICE-a card}" ;;
      --list-gpus) for ((i = 0; i < ${FAKE_GPUS-1}; i++)); do echo "GPU $i: a card"; done ;;
      *) echo "something" ;;
    esac
    ;;
  compute-sanitizer)
    option --tool none
    if [[ $value == "${FAKE_HANGS-}" ]]; then sleep 60; fi
    case "${FAKE_SANITIZER-}$value" in
      differsmemcheck) printf '========= fp8 is not supported\n========= ERROR SUMMARY: 2 errors\n'; exit 9 ;;
      differsracecheck) printf 'fp8 is not supported\n========= ERROR SUMMARY: 0 errors\n'; exit 1 ;;
      differsinitcheck) echo "========= Error: Device not supported"; exit 1 ;;
      differssynccheck) exit 0 ;;
    esac
    echo "========= ERROR SUMMARY: 0 errors"
    ;;
  python3)
    case "$1" in
      -c) [[ -z ${FAKE_NO_TORCH-} || $2 != *scaled_dot_product_attention ]] ;;
      *torch_gpt.py)
        option --batch 1
        if ((value > ${FAKE_THEIRS_FITS-64})); then exit 3; fi
        echo "{\"tokens_per_second\": ${FAKE_THEIRS-800}.0, \"max_memory_allocated\": 2000000}"
        ;;
      *torch_adamw.py) echo "| AdamW(fused), fp32 gradients | 3900 GB/s | device copy: 4200 GB/s | 0.929 |" ;;
      *) exec "$FAKE_PYTHON" "$@" ;;
    esac
    ;;
esac
