# Part sanitize of scripts/gpu_check.sh: runs the four tools of compute-sanitizer on the tests of
# kernels, each with its own time limit.

part_sanitize() {
  local tool command tools=(memcheck racecheck initcheck synccheck) left=0 status
  for tool in "${tools[@]}"; do bar "$tool" "compute-sanitizer's $tool finds nothing"; done
  if [[ $emulated == yes ]] || ! command -v compute-sanitizer >/dev/null; then
    for tool in "${tools[@]}"; do judge "$tool" "not measured" "no compute-sanitizer, or no device for it"; done
    return
  fi
  # Racecheck checks only shared memory, so it runs the kernels that sum in it.
  local sums='*SquaredNorm*/cuda:*LayerNorm*/cuda:*CrossEntropy*/cuda:*Bias*/cuda:*Attention*/cuda:*Embedding*/cuda'
  local kernels='*/cuda'
  declare -A filters=([memcheck]="$kernels" [racecheck]="$sums" [initcheck]="$kernels" [synccheck]="$sums")
  for tool in "${tools[@]}"; do
    tool_command "$tool"
    is_done "${command[@]}" || left=$((left + 1))
  done
  for tool in "${tools[@]}"; do
    status=0 cap=''
    tool_command "$tool"
    if ! is_done "${command[@]}"; then cap=$(($(seconds_left) / left)) left=$((left - 1)); fi
    allowed=any
    keep 12 "${command[@]}" || status=$?
    allowed=''
    judge_tool "$tool" "$status"
  done
  cap=''
}

# tool_command TOOL: sets $command. It excludes tests of long sequences, which check bits and would
# take hours under a tool, and of products, which cuBLASLt computes.
tool_command() {
  command=(compute-sanitizer --tool "$1" --error-exitcode 9 --print-limit 20 "$build/tests/test_kernels"
    --gtest_brief=1 --gtest_filter="${filters[$1]}-*LongSequence*:*MatMul*")
}

# judge_tool TOOL STATUS: a tool that refuses the device finds nothing and counts no errors; the output
# of the programs may also mention unsupported features.
judge_tool() {
  local refusal summary
  refusal=$(grep -m 1 -iE '^=+ .*(not supported|unable to find)' "$log" || true)
  summary=$(grep -E '^=+ .*SUMMARY' "$log" | tail -n 1 | sed 's/^=* *//' || true)
  if [[ $summary =~ ([0-9]+)" error" ]]; then figure "$1, errors" "" "${BASH_REMATCH[1]}" errors "$1"; fi
  if (($2 == 124)); then
    judge "$1" "not measured" "there was no time for it, or for its end: $cap s" "$shown"
  elif (($2 == 0)) && [[ -n $summary ]]; then
    judge "$1" met "$summary" "$shown"
  elif (($2 != 9)) && [[ -n $refusal && ! $summary =~ [1-9][0-9]*\ error ]]; then
    judge "$1" "not measured" "it refuses this device: ${refusal##*= }" "$shown"
  else
    fails "$1, status $2"
    judge "$1" "NOT met" "status $2; ${summary:-no summary}" "$shown"
  fi
}
