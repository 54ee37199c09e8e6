# The larger models of part train of scripts/gpu_check.sh: gpt2-xl with options that save memory,
# beside PyTorch, and gpt2-large whose update or state is on the host.

# Compares the speed and the memory of gpt2-xl, by each option that saves memory, with PyTorch's. All
# runs keep remainders of master weights. The fastest that holds fewer bytes than PyTorch runs again
# with the algorithms that part kernels has recorded.
compare_kept() {
  local option options name fastest batch=8 xl=(--model gpt2-xl) words="gpt2-xl, batch 8" steps=12
  local shape=(--layers 48 --hidden 1600 --heads 25 --seq 1024 --vocab 50257)
  local names=() theirs_speed='' theirs_bytes='' xl_problem=$no_torch
  declare -A kept_speed=() kept_bytes=() kept_shown=() kept_problem=()
  if [[ $emulated == yes ]]; then
    xl=("${model[@]}") shape=("${model[@]}") batch=1 words="$shape_words, batch 1" steps=6
  fi
  for option in "" "--recompute layer-norm" "--recompute gelu" "--recompute gelu,layer-norm" "--head-rows 1024"; do
    read -ra options <<<"$option"
    run_kept "remainders${option:+, $option}" "${options[@]}"
  done
  if has_torch; then kept_by_torch; fi
  fastest=$(fastest_kept)
  if [[ -n $fastest && -s $work/products.json ]]; then
    name=${fastest#remainders}
    read -ra options <<<"${name#, }"
    run_kept "$fastest, recorded products" "${options[@]}" --products "$work/products.json"
  fi
  judge_kept "remainders, --recompute layer-norm"
  judge_ahead_xl "$fastest"
}

# run_kept NAME [OPTION...]: trains gpt2-xl, and sets $kept_shown of NAME, and $kept_speed and
# $kept_bytes or else $kept_problem. Status 2 may be an error of the recorded algorithms: they may be
# another card's.
run_kept() {
  local status=0 steps_log=$work/kept-${1//[^a-z0-9]/}.jsonl
  names+=("$1")
  allowed=3 makes=("$steps_log")
  if [[ $* == *" --products "* ]]; then allowed="2 3"; fi
  keep 5 "$build/tools/tessera" train --device cuda "${data[@]}" "${xl[@]}" --precision bf16 \
    --batch "$batch" --master-weights remainder "${@:2}" --steps "$steps" --log "$steps_log" || status=$?
  allowed='' makes=() kept_shown[$1]=$shown
  if ((status != 0)); then
    kept_problem[$1]=$(reason_of "$status")
    return
  fi
  kept_speed[$1]=$(field tokens_per_second "$steps_log")
  kept_bytes[$1]=$(most_of "$(last_peaks "$steps_log")")
  figure "$1, a step" "$words" "$(field seconds "$steps_log")" s
  figure "$1, peak" "$words" "${kept_bytes[$1]}" bytes
}

# Sets $theirs_speed and $theirs_bytes, or $xl_problem.
kept_by_torch() {
  local status=0 speed='' peak=''
  allowed=3
  theirs_at "$batch" "$steps" || status=$?
  allowed=''
  if ((status != 0)) || [[ -z $peak ]]; then
    xl_problem="PyTorch: $(reason_of "$status")"
    return
  fi
  theirs_speed=$speed theirs_bytes=$peak xl_problem=''
  figure "PyTorch, peak beside remainders" "$words" "$((peak / 1048576))" MiB
  figure "PyTorch, beside remainders" "$words" "$speed" tokens/s
}

# Prints the name of the fastest run that holds fewer bytes than PyTorch; of all runs, if PyTorch gave
# no bytes.
fastest_kept() {
  local name fastest=''
  for name in "${names[@]}"; do
    [[ -n ${kept_speed[$name]-} ]] || continue
    [[ -z $theirs_bytes ]] || is_more "$theirs_bytes" "${kept_bytes[$name]}" || continue
    if [[ -z $fastest ]] || is_more "${kept_speed[$name]}" "${kept_speed[$fastest]}"; then fastest=$name; fi
  done
  echo "$fastest"
}

# judge_kept NAME: judges the bytes of one run.
judge_kept() {
  local bytes=${kept_bytes[$1]-}
  if [[ -z $bytes ]]; then
    judge kept "not measured" "$1: ${kept_problem[$1]-it was not run}" "${kept_shown[$1]}"
  elif [[ -n $xl_problem ]]; then
    judge kept "not measured" "$xl_problem; tessera $bytes bytes" "${kept_shown[$1]}"
  else
    at_most kept "$bytes" "$theirs_bytes" "tessera $bytes bytes, PyTorch $theirs_bytes" "${kept_shown[$1]}"
  fi
}

# judge_ahead_xl NAME: judges the speed of the fastest run, which without recorded algorithms is NAME.
judge_ahead_xl() {
  local fastest ratio told
  fastest=$(fastest_kept)
  if [[ -z $fastest && -n $theirs_bytes && ${#kept_bytes[@]} -gt 0 ]]; then
    best_at_least ahead_xl 0 1.08 "no run holds fewer bytes than PyTorch's $theirs_bytes: $(told_kept)"
    return
  elif [[ -z $fastest ]]; then
    judge ahead_xl "not measured" "no run of tessera gave figures"
    return
  fi
  told="tessera ${kept_speed[$fastest]} tokens/s and ${kept_bytes[$fastest]} bytes by $fastest"
  if [[ $fastest != "$1" ]]; then
    told+="; ${kept_speed[$1]} without them"
  elif [[ -n ${kept_speed["$1, recorded products"]-} ]]; then
    told+="; ${kept_speed["$1, recorded products"]} with recorded products"
  else
    told+="; no figure with recorded products"
  fi
  if [[ -n $xl_problem ]]; then
    judge ahead_xl "not measured" "$xl_problem; $told" "${kept_shown[$fastest]}"
    return
  fi
  ratio=$(quotient "${kept_speed[$fastest]}" "$theirs_speed")
  figure "gpt2-xl with fewer bytes, tessera / PyTorch" "$words" "$ratio" ratio ahead_xl
  best_at_least ahead_xl "$ratio" 1.08 "${ratio:-no ratio}: $told; PyTorch ${theirs_speed:-none} and $theirs_bytes bytes" \
    "${kept_shown[$fastest]}"
}

# Prints the bytes of every run.
told_kept() {
  local name told=''
  for name in "${names[@]}"; do
    if [[ -n ${kept_bytes[$name]-} ]]; then told+="${told:+; }$name ${kept_bytes[$name]}"; fi
  done
  echo "$told"
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
