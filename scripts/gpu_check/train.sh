# Part train of scripts/gpu_check.sh: GPT-2 124M on one rank, compared with PyTorch, and on four
# ranks that share the card. large_models.sh has its larger models.

part_train() {
  timed=yes
  bar same_batch "speed of GPT-2 124M, bf16, seq 1024: at least PyTorch's tokens/s at the largest batch up to 64 that fits both"
  bar own_batch "speed of the same, each at its own largest batch: at least PyTorch's tokens/s"
  bar ahead "speed of GPT-2 124M, vocabulary 50257, bf16, batch 64: at least 1.15 of torch.compile's tokens/s in this run (goal 1.25)"
  bar zero3 "zero3, hybrid in two groups and ddp on 4 ranks that share the card: peak bytes a rank, s a step"
  bar offload "gpt2-large, bf16, batch 8, --offload optimizer: a step at most 3.5 times the one without"
  bar kept "gpt2-xl, bf16, batch 8, --master-weights remainder --recompute layer-norm: at most the bytes of PyTorch's max_memory_allocated"
  bar ahead_xl "gpt2-xl, bf16, batch 8, remainders and any option that saves memory: at least 1.08 of PyTorch's tokens/s with fewer bytes"
  local model data shape shape_words top steps problem='' torch_problem='' ours=0 theirs=0 common speed peak
  local ours_same='' ours_own='' theirs_same='' theirs_own='' rows='' ours_shown='' ours_way='' bar
  local recorded='' recorded_shown='' ways=()
  gpt2_model
  if ! largest_batch ours ours_at; then
    for bar in same_batch own_batch ahead; do judge "$bar" "not measured" "tessera: $problem" "$shown"; done
    return
  fi
  common=$ours
  if ! has_torch; then
    torch_problem=$no_torch
  elif ! largest_batch theirs theirs_at; then
    torch_problem="PyTorch: $problem"
  elif ((theirs < ours)); then
    common=$theirs
  fi
  figure "GPT-2 on one rank, tessera, largest batch that fits" "${shape_words}, up to $top" "$ours" sequences
  if [[ -z $torch_problem ]]; then
    figure "GPT-2 on one rank, PyTorch, largest batch that fits" "${shape_words}, up to $top" "$theirs" sequences
  fi
  at_batches
  judge_speeds
  judge_ahead
  compare_kept
  compare_offload
  compare_sharded "$(((common + 3) / 4))"
}

# Sets $model and $data to options of the command, and $shape to the model as options of torch_gpt.py.
gpt2_model() {
  if [[ $emulated == yes ]]; then
    top=2 steps=4
    model=(--layers 1 --hidden 16 --heads 2 --seq 8 --vocab 256) data=(--data README.md)
    shape=("${model[@]}")
  else
    model=(--model gpt2) data=(--tokens "$work/tokens.bin") top=64 steps=30
    shape=(--layers 12 --hidden 768 --heads 12 --seq 1024 --vocab 50257)
    write_tokens || data=(--data docs)
  fi
  shape_words=$(in_words "${shape[@]}")
}

