# Part test of scripts/gpu_check.sh: every CUDA test, each suite in its own process, so that a crash
# ends only one suite; and two comparisons with figures.

part_test() {
  bar kernels "every CUDA kernel against its reference, at odd sizes, misaligned, poisoned"
  bar device "its streams, events, graphs, copies and errors, and what else only a CUDA device has"
  bar comm "ranks that are threads on one device: what every communicator must do"
  bar parity "strategies bit-identical, N = 1, 2, 4, 8; a step as one graph has the same bits"
  bar command "the command on a device: losses, plans = bytes held, ledger"
  bar losses "fp32 losses on the device within 1e-4 of the processor's, 50 steps"
  bar trainer "a CUDA trainer as people write them, plain and wrapped: the same losses, bytes as planned"
  bar bits "losses of all strategies bit-identical, of hybrid in two groups to 1e-5, 'local' on one device, N = 1, 2, 4, 8"
  : >"$work/skipped"
  printf '| suite | passed | skipped | failed | s |\n|---|---|---|---|---|\n' >"$work/suites"
  # The command's suites run one at a time: its ledgers read the device's free memory.
  program_tests kernels test_kernels 4 '*/cuda'
  program_tests device cuda/test_cuda 4
  program_tests comm cuda/test_cuda_comm 1
  program_tests parity cuda/test_cuda_parity 3
  program_tests command cuda_cli/test_cuda_cli 1
  plain <"$work/suites" >>"$section"
  echo >>"$section"
  if [[ -s $work/skipped ]]; then
    note "Skipped, with the reasons that the tests give:"
    sort -u "$work/skipped" | sed 's/^/- /' | plain | tee -a "$section"
    echo >>"$section"
  fi
  beside_the_processor
  own_trainer
  every_strategy
}

# Runs examples/cuda_trainer.cu. The emulated module has no doubles of its kernels, cuBLAS and Thrust.
own_trainer() {
  local status=0 apart program=$build/cuda_trainer/cuda_trainer
  if [[ $emulated == yes ]]; then
    judge trainer "not measured" "cuBLAS, Thrust and kernels of its own have no double"
    return
  fi
  if [[ ! -x $program ]]; then
    judge trainer "not measured" "$(not_built "cuda_trainer/cuda_trainer")"
    return
  fi
  keep 8 "$program" zero3 2 || status=$?
  apart=$(sed -n 's/^largest difference: \([^ ]*\) of the loss$/\1/p' "$log")
  if ((status == 124)) || ! is_number "$apart"; then
    judge trainer "not measured" "$(reason_of "$status")" "$shown"
    return
  fi
  figure "CUDA trainer, plain and wrapped, most apart" "zero3, 2 ranks, 60 steps" "$apart" loss trainer
  if ((status == 0)); then
    judge trainer met "at most $apart of the loss apart, bytes as planned" "$shown"
  else
    judge trainer "NOT met" "$apart of the loss apart, or not as planned" "$shown"
  fi
}

# suites_of PROGRAM CASES: prints the suites that have CASES, a GoogleTest filter, one per line.
suites_of() { "$1" --gtest_list_tests --gtest_filter="$2" 2>/dev/null | sed -n 's/^\([^ #]*\)\..*/\1/p'; }

