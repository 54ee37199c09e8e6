# Part nccl of scripts/gpu_check.sh: jobs of processes that use this machine's NCCL.

part_nccl() {
  bar one "NCCL, a job of one process: training, what every communicator must do, parity of strategies"
  bar several "NCCL, several processes on one card, each with an NCCL_HOSTID of its own"
  bar suites "NCCL, several processes: what every communicator must do, parity, faults"
  bar lost "NCCL, one of three processes killed: the others leave within 10 s with its name"
  local model data shape shape_words top steps refusal='' sizes=(2 4)
  gpt2_model
  if [[ $emulated == yes ]]; then sizes=(2); fi
  local tests=$build/tests launch=scripts/nccl_one_gpu.sh failing
  failing=$(find "$build/tests" -name failing_rank -type f -print -quit 2>/dev/null || true)
  if [[ -z $failing ]]; then
    fails "$(not_built tests/nccl)"
    return
  fi
  local train=("$build/tools/tessera" train --device cuda "${data[@]}" "${model[@]}" --precision bf16
    --batch 1 --strategy zero3 --comm nccl)
  job_of_one
  if joins_several; then
    lose_one
    job_of_several
  fi
  unset NCCL_MULTI_RANK_GPU_ENABLE
}

# passes COMMAND...: runs a command that must succeed. Adds a failure to $bad, and counts a lack of
# time in $late.
passes() {
  local status=0
  keep 8 "$@" || status=$?
  if ((status == 124)); then
    late=$((late + 1))
  elif ((status != 0)); then
    bad+="${bad:+, }\`$shown\`: $(reason_of "$status")"
  fi
}

# verdict ID FIGURE COMMAND: judges the commands that ran since $bad was emptied.
verdict() {
  if [[ -n $bad ]]; then
    judge "$1" "NOT met" "$bad"
  elif ((late > 0)); then
    judge "$1" "not measured" "there was no time for $late commands" "$3"
  else
    judge "$1" met "$2" "$3"
  fi
}

job_of_one() {
  local bad='' late=0
  passes "$launch" -n 1 "${train[@]}" --steps 4
  suites_of_size 1
  verdict one "all pass" "$launch -n 1 ..."
}

suites_of_size() {
  passes "$launch" -n "$1" "$tests/test_comm" --gtest_brief=1 --gtest_filter="$(conformance)"
  passes "$launch" -n "$1" "$tests/nccl/test_nccl_parity" --gtest_brief=1 --gtest_filter="$(parity)"
}
conformance() { if [[ $emulated == yes ]]; then echo '*Conformance.AnEmptyBatch*'; else echo '*Conformance*'; fi; }
parity() { if [[ $emulated == yes ]]; then echo 'NcclWorld*'; else echo '*'; fi; }

# Whether NCCL accepts two processes on one card: as two hosts, or directly in newer versions.
joins_several() {
  local status=0 probe=(env NCCL_DEBUG=WARN "$launch" -n 2 "$failing" succeed 60000)
  allowed=any
  keep 20 "${probe[@]}" || status=$?
  if ((status != 0)) && refusal=$(is_refusal) && [[ -n $refusal ]]; then
    export NCCL_MULTI_RANK_GPU_ENABLE=1
    probe=(env NCCL_MULTI_RANK_GPU_ENABLE=1 "${probe[@]:1}")
    status=0
    keep 20 "${probe[@]}" || status=$?
  fi
  allowed=''
  if ((status == 0)); then
    judge several met "accepted${refusal:+, with NCCL_MULTI_RANK_GPU_ENABLE=1 alone; without: $refusal}" "$shown"
    return 0
  fi
  if ((status == 124)); then
    judge several "not measured" "$(reason_of "$status")" "$shown"
  elif [[ -n $refusal ]]; then
    judge several refused "NCCL: $refusal" "$shown"
  else
    fails "status $status of \`$shown\`"
    judge several "NOT met" "status $status, and not for a refusal of NCCL's" "$shown"
  fi
  judge suites "not measured" "no job of several processes"
  judge lost "not measured" "no job of several processes"
  return 1
}

# Prints NCCL's message if it refused two ranks on one card.
is_refusal() {
  { grep -m 1 -iE 'duplicate gpu|same (cuda )?device|multiple ranks.*(gpu|device)' "$log" || true; } |
    sed 's/^.*NCCL WARN *//' | plain
}

job_of_several() {
  local bad='' late=0 ranks
  passes env NCCL_DEBUG=WARN "$launch" -n 2 "${train[@]}" --steps 4
  for ranks in "${sizes[@]}"; do suites_of_size "$ranks"; done
  local faults=()
  if [[ $emulated == yes ]]; then faults=(--gtest_filter='NcclFault.AJobOfOneWorks:JobFault.AHealthyJob*'); fi
  passes "$tests/nccl/test_nccl_fault" --gtest_brief=1 "${faults[@]}"
  verdict suites "$(IFS=,; echo "${sizes[*]}") processes: all pass" "$launch -n N ..."
}

lose_one() {
  local status=0 said
  allowed=3
  keep 12 scripts/gpu_check/lose_a_rank.sh 3 1 "${train[@]}" --steps 1000000 || status=$?
  allowed=''
  said=$(grep '^the others left' "$log" | tail -n 1 || true)
  if [[ $said =~ ^"the others left "([0-9]+)" ms" ]]; then
    figure "NCCL, from the death of a rank until the others have left" "3 processes" "${BASH_REMATCH[1]}" ms lost
  fi
  if ((status == 0)); then
    judge lost met "$said" "$shown"
  elif ((status == 124)); then
    judge lost "not measured" "$(reason_of "$status")" "$shown"
  else
    judge lost "NOT met" "${said:-$(tail -n 1 "$log" | plain)}" "$shown"
  fi
}
