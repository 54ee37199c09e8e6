# Part multi of scripts/gpu_check.sh: ranks are processes, each with its own GPU.

part_multi() {
  timed=yes
  bar bandwidth "collectives over NCCL between GPUs: bus bandwidth by nccl-tests' formula"
  bar sharded "zero3 and hybrid beside ddp, a GPU a rank: s a step, peak bytes a rank"
  bar hidden "share of zero3's gathers that run beside computation"
  bar priority "--channel-priority high beside usual: s a step of zero3"
  bar spare "--spare-multiprocessors 8 beside none: s a step of zero3"
  bar ctas "--nccl-max-ctas 8 beside NCCL's choice: s a step of zero3, bus bandwidth"
  bar windows "--nccl-windows beside registered buffers: s a step of zero3, bus bandwidth"
  local gpus id model data shape shape_words top steps batch=8 base=''
  gpus=$(gpu_count)
  if ((gpus < 2)); then
    for id in bandwidth sharded hidden priority spare ctas windows; do judge "$id" "not measured" "one GPU"; done
    return
  fi
  gpt2_model
  steps=12
  if [[ $emulated == yes ]]; then batch=1 steps=4; fi
  local launch=(scripts/nccl_one_gpu.sh -n "$gpus" -g)
  bandwidth_of bandwidth ''
  sharded_steps
  base=${seconds_of[zero3]-}
  if [[ -n $base ]]; then
    hidden_gathers
  else
    judge hidden "not measured" "zero3 gave no figure"
  fi
  local spared=8
  if [[ $emulated == yes ]]; then spared=1; fi
  switched priority "--channel-priority high" "--high-priority"
  switched spare "--spare-multiprocessors $spared"
  switched ctas "--nccl-max-ctas 8" "--max-ctas 8"
  switched windows "--nccl-windows" "--windows"
}

# Prints the number of GPUs; for the emulated device, the number that the double is set to.
gpu_count() {
  if [[ $emulated == yes ]]; then
    echo "${TESSERA_EMULATED_CUDA_DEVICES:-1}"
  elif has_card; then
    nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU ' || true
  else
    echo 0
  fi
}

# bandwidth_of BAR NAME [OPTION...]: runs the benchmark and records its table's figures, with NAME
# appended to their names; sets $status and $widest, the bus bandwidth of the largest all_gather.
widest=''
bandwidth_of() {
  local name=$2 small=() operation shape bus call
  status=0 widest=''
  if [[ $emulated == yes ]]; then small=(--small); fi
  keep table "${launch[@]}" "$build/bench/cuda/tessera_cuda_bench" nccl "${small[@]}" "${@:3}" || status=$?
  if ((status == 0)); then
    while IFS=$'\t' read -r operation bus call; do
      shape=${operation#*, } operation=${operation%%,*}
      figure "$operation, bus bandwidth$name" "$shape" "${bus% *}" GB/s "$1"
      figure "$operation, a call$name" "$shape" "${call% *}" us "$1"
      if [[ $operation == all_gather ]]; then widest="$bus of $shape"; fi
    done < <(awk -F ' *[|] *' -v OFS='\t' '$3 ~ /^[0-9.]+ GB\/s$/ && $4 ~ / us$/ { print $2, $3, $4 }' "$log")
  fi
  [[ $1 == bandwidth ]] || return 0
  if [[ -n $widest ]]; then
    judge bandwidth measured "all_gather: $widest" "$shown"
  else
    judge bandwidth "not measured" "$(reason_of "$status")" "$shown"
  fi
}

# step_of NAME STRATEGY [OPTION...]: trains; sets $speed, in seconds per step, and $peak.
step_of() {
  local status=0 steps_log=$work/multi-$1.jsonl
  speed='' peak=''
  allowed=3 makes=("$steps_log")
  keep 5 "${launch[@]}" "$build/tools/tessera" train --device cuda "${data[@]}" "${model[@]}" \
    --precision bf16 --batch "$batch" --strategy "$2" --steps "$steps" --log "$steps_log" "${@:3}" || status=$?
  allowed='' makes=()
  ((status == 0)) || return "$status"
  speed=$(field seconds "$steps_log") peak=$(last_peaks "$steps_log")
}

sharded_steps() {
  local strategy status told='' job_words="$shape_words, batch $batch each"
  local -a groups
  declare -gA seconds_of=()
  for strategy in ddp zero3 hybrid; do
    groups=() status=0
    if [[ $strategy == hybrid ]]; then
      ((gpus % 2 == 0)) || continue
      groups=(--shard-group "$((gpus / 2))")
    fi
    step_of "$strategy" "$strategy" "${groups[@]}" || status=$?
    if ((status != 0)); then
      judge sharded "not measured" "$strategy: $(reason_of "$status")" "$shown"
      return
    fi
    seconds_of[$strategy]=$speed
    told+="${told:+; }$strategy: $speed s, $(most_of "$peak") bytes"
    figure "GPT-2 on $gpus GPUs, $strategy, a step" "$job_words" "$speed" s sharded
    figure "GPT-2 on $gpus GPUs, $strategy, peak" "$job_words" "$(most_of "$peak")" bytes sharded
  done
  judge sharded measured "$told" "$shown"
}

# Measures the hidden share of gathers in one more run of zero3, with a trace.
hidden_gathers() {
  local status=0 trace=$work/multi-trace.json share=''
  makes=("$trace")
  keep 5 "${launch[@]}" "$build/tools/tessera" train --device cuda "${data[@]}" "${model[@]}" \
    --precision bf16 --batch "$batch" --strategy zero3 --steps 4 --trace "$trace" || status=$?
  makes=()
  if ((status != 0)); then
    judge hidden "not measured" "$(reason_of "$status")" "$shown"
  elif [[ -z $python ]]; then
    judge hidden "not measured" "no python3 reads the trace" "$shown"
  else
    share=$("$python" -S scripts/gpu_check/hidden.py "$trace" 2>&1) || true
    if is_number "$share"; then
      figure "gathers hidden, zero3 on $gpus GPUs" "$shape_words, batch $batch each" "$share" ratio hidden
      judge hidden measured "$share of their time" "$shown"
    else
      judge hidden "not measured" "$share" "$shown"
    fi
  fi
}

# switched BAR OPTION [BENCH_OPTION]: compares runs with and without OPTION of `tessera train`, and
# BENCH_OPTION of the benchmark.
switched() {
  local status=0 job_words="$shape_words, batch $batch each" with widest=''
  if [[ -z $base ]]; then
    judge "$1" "not measured" "zero3 without it gave no figure"
    return
  fi
  # shellcheck disable=SC2086  # an option and its value
  step_of "$1" zero3 $2 || status=$?
  if ((status != 0)); then
    judge "$1" "not measured" "$(reason_of "$status"): $(tail -n 1 "$log" | plain)" "$shown"
    return
  fi
  with=$speed
  figure "GPT-2 on $gpus GPUs, zero3, a step, $2" "$job_words" "$with" s "$1"
  # shellcheck disable=SC2086
  if [[ -n ${3-} ]]; then bandwidth_of "$1" ", $2" $3; fi
  judge "$1" measured "$with s, without $base s${widest:+; all_gather: $widest}" "$shown"
}
