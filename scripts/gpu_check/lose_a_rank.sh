#!/usr/bin/env bash
# Kills a rank of a job of processes on one GPU in the middle of its work, and checks that the others
# exit within 10 s, before the launcher kills them after half a minute, each with an error that names
# the lost rank.
#
#   scripts/gpu_check/lose_a_rank.sh RANKS VICTIM COMMAND...
#
# COMMAND must print a line "step ..." once it is working, and run for long. The status is 3 if the
# others did not exit so, 1 if there was no rank to kill.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit

ranks=$1 victim=$2
shift 2
scratch=$(mktemp -d)
GRACE_S=30 scripts/nccl_one_gpu.sh -n "$ranks" -p "$scratch/processes" "$@" >"$scratch/out" 2>&1 &
job=$!
trap 'kill "$job" 2>/dev/null; wait "$job" 2>/dev/null; rm -rf "$scratch"' EXIT

wrong() {
  tail -n 20 "$scratch/out"
  echo "wrong: $2"
  exit "$1"
}

ends=$((SECONDS + ${START_S:-120}))
until grep -q '^step ' "$scratch/out"; do
  kill -0 "$job" 2>/dev/null || wrong 1 "the job ended before a step"
  ((SECONDS < ends)) || wrong 1 "there was no step within ${START_S:-120} s"
  sleep 0.1
done
process=$(sed -n "s/^$victim //p" "$scratch/processes")
[[ -n $process ]] || wrong 1 "the launcher has not said which process rank $victim is"
kill -0 "$process" 2>/dev/null || wrong 1 "rank $victim had ended before it could be killed"

begin=$(date +%s%N)
kill -KILL "$process" || wrong 1 "rank $victim could not be killed"
ends=$((SECONDS + 40))  # longer than the launcher waits
while kill -0 "$job" 2>/dev/null && ((SECONDS < ends)); do sleep 0.02; done
took=$((($(date +%s%N) - begin) / 1000000))
kill "$job" 2>/dev/null
wait "$job"
status=$?
trap 'rm -rf "$scratch"' EXIT

grep '^error: ' "$scratch/out"
names=$(grep -c "^error: .*rank $victim (" "$scratch/out")
echo "the others left $took ms after rank $victim was killed, status $status; $names of $((ranks - 1)) named it"
((status != 0)) || wrong 3 "the launcher exited with status 0"
((took < 10000)) || wrong 3 "that took longer than 10 s"
((names == ranks - 1)) || wrong 3 "only $names of the $((ranks - 1)) other ranks named rank $victim"