# in_words OPTION VALUE...: prints the options as a figure's shape: layers 12, hidden 768.
in_words() {
  local words
  words=$(printf ', %s %s' "$@")
  words=${words#, }
  echo "${words//--/}"
}

# Writes a file of random uint16 tokens: the bytes of a text have only 256 values, which suits caches.
write_tokens() {
  local file=$work/tokens.bin
  [[ ! -s $file ]] || return 0
  if ! "${python:-false}" -c "
import array, random
random.seed(1)
array.array('H', (random.randrange(50257) for _ in range(2_000_000))).tofile(open('$file', 'wb'))"; then
    note "There is no python3 to write random tokens: the data is the bytes of docs/."
    return 1
  fi
}

# ours_at BATCH STEPS [OPTION...], theirs_at BATCH STEPS: train, and set $speed to tokens/s and $peak.
# The status is 3 if the batch does not fit.
ours_at() {
  local status=0 steps_log=$work/single-$1-$2${3-}.jsonl
  makes=("$steps_log")
  keep 5 "$build/tools/tessera" train --device cuda "${data[@]}" "${model[@]}" --precision bf16 \
    --batch "$1" --steps "$2" --log "$steps_log" "${@:3}" || status=$?
  makes=()
  ((status == 0)) || return "$status"
  speed=$(field tokens_per_second "$steps_log")
  peak=$(last_peaks "$steps_log")
}
theirs_at() {
  local compile=(--compile)
  if [[ $emulated == yes ]]; then compile=(); fi
  keep 12 "$python" bench/peers/torch_gpt.py --device "$torch_device" "${shape[@]}" --batch "$1" \
    --steps "$2" "${compile[@]}" || return $?
  speed=$(sed -n 's/.*"tokens_per_second": \([0-9.]*\).*/\1/p' "$log")
  peak=$(sed -n 's/.*"max_memory_allocated": \([0-9]*\).*/\1/p' "$log")
}

# field NAME LOG: prints the median of a number over the later half of a run's steps.
field() { sed -n "s/.*\"$1\":\\([0-9.e+-]*\\).*/\\1/p" "$2" | tail -n "$((($(wc -l <"$2") + 1) / 2))" | median; }

last_peaks() { sed -n 's/.*"peak_bytes":\(\[[^]]*\]\).*/\1/p' "$1" | head -n 1; }

# largest_batch NAME RUN: sets NAME to the largest batch up to $top that fits: $top itself, or the
# result of bisecting below it. Only lack of memory makes it smaller. $problem says why there is none.
largest_batch() {
  local -n largest=$1
  local fits=0 over=$((top + 1)) batch=$top status
  allowed=3
  while ((over - fits > 1)); do
    status=0
    "$2" "$batch" 3 || status=$?
    if ((status == 0)); then
      fits=$batch
    elif ((status == 3)); then
      over=$batch
    else
      allowed='' problem="$(reason_of "$status") at batch $batch"
      return 1
    fi
    batch=$(((fits + over) / 2))
  done
  # shellcheck disable=SC2034  # the caller's variable of the name in $1
  largest=$fits
  allowed=''
  if ((fits == 0)); then problem="not even a batch of 1 fits"; fi
  ((fits > 0))
}

# Runs both at the batch that fits both, and each at its own batch if that is larger. The verdicts
# read these speeds by name: ours_same, ours_own, theirs_same, theirs_own.
# shellcheck disable=SC2034
at_batches() {
  measure_ours "$common"
  ours_same=$speed ours_own=$speed
  ways=("$ours_way" "$ours_shown" "$recorded" "$recorded_shown")
  if ((ours != common)); then
    measure_ours "$ours"
    ours_own=$speed
  fi
  if [[ -z $torch_problem ]]; then
    measure PyTorch "$common" theirs_at
    theirs_same=$speed theirs_own=$speed
    if ((theirs != common)); then
      measure PyTorch "$theirs" theirs_at
      theirs_own=$speed
    fi
  fi
  note "| one rank | batch | tokens/s, median of the later half | peak bytes |
|---|---|---|---|$rows"
}

# measure NAME BATCH RUN [OPTION...]: adds a row to the table; $speed is empty if the run gave none.
measure() {
  speed='' peak=''
  "$3" "$2" "$steps" "${@:4}" || true
  rows+="
| $1 | $2 | ${speed:-none} | ${peak:-not told} |"
  figure "GPT-2 on one rank, $1" "$shape_words, batch $2" "$speed" tokens/s
  # The memory that PyTorch's allocator takes varies from run to run.
  if [[ $1 == PyTorch ]]; then
    figure "GPT-2 on one rank, $1, peak" "$shape_words, batch $2" "${peak:+$((peak / 1048576))}" MiB
  else
    figure "GPT-2 on one rank, $1, peak" "$shape_words, batch $2" "$(most_of "$peak")" bytes
  fi
}

# most_of PEAKS: prints the maximum of the ranks' peaks, [BYTES,...], or of a single number.
most_of() { tr -d '[]' <<<"$1" | tr ',' '\n' | sort -n | tail -n 1; }

# Measures the plain step and the step as one graph, and sets $speed, $ours_way and $ours_shown to the
# faster one's. Sets $recorded and $recorded_shown to those of the step with recorded algorithms of
# products, if part kernels has recorded them.
measure_ours() {
  local plain_speed
  recorded='' recorded_shown=''
  if [[ -s $work/products.json ]]; then
    allowed=2  # the algorithms may be another card's
    measure "tessera, recorded products" "$1" ours_at --products "$work/products.json"
    allowed='' recorded=$speed recorded_shown=$shown
  fi
  measure tessera "$1" ours_at
  plain_speed=$speed ours_shown=$shown ours_way="a plain step"
  measure "tessera, a step as one graph" "$1" ours_at --graph
  if is_more "${speed:-0}" "${plain_speed:-0}"; then
    ours_shown=$shown ours_way="a step as one graph"
  else
    speed=$plain_speed
  fi
}

judge_speeds() {
  local which figure batches
  for which in same own; do
    local -n mine=ours_$which other=theirs_$which
    if [[ -n $torch_problem || -z $mine || -z $other ]]; then
      judge "${which}_batch" "not measured" \
        "${torch_problem:-one of them gave no figure}; tessera ${mine:-none}, PyTorch ${other:-none}" "$ours_shown"
      continue
    fi
    figure="tessera $mine, PyTorch $other, both at batch $common"
    batches="batch $common"
    if [[ $which == own ]]; then
      figure="tessera $mine at batch $ours, PyTorch $other at batch $theirs"
      batches="batch $ours and $theirs"
    fi
    figure "GPT-2 on one rank, tessera / PyTorch at $which batch" "$shape_words, $batches" \
      "$(quotient "$mine" "$other")" ratio "${which}_batch"
    at_least "${which}_batch" "$mine" "$other" "$figure" "$ours_shown"
  done
}

# Judges the goal for batch 64 by the fastest step, with or without recorded algorithms of products.
judge_ahead() {
  local way=${ways[0]} command=${ways[1]} fastest=$ours_same told ratio reached="not reached"
  told="tessera ${ours_same:-none} by ${ways[0]}, ${ways[2]:-none} by one with recorded products"
  if [[ -n ${ways[2]} ]] && is_more "${ways[2]}" "${ours_same:-0}"; then
    fastest=${ways[2]} command=${ways[3]} way="a step with recorded products"
  fi
  if [[ -n $torch_problem ]]; then
    judge ahead "not measured" "$torch_problem; $told" "$command"
  elif ((common != top)); then
    judge ahead "not measured" "batch $top does not fit both; at batch $common $told, PyTorch ${theirs_same:-none}" "$command"
  else
    ratio=$(quotient "$fastest" "$theirs_same")
    if [[ -n $ratio ]] && ! is_more 1.25 "$ratio"; then reached=reached; fi
    figure "GPT-2 on one rank, the fastest of tessera / PyTorch" "$shape_words, batch $top" "$ratio" ratio ahead
    best_at_least ahead "$ratio" 1.15 "${ratio:-no ratio} by $way, goal 1.25 $reached; $told, PyTorch ${theirs_same:-none}" \
      "$command"
  fi
}

# Compares zero3 and hybrid with ddp, on 4 ranks that share the card.
compare_sharded() {
  local strategy status=0 figures=() steps_log groups
  for strategy in ddp zero3 hybrid; do
    groups=()
    [[ $strategy != hybrid ]] || groups=(--shard-group 2)
    steps_log=$work/$strategy-$1.jsonl
    allowed=3 makes=("$steps_log")
    keep 5 "$build/tools/tessera" train --device cuda "${data[@]}" "${model[@]}" --precision bf16 \
      --batch "$1" --ranks 4 --strategy "$strategy" "${groups[@]}" --steps "$(((steps + 1) / 2))" \
      --log "$steps_log" || status=$?
    allowed='' makes=()
    if ((status != 0)); then
      judge zero3 "not measured" "$strategy: $(reason_of "$status")" "$shown"
      return
    fi
    peak=$(last_peaks "$steps_log") speed=$(field seconds "$steps_log")
    figures+=("$strategy: $peak bytes, $speed s")
    figure "GPT-2 on 4 ranks, $strategy, peak" "$shape_words, batch $1 each" "$(most_of "$peak")" bytes zero3
    figure "GPT-2 on 4 ranks, $strategy, a step" "$shape_words, batch $1 each" "$speed" s zero3
  done
  judge zero3 measured "batch $1 each; ${figures[0]}; ${figures[1]}; ${figures[2]}" "$shown"
}
