# Part predictions of scripts/gpu_check.sh: checks the predictions of docs/benchmarks/gpu.md in
# minutes. It compares current figures with those of the run before the changes, and switches options
# on and off.

part_predictions() {
  timed=yes
  bar before "figures of 2026-11-22 beside those of now"
  bar step "GPT-2 124M, 50304 rows, bf16, batch 64: ms a step; 128.2 before"
  bar options "a step with options that change it, beside one without"
  local model data shape shape_words top steps rows='' step_ms='' plain_ms='' status program=$build/bench/cuda/tessera_cuda_bench
  local small=() group old=docs/benchmarks/gpu-2026-11-22.json
  gpt2_model
  if [[ $emulated == yes ]]; then
    small=(--small)
  else
    model=(--layers 12 --hidden 768 --heads 12 --seq 1024 --vocab 50304)
    steps=20
    shape_words=$(in_words "${model[@]}")
  fi
  for group in memory attention adamw; do
    status=0
    keep table "$program" "${small[@]}" "$group" || status=$?
    if ((status == 0)); then beside_old_run; fi
  done
  if [[ -z $rows ]]; then
    judge before "not measured" "$(reason_of "$status")" "$shown"
  else
    note "| | 2026-11-22, $(old_device) | now | now / then |
|---|---|---|---|$rows"
    judge before measured "the table below" "$program memory"
  fi
  plain_step
  switched_steps
}

old_figure() {
  sed -n "s|.*{\"name\": \"$1\", \"shape\": \"[^\"]*\", \"value\": \([0-9.]*\), \"unit\": \"$2\".*|\1|p" "$old" | head -n 1
}
old_device() { sed -n 's/.*"device": "\([^,"]*\).*/\1/p' "$old" | head -n 1; }

# Adds the rows of the table in $log to $rows, each with the older run's figure.
beside_old_run() {
  local name now unit older sizes
  sizes=$(grep -m 1 '^[0-9]* parameters, ' "$log" || true)
  while IFS=$'\t' read -r name now; do
    unit=${now##* } now=${now% *}
    older=$(old_figure "$name" "$unit")
    rows+="
| $name | ${older:-none} ${older:+$unit} | $now $unit | $(quotient "$now" "$older") |"
    figure "$name" "$(shape_of "$group" "$name" "$sizes")" "$now" "$unit" before
  done < <(awk -F ' *[|] *' -v OFS='\t' '$3 ~ /^[0-9.e-]+ (GB|TFLOP)\/s$/ { print $2, $3 }' "$log")
}

# step_ms_of NAME [OPTION...]: trains with the options, and sets $step_ms.
step_ms_of() {
  local status=0 steps_log=$work/predictions-$1.jsonl
  step_ms='' allowed=3 makes=("$steps_log")
  keep 5 "$build/tools/tessera" train --device cuda "${data[@]}" "${model[@]}" --precision bf16 \
    --batch "$top" --steps "$steps" --log "$steps_log" "${@:2}" || status=$?
  allowed='' makes=()
  if ((status == 0)); then
    step_ms=$(field seconds "$steps_log" | awk '{ printf "%.4g", 1000 * $1 }')
    figure "GPT-2 on one rank, a step${2:+, ${*:2}}" "$shape_words, batch $top" "$step_ms" ms "${step_bar:-step}"
  fi
  return "$status"
}

plain_step() {
  local status=0
  step_ms_of plain || status=$?
  plain_ms=$step_ms
  if [[ -n $plain_ms ]]; then
    judge step measured "$plain_ms ms" "$shown"
  else
    judge step "not measured" "$(reason_of "$status")" "$shown"
  fi
}

# Options that have a prediction. An option that this build lacks is reported.
prediction_options=("--graph" "--recompute block" "--recompute gelu" "--recompute layer-norm"
  "--master-weights remainder" "--dropout 0.1")
switched_steps() {
  local option text='' help step_bar=options measured=0
  help=$("$build/tools/tessera" train --help 2>/dev/null || true)
  for option in "${prediction_options[@]}"; do
    if ! has_option "$option" "$help"; then
      text+="
| $option | this build has no such option | |"
      continue
    fi
    # shellcheck disable=SC2086  # an option and its value
    step_ms_of "${option//[^a-z0-9]/}" $option || true
    if [[ -n $step_ms ]]; then measured=$((measured + 1)); fi
    text+="
| $option | ${step_ms:-no figure} | ${plain_ms:-no figure} |"
  done
  note "| option | ms a step with it | without |
|---|---|---|$text"
  if ((measured > 0)); then
    judge options measured "the table below" "$shown"
  else
    judge options "not measured" "none gave a figure" "$shown"
  fi
}

# has_option WORDS HELP: whether HELP has the option and, if its value is a word, the value.
has_option() {
  local name=${1%% *} value=${1#* }
  grep -qE -- "^ *$name( |\$)" <<<"$2" || return 1
  [[ $value == "$name" || $value =~ ^[0-9.]+$ ]] || grep -A 3 -E -- "^ *$name( |\$)" <<<"$2" | grep -qw -- "$value"
}
