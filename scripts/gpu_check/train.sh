# Part train of scripts/gpu_check.sh: GPT-2 124M on one rank, compared with PyTorch, and on four
# ranks that share the card; the time of a step of gpt2-large whose update or state is on the host;
# and the memory of gpt2-xl with options that save memory.

part_train() {
  timed=yes
  bar same_batch "speed of GPT-2 124M, bf16, seq 1024: at least PyTorch's tokens/s at the largest batch up to 64 that fits both"
  bar own_batch "speed of the same, each at its own largest batch: at least PyTorch's tokens/s"
  bar zero3 "zero3, hybrid in two groups and ddp on 4 ranks that share the card: peak bytes a rank, s a step"
  bar offload "gpt2-large, bf16, batch 8, --offload optimizer: a step at most 3.5 times the one without"
  bar kept "gpt2-xl, bf16, batch 8, --master-weights remainder --recompute layer-norm: at most the bytes of PyTorch's max_memory_allocated"
  local model data shape shape_words top steps problem='' torch_problem='' ours=0 theirs=0 common speed peak
  local ours_same='' ours_own='' theirs_same='' theirs_own='' rows='' ours_shown=''
  gpt2_model
  if ! largest_batch ours ours_at; then
    judge same_batch "not measured" "tessera: $problem" "$shown"
    judge own_batch "not measured" "tessera: $problem" "$shown"
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
  compare_sharded "$(((common + 3) / 4))"
  compare_offload
  compare_kept
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

# Measures the plain step and the step as one graph, and sets $speed to the faster one's; also measures
# the step with recorded product algorithms, if part kernels has recorded them.
measure_ours() {
  local plain_speed
  if [[ -s $out/products.json ]]; then
    allowed=2  # the algorithms may be another card's
    measure "tessera, recorded products" "$1" ours_at --products "$out/products.json"
    allowed=''
  fi
  measure tessera "$1" ours_at
  plain_speed=$speed ours_shown=$shown
  measure "tessera, a step as one graph" "$1" ours_at --graph
  if [[ $(printf '%s\n' "${plain_speed:-0}" "${speed:-0}" | sort -g | tail -n 1) != "${speed:-0}" ]]; then
    speed=$plain_speed
  else
    ours_shown=$shown
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

# Compares steps whose update runs on the host's cores, and steps whose state the device fetches from
# the host, with steps that keep everything on the device.
compare_offload() {
  local offload status=0 batch=8 large=(--model gpt2-large) words="gpt2-large, batch 8" steps_log host
  declare -A seconds=()
  if [[ $emulated == yes ]]; then large=("${model[@]}") batch=1 words="$shape_words, batch 1"; fi
  for offload in none state optimizer; do
    steps_log=$work/offload-$offload.jsonl
    allowed=3 makes=("$steps_log")
    keep 5 "$build/tools/tessera" train --device cuda "${data[@]}" "${large[@]}" --precision bf16 \
      --batch "$batch" --offload "$offload" --steps 6 --log "$steps_log" || status=$?
    allowed='' makes=()
    if ((status != 0)); then
      judge offload "not measured" "--offload $offload: $(reason_of "$status")" "$shown"
      return
    fi
    seconds[$offload]=$(field seconds "$steps_log")
    figure "--offload $offload, a step" "$words" "${seconds[$offload]}" s
    figure "--offload $offload, peak" "$words" "$(most_of "$(last_peaks "$steps_log")")" bytes
  done
  local times
  times=$(quotient "${seconds[state]}" "${seconds[none]}")
  figure "--offload state / none, a step" "$words" "$times" ratio
  times=$(quotient "${seconds[optimizer]}" "${seconds[none]}")
  host=$(sed -n 's/^optimizer updated on the host, \(.*\)$/; \1/p' "$log")
  figure "--offload optimizer / none, a step" "$words" "$times" ratio offload
  at_most offload "$times" 3.5 \
    "${times:-no} times: ${seconds[optimizer]:-no} s, without ${seconds[none]:-no} s$host" "$shown"
}

# Measures the memory that recomputing or head rows save, and their time, and compares the memory with
# PyTorch's. All runs keep remainders of master weights.
compare_kept() {
  local option key status=0 batch=8 xl=(--model gpt2-xl) words="gpt2-xl, batch 8" steps_log least='' least_shown=''
  local shape=(--layers 48 --hidden 1600 --heads 25 --seq 1024 --vocab 50257) options=()
  if [[ $emulated == yes ]]; then
    xl=("${model[@]}") shape=("${model[@]}") batch=1 words="$shape_words, batch 1"
  fi
  for option in "" "--recompute layer-norm" "--recompute gelu" "--recompute gelu,layer-norm" "--head-rows 1024"; do
    read -ra options <<<"$option"
    key=${option//[ ,]/-}
    steps_log=$work/kept$key.jsonl
    allowed=3 makes=("$steps_log")
    keep 5 "$build/tools/tessera" train --device cuda "${data[@]}" "${xl[@]}" --precision bf16 \
      --batch "$batch" --master-weights remainder "${options[@]}" --steps 6 --log "$steps_log" || status=$?
    allowed='' makes=()
    if ((status != 0)); then
      judge kept "not measured" "${option:-remainders}: $(reason_of "$status")" "$shown"
      return
    fi
    figure "remainders${option:+, $option}, a step" "$words" "$(field seconds "$steps_log")" s
    figure "remainders${option:+, $option}, peak" "$words" "$(most_of "$(last_peaks "$steps_log")")" bytes
    if [[ $option == "--recompute layer-norm" ]]; then
      least=$(most_of "$(last_peaks "$steps_log")") least_shown=$shown
    fi
  done
  if ! has_torch; then
    judge kept "not measured" "$no_torch; tessera $least bytes" "$least_shown"
    return
  fi
  allowed=3
  theirs_at "$batch" 6 || status=$?
  allowed=''
  if ((status != 0)) || [[ -z $peak ]]; then
    judge kept "not measured" "PyTorch: $(reason_of "$status"); tessera $least bytes" "$least_shown"
    return
  fi
  figure "PyTorch, peak beside remainders" "$words" "$((peak / 1048576))" MiB
  figure "PyTorch, beside remainders" "$words" "$speed" tokens/s
  at_most kept "$least" "$peak" "tessera $least bytes, PyTorch $peak" "$least_shown"
}
