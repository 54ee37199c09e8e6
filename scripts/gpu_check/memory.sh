# Part memory of scripts/gpu_check.sh: the planned and the measured memory of each strategy, and the
# memory of PyTorch's DDP for the same shapes.

strategies=(dp ddp zero1 zero2 zero3 hybrid)

part_memory() {
  bar planned "bytes that the library holds on the device = planned, every rank, every strategy that ran"
  bar unattributed "the ledger's unattributed row under 64 MiB"
  bar large "gpt2-large, 4 ranks, every strategy: peak bytes a rank, planned, measured, PyTorch DDP's"
  bar xl "gpt2-xl, 8 ranks, those that fit: peak bytes a rank, planned, measured, PyTorch DDP's"
  local model data shape shape_words top steps
  declare -A compared=()  # the last comparison's command, by model
  gpt2_model
  if [[ -z $python ]]; then
    note "Nothing was run: there is no python3 to read the reports."
    return
  fi
  rm -f "$work"/memory-*.{statuses,results,rows,md}
  if [[ $emulated == yes ]]; then
    strategies=(ddp zero3 hybrid)
    model_memory large 2 "${model[@]}"
    model_memory xl 2 "${model[@]}"
  else
    shape=(--layers 36 --hidden 1280 --heads 20 --seq 1024 --vocab 50257)
    model_memory large 4 --model gpt2-large
    shape=(--layers 48 --hidden 1600 --heads 25 --seq 1024 --vocab 50257)
    model_memory xl 8 --model gpt2-xl
  fi
  judge_memory
}

# model_memory NAME RANKS OPTION...: runs each strategy separately, since not all may fit. Hybrid
# uses two groups.
model_memory() {
  local name=$1 ranks=$2 strategy status torch_bytes='' groups
  shift 2
  local common=("$@" --ranks "$ranks" --batch 1 --precision bf16)
  : >"$work/memory-$name.statuses"
  makes=("$work/memory-$name-plan.json")
  status=0
  keep 12 "$build/tools/tessera" plan --for cuda "${common[@]}" \
    --strategies "$(IFS=,; echo "${strategies[*]}")" --shard-group "$((ranks / 2))" \
    --json "${makes[0]}" || status=$?
  makes=()
  ((status == 0)) || return 0
  for strategy in "${strategies[@]}"; do
    status=0 allowed=3 makes=("$work/memory-$name-$strategy.json") groups=()
    [[ $strategy != hybrid ]] || groups=(--shard-group "$((ranks / 2))")
    keep 12 "$build/tools/tessera" compare --device cuda "${data[@]}" "${common[@]}" --steps 2 \
      --strategies "$strategy" "${groups[@]}" --json "${makes[0]}" || status=$?
    allowed='' makes=() compared[$name]=$shown
    echo "$strategy $status" >>"$work/memory-$name.statuses"
  done
  torch_memory
  "$python" scripts/gpu_check/memory.py "$work/memory-$name" "$ranks" "$torch_bytes" \
    "$(in_words "${shape[@]}"), batch 1" >"$work/memory-$name.md" || fails "the reports of $name could not be read"
  tee -a "$section" <"$work/memory-$name.md"
  if [[ -f $work/memory-$name.rows ]]; then cat "$work/memory-$name.rows" >>"$rows_file"; fi
}

# Sets $torch_bytes to the bytes of the same shapes in PyTorch's DDP, in a job of one process, or to the
# reason why there are none.
torch_memory() {
  local status=0
  torch_bytes=$no_torch
  has_torch || return 0
  allowed=3
  keep 4 "$python" bench/peers/torch_gpt.py --device "$torch_device" --ddp "${shape[@]}" --batch 1 \
    --steps 3 || status=$?
  allowed=''
  torch_bytes=$(sed -n 's/.*"max_memory_allocated": \([0-9]*\).*/\1/p' "$log")
  if ((status != 0)) || [[ -z $torch_bytes ]]; then torch_bytes=$(reason_of "$status"); fi
}

# Judges what memory.py found: lines "planned same N", "planned differs TEXT", "unattributed BYTES".
judge_memory() {
  local name results=$work/memory.results differs most same explained fit
  cat "$work"/memory-*.results >"$results" 2>/dev/null || true
  # Only a run that ran out of memory is exempt from judgement.
  fit=$((2 * ${#strategies[@]} - $(cat "$work"/memory-*.statuses | grep -c ' 3$' || true)))
  same=$(grep -c '^planned same' "$results" || true)
  explained=$(grep -c '^unattributed ' "$results" || true)
  differs=$(sed -n 's/^planned differs //p' "$results" | paste -sd ';')
  if [[ -n $differs ]]; then
    judge planned "NOT met" "$differs" "${compared[large]-}"
  elif ((same == 0)); then
    judge planned "not measured" "nothing ran to its end"
  elif ((same < fit)); then
    judge planned "not measured" "the same in $same of $fit runs, the others have no figure" "${compared[large]-}"
  else
    judge planned met "in $same of $fit runs" "${compared[large]-}"
  fi
  most=$(sed -n 's/^unattributed //p' "$results" | sort -g | tail -n 1)
  if [[ -z $most ]]; then
    judge unattributed "not measured" "no run has a ledger"
  elif ((most >= 67108864)); then
    judge unattributed "NOT met" "$most bytes" "${compared[large]-}"
  elif ((explained < fit)); then
    judge unattributed "not measured" "at most $most bytes in $explained of $fit runs" "${compared[large]-}"
  else
    judge unattributed met "at most $most bytes" "${compared[large]-}"
  fi
  for name in large xl; do
    if grep -qs '^planned' "$work/memory-$name.results"; then
      judge "$name" measured "$(sed -n 's/^figures //p' "$work/memory-$name.results")" "${compared[$name]-}"
    else
      judge "$name" "not measured" "nothing ran to its end"
    fi
  done
}
