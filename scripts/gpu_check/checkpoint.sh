# Part checkpoint of scripts/gpu_check.sh: compares runs that are resumed on the device with
# uninterrupted ones, and measures how long a step takes during an asynchronous save.

part_checkpoint() {
  local strategy model data shape shape_words top steps batch=4
  for strategy in zero3 ddp; do
    bar "bits_$strategy" "$strategy, 4 ranks: a run that is resumed on the device ends with the bytes of the uninterrupted one"
  done
  bar asynchronous "zero3 and ddp, 4 ranks: s a step beside an asynchronous save, and without one"
  gpt2_model
  if [[ $emulated == yes ]]; then batch=1; fi
  for strategy in zero3 ddp; do resumed_bits "$strategy"; done
  asynchronous_cost
  ((failed + cut > 0)) || rm -rf "${work:?}"/checkpoint-*
}

# saving STRATEGY FOLDER STEPS [OPTION...]: trains, and saves to $work/FOLDER at the end.
saving() {
  local status=0 words
  words=("$build/tools/tessera" train --device cuda "${data[@]}" "${model[@]}" --precision bf16
    --batch "$batch" --ranks 4 --strategy "$1" --lr-schedule constant --checkpoint "$work/$2" --steps "$3" "${@:4}")
  allowed=3 makes=("$(printf '%s/%s/step-%08d/manifest.json' "$work" "$2" "$3")")
  # Files of an earlier call would count as an earlier run.
  [[ " ${*:4} " == *" --resume "* ]] || is_done "${words[@]}" || rm -rf "${work:?}/$2"
  keep 5 "${words[@]}" || status=$?
  allowed='' makes=()
  return "$status"
}

resumed_bits() {
  local status=0 whole=checkpoint-$1-whole resumed=checkpoint-$1-resumed
  saving "$1" "$whole" 6 && saving "$1" "$resumed" 3 && saving "$1" "$resumed" 6 --resume || status=$?
  if ((status != 0)); then
    judge "bits_$1" "not measured" "$(reason_of "$status")" "$shown"
    return
  fi
  local resume=$shown
  allowed=1
  keep 8 "$build/tools/tessera" checkpoint diff "$work/$whole/step-00000006" \
    "$work/$resumed/step-00000006" || status=$?
  allowed=''
  case "$status" in
    0) judge "bits_$1" met "the same after 6 steps, resumed after 3" "$resume" ;;
    1) judge "bits_$1" "NOT met" "they differ: $(tail -n 1 "$log" | plain)" "$resume" ;;
    *) judge "bits_$1" "not measured" "$(reason_of "$status")" "$resume" ;;
  esac
}

# Steps are timed on the device. A save starts after every fifth step and runs during the next.
asynchronous_cost() {
  local strategy status figures=() log_of plain_seconds beside
  for strategy in zero3 ddp; do
    status=0 log_of=$work/asynchronous-$strategy
    allowed=3 makes=("$log_of-none.jsonl")
    keep 5 "$build/tools/tessera" train --device cuda "${data[@]}" "${model[@]}" --precision bf16 \
      --batch "$batch" --ranks 4 --strategy "$strategy" --steps 20 --log "$log_of-none.jsonl" || status=$?
    allowed='' makes=()
    if ((status == 0)); then
      saving "$strategy" "checkpoint-$strategy-beside" 20 --checkpoint-every 5 --checkpoint-keep 1 \
        --log "$log_of-beside.jsonl" || status=$?
    fi
    if ((status != 0)); then
      judge asynchronous "not measured" "$strategy: $(reason_of "$status")" "$shown"
      return
    fi
    plain_seconds=$(field seconds "$log_of-none.jsonl")
    beside=$(behind_saves "$log_of-beside.jsonl")
    figures+=("$strategy: ${beside:-no} s, without ${plain_seconds:-no} s")
    figure "GPT-2 on 4 ranks, $strategy, a step" "$shape_words, batch $batch each" "$plain_seconds" s asynchronous
    figure "GPT-2 on 4 ranks, $strategy, a step beside a save" "$shape_words, batch $batch each" "$beside" s asynchronous
  done
  judge asynchronous measured "${figures[0]}; ${figures[1]}" "$shown"
}

# behind_saves LOG: prints the median seconds of steps 6, 11 and 16.
behind_saves() {
  sed -n 's/.*"step":\(6\|11\|16\),.*/&/p' "$1" | sed -n 's/.*"seconds":\([0-9.e+-]*\).*/\1/p' | median
}
