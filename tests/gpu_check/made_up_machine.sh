# A fictitious machine for the tests of scripts/gpu_check.sh, which source this file:
# fake/program.sh under the names of all programs. A test is a list of scenarios: functions that run
# in separate folders, several at a time because they wait for deadlines.
#
# The test's script takes one argument, the folder for all files.

root=$1
rm -rf "$root"
mkdir -p "$root"
root=$(realpath "$root")
python=$(command -v python3)
for name in build/tools/tessera build/bench/cuda/tessera_cuda_bench build/tests/test_comm \
  build/tests/test_kernels build/tests/cuda/test_cuda build/tests/cuda/test_cuda_comm build/tests/cuda/test_cuda_parity \
  build/tests/cuda_cli/test_cuda_cli build/tests/nccl/test_nccl_parity build/tests/nccl/test_nccl_fault \
  build/tests/nccl/failing_rank build/cuda_trainer/cuda_trainer bin/nvidia-smi bin/compute-sanitizer bin/python3; do
  install -D tests/gpu_check/fake/program.sh "$root/machine/$name"
done
export FAKE_PYTHON=$python

# fail TEXT: ends the scenario.
fail() {
  echo "$1"
  echo "--- output"
  cat "$scratch/output"
  echo "--- page"
  cat "$scratch/gpu.md" 2>/dev/null
  exit 1
}

# check STATUS [VARIABLE=VALUE...] -- ARGUMENT...: runs the script, in a fresh folder unless KEEP is
# set, and expects STATUS.
check() {
  local wanted=$1 variables=() status=0
  shift
  while [[ $1 != -- ]]; do variables+=("$1"); shift; done
  shift
  [[ -n ${KEEP-} ]] || rm -rf "$scratch/work" "$scratch"/{gpu.md,gpu.json,products.json}
  rm -f "$scratch/rank-1"
  : >"$FAKE_CALLS"
  env PATH="$scratch/bin:$PATH" HOME=/ "${variables[@]}" scripts/gpu_check.sh --build "$scratch/build" \
    --work "$scratch/work" --out "$scratch" --commit "some commit" "$@" >"$scratch/output" 2>&1 || status=$?
  [[ $status == "$wanted" ]] || fail "status $status, not $wanted, of ${variables[*]} $*"
}

# has TEXT...: the page has a line with all of these words, in this order.
has() {
  local pattern
  pattern=$(printf '%s.*' "$@")
  grep -qE -- "$pattern" "$scratch/gpu.md" || fail "the page has no line '$*'"
}
has_not() { ! grep -qE -- "$1" "$scratch/gpu.md" || fail "the page has '$1'"; }
says() { grep -qF -- "$1" "$scratch/output" || fail "the output has no '$1'"; }
calls() { grep -cE -- "$1" "$FAKE_CALLS" || true; }

# Prints the figures of a gpu.json, one per line.
figures_of() {
  "$python" -c '
import json, sys
for part in json.load(open(sys.argv[1]))["parts"]:
    for f in part["figures"]:
        print(part["name"], f["name"], f["shape"], f["value"], f["unit"], f["bar"], f["verdict"], sep=" | ")
' "$1"
}

# scenario NAME: runs in a separate process and in a separate folder, $scratch.
scenario() {
  local began=$SECONDS
  scratch=$root/$1
  export FAKE_FOLDER=$scratch FAKE_CALLS=$scratch/calls
  cp -r "$root/machine" "$scratch"
  "$1"
  echo "$1: $((SECONDS - began)) s" >"$root/$1.passed"
}

# run_scenarios NAME...: prints the output of failed scenarios; status 1 if any failed.
run_scenarios() {
  local name running=0 status=0
  for name in "$@"; do
    if ((running >= 4)); then wait -n || true; running=$((running - 1)); fi
    scenario "$name" >"$root/$name.log" 2>&1 &
    running=$((running + 1))
  done
  wait
  for name in "$@"; do
    if [[ -f $root/$name.passed ]]; then
      cat "$root/$name.passed"
    else
      printf '%s FAILED\n' "$name"
      cat "$root/$name.log"
      status=1
    fi
  done
  return "$status"
}