# program_tests BAR PROGRAM JOBS [CASES]: runs the program's suites, JOBS at a time, and judges the
# bar. CASES selects cases of each suite, as a GoogleTest filter; default: all.
program_tests() {
  local id=$1 program=$build/tests/$2 jobs=$3 cases=${4:-*} suite suites running=0 rows
  if [[ ! -x $program ]]; then
    fails "$(not_built "tests/$2")"
    judge "$id" "not measured" "tests/$2 is not built"
    return
  fi
  mapfile -t suites < <(suites_of "$program" "$cases")
  if ((${#suites[@]} == 0)); then
    fails "tests/$2 cannot be started"
    judge "$id" "NOT met" "tests/$2 cannot be started"
    return
  fi
  if [[ $emulated == yes ]]; then suites=("${suites[0]}"); fi
  rm -f "$work/logs/test-${program##*/}"-*.row
  for suite in "${suites[@]}"; do
    if ((running >= jobs)); then wait -n || true; running=$((running - 1)); fi
    run_suite "$program" "$suite" "$cases" &
    running=$((running + 1))
  done
  wait
  rows=
  for suite in "${suites[@]}"; do
    rows+=$(cat "$work/logs/test-${program##*/}-${suite//\//-}.log.row" 2>/dev/null || echo "$suite 0 0 0 0 lost")$'\n'
  done
  judge_suites "$id" "$2" "$rows"
}

# run_suite PROGRAM SUITE CASES: runs a suite in its own process, and writes suite, passed, skipped,
# failed, seconds and status to a file.
run_suite() {
  local program=$1 suite=$2 cases=$3 status=0 begin=$SECONDS left filter limit=${SUITE_SECONDS:-300}
  local log=$work/logs/test-${program##*/}-${suite//\//-}.log done_before
  done_before=$work/done/$part/${program##*/}-${suite//\//-}
  if [[ -f $done_before ]]; then
    cp "$done_before" "$log.row"
    return
  fi
  left=$(seconds_left)
  : >"$log"
  if ((left < 5)); then
    echo "$suite 0 0 0 0 cut" >"$log.row"
    return
  fi
  if ((limit > left)); then limit=$left; fi
  filter="$suite.$cases"
  if [[ $emulated == yes ]]; then filter=$(first_test "$program" "$filter"); fi
  timeout --kill-after=10 "$limit" "$program" --gtest_filter="$filter" --gtest_color=no \
    >"$log" 2>&1 </dev/null || status=$?
  if ((limit == left)) && ran_out "$status" $((SECONDS - begin)) "$limit"; then status="cut"; fi
  printf '%s %s %s %s %s %s\n' "$suite" "$(ended OK "$log")" "$(ended SKIPPED "$log")" \
    "$(ended FAILED "$log")" "$((SECONDS - begin))" "$status" | tee "$log.row" |
    awk '{ print $1 ": " $2 " passed, " $3 " skipped, " $4 " failed, " $5 " s" }'
  if [[ $status == 0 ]]; then cp "$log.row" "$done_before"; fi
}

# first_test PROGRAM FILTER: prints the first case; with the emulated module, one is enough to test
# this script.
first_test() {
  "$1" --gtest_list_tests --gtest_filter="$2" | awk '!/^ / { suite = $1 } /^ / && !n++ { print suite $1 }'
}

# ended RESULT LOG: counts the tests with this result, by lines with times; the summary has none.
ended() { grep -cE "^\[ +$1 +\] .* \([0-9]+ ms\)$" "$2" || true; }

# judge_suites BAR PROGRAM ROWS: writes the suites' rows of the table, and judges the bar.
judge_suites() {
  local suite passed skipped wrong seconds status all=0 without=0 bad=0 late=0 log
  while read -r suite passed skipped wrong seconds status; do
    log=$work/logs/test-${2##*/}-${suite//\//-}.log
    all=$((all + passed)) without=$((without + skipped)) bad=$((bad + wrong))
    if [[ $status == cut ]]; then
      late=$((late + 1))
      no_time "$2 --gtest_filter=$suite.*"
    elif [[ $status != 0 ]]; then
      if ((wrong == 0)); then bad=$((bad + 1)) wrong="ended by status $status"; fi
      fails "\`$suite\` of tests/$2, status $status"
      { printf '```\n'; grep -vE '^\[ +(OK|RUN) ' "$log" | tail -n 30; printf '```\n\n'; } | plain | tee -a "$section"
    fi
    echo "| $suite | $passed | $skipped | $wrong | $seconds |" >>"$work/suites"
    if [[ -f $log ]]; then
      awk '/: Skipped$/ { getline; reason = $0 } /^\[  SKIPPED \] .*\(/ { print $4 ": " reason }' "$log" >>"$work/skipped"
    fi
  done <<<"${3%$'\n'}"
  local figure="$all passed, $without skipped, $bad failed"
  if ((late == 0)); then
    figure "tests/$2, passed" "" "$all" tests "$1"
    figure "tests/$2, skipped" "" "$without" tests "$1"
    figure "tests/$2, failed" "" "$bad" tests "$1"
  fi
  if ((bad > 0)); then
    judge "$1" "NOT met" "$figure" "$2"
  elif ((late > 0)); then
    judge "$1" "not measured" "$figure, and no time for $late suites" "$2"
  elif ((all == 0)); then
    fails "no test of tests/$2 has passed"
    judge "$1" "not measured" "$figure" "$2"
  else
    judge "$1" met "$figure" "$2"
  fi
}

small_model() {
  small=(--data README.md --precision fp32)
  if [[ $emulated == yes ]]; then small+=(--layers 1 --hidden 16 --heads 2 --seq 8 --vocab 256 --batch 1); fi
}

# Trains the same model on the device and on the processor, and compares the losses.
beside_the_processor() {
  local small device status=0 apart steps=50
  small_model
  if [[ $emulated == yes ]]; then steps=5; fi
  for device in cpu cuda; do
    makes=("$work/losses-$device.jsonl")
    keep 3 "$build/tools/tessera" train "${small[@]}" --steps "$steps" --device "$device" \
      --log "${makes[0]}" || status=$?
    makes=()
  done
  if ((status != 0)); then
    judge losses "not measured" "$(reason_of "$status")" "$shown"
    return
  fi
  apart=$(paste <(losses_of cpu) <(losses_of cuda) | awk 'NF == 2 { n++; d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d }
    END { printf "%d %.3g", n, most }')
  if [[ ${apart% *} != "$steps" ]]; then
    judge losses "not measured" "only ${apart% *} of $steps steps have a loss" "$shown"
    return
  fi
  figure "fp32 losses, most apart from the processor's" "$steps steps" "${apart#* }" loss losses
  if awk -v apart="${apart#* }" 'BEGIN { exit !(apart < 1e-4) }'; then
    judge losses met "at most ${apart#* } apart in $steps steps" "$shown"
  else
    judge losses "NOT met" "${apart#* } apart in $steps steps" "$shown"
  fi
}

losses_of() { sed -n 's/.*"loss":\([0-9.e+-]*\).*/\1/p' "$work/losses-$1.jsonl"; }

# Compares all strategies. Hybrid in two groups of one rank equals ddp to the bit; larger groups add in
# another order.
every_strategy() {
  local small ranks numbers=(1 2 4 8) steps=20 good=() status=0 apart=0
  small_model
  if [[ $emulated == yes ]]; then numbers=(2) steps=2; fi
  for ranks in "${numbers[@]}"; do
    keep 4 "$build/tools/tessera" compare "${small[@]}" --steps "$steps" --device cuda --ranks "$ranks" \
      --shard-group "$(((ranks + 1) / 2))" || status=$?
    if ((status != 0)); then break; fi
    if strategies_agree; then good+=("$ranks"); fi
  done
  if ((status != 0)); then
    judge bits "not measured" "$(reason_of "$status")" "$shown"
    return
  fi
  figure "fp32 losses, hybrid's most apart from dp's" "N = ${numbers[*]}, $steps steps" "$apart" loss bits
  if ((${#good[@]} == ${#numbers[@]})); then
    judge bits met "N = ${good[*]}, $steps steps; hybrid at most $apart apart" "$shown"
  else
    judge bits "NOT met" "of N = ${numbers[*]} only ${good[*]:-none}" "$shown"
  fi
}

# Whether the comparison in $log reports that the losses agree; sets $apart to hybrid's largest
# difference.
strategies_agree() {
  local within
  within=$(sed -n 's/^losses: bit-identical under 5 strategies.*; hybrid,.* within \([^ ]*\) of .*/\1/p' "$log")
  if [[ -z $within ]]; then
    grep -q '^losses: bit-identical under all' "$log"
    return
  fi
  apart=$(printf '%s\n' "$apart" "$within" | sort -g | tail -n 1)
  awk -v within="$within" 'BEGIN { exit !(within <= 1e-5) }'
}
