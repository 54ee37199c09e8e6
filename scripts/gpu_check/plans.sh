# Part plans of scripts/gpu_check.sh: the steps on one rank that parts train and predictions measured,
# compared with what `tessera plan --time` says, by a profile of the figures of part kernels. The
# figures may be of an earlier call.

part_plans() {
  bar plans "steps that tessera plan --time plans with the figures of part kernels: at least 5 within 10 % of the measured ones, and GPT-2's without options"
  local kind name shape seconds options other='' profile=$work/machine.json measured=$work/measured.json status=0
  local rows='' within=0 planned=0 outside='' refused='' count=0 steps plain=yes
  if [[ -z $python ]]; then
    judge plans "not measured" "no python3 reads the figures"
    return
  elif [[ ! -f $work/parts/kernels.json ]]; then
    judge plans "not measured" "there are no figures of part kernels: run it first"
    return
  fi
  figures_py join "$work/parts" "$measured" kernels
  allowed=2 makes=("$profile")
  keep 6 "$build/tools/tessera" bench machine --from "$measured" --json "$profile" || status=$?
  allowed='' makes=()
  if ((status != 0)); then
    judge plans "not measured" "no profile: $(reason_of "$status"): $(tail -n 1 "$log" | plain)" "$shown"
    return
  fi
  if ! steps=$("$python" -S scripts/gpu_check/plans.py "$work/parts" train predictions); then
    fails "the figures of parts train and predictions could not be read"
    return
  fi
  while IFS=$'\t' read -r kind name shape seconds options; do
    case "$kind" in
      step) compare_plan ;;
      other) other+="; part $name is of another device or commit than part kernels: $shape, $seconds" ;;
    esac
  done <<<"$steps"
  if [[ -n $rows ]]; then
    note "| step | size | measured, ms | planned, ms | error |
|---|---|---|---|---|$rows"
  fi
  judge_plans
}

# Plans the step of one line of plans.py, and compares the plan with the measurement.
compare_plan() {
  local status=0 planned_seconds='' error='' words json
  count=$((count + 1)) json=$work/plan-$count.json
  read -ra words <<<"$options"
  allowed=2 makes=("$json")
  keep 6 "$build/tools/tessera" plan --for cuda --precision bf16 --ranks 1 --strategy ddp "${words[@]}" \
    --time "$profile" --json "$json" || status=$?
  allowed='' makes=()
  if ((status == 0)); then
    planned_seconds=$(sed -n 's/.*"seconds_per_step": \([0-9.e+-]*\).*/\1/p' "$json" | head -n 1)
  fi
  if ! is_number "$planned_seconds"; then
    refused+="${refused:+; }$name"
    rows+="
| $name | $shape | $(ms "$seconds") | none: $(tail -n 1 "$log" | plain) | |"
    return
  fi
  planned=$((planned + 1))
  error=$(awk -v plan="$planned_seconds" -v step="$seconds" 'BEGIN { print 100 * (plan / step - 1) }')
  if is_more "${error#-}" 10; then
    outside+="${outside:+; }$name $(printf '%+.1f' "$error") %"
    if [[ $name == *": GPT-2 on one rank" ]]; then plain=no; fi
  else
    within=$((within + 1))
  fi
  rows+="
| $name | $shape | $(ms "$seconds") | $(ms "$planned_seconds") | $(printf '%+.1f' "$error") % |"
  figure "$name, planned" "$shape" "$(ms "$planned_seconds")" ms
  figure "$name, planned / measured" "$shape" "$(quotient "$planned_seconds" "$seconds")" ratio
}

ms() { awk -v seconds="$1" 'BEGIN { printf "%.4g", 1000 * seconds }'; }

judge_plans() {
  local told="$within of $planned within 10 %${outside:+; not: $outside}${refused:+; not planned: $refused}$other"
  if ((count == 0)); then
    other=${other#; }
    judge plans "not measured" "${other:-there are no steps of parts train and predictions: run them first}"
  elif ((planned < 5)); then
    judge plans "not measured" "fewer than 5 steps were measured and planned: $told" "$shown"
  else
    figure "steps planned within 10 %" "of $planned" "$within" steps plans
    # Variants of one model share most of their error: they alone do not meet the bar.
    if [[ $plain == no ]]; then within=0; fi
    best_at_least plans "$within" 5 "$told" "$shown"
  fi
}
