#!/usr/bin/env bash
# Lists the values of TESSERA_CPU (docs/determinism.md) with which this machine computes products in
# different ways, one per line, its own way first; those that it lacks go to stderr, with the reason.
#
#   scripts/cpu_combinations.sh TESSERA    TESSERA: the command, such as build/release/tools/tessera
set -euo pipefail

command=${1:?usage: scripts/cpu_combinations.sh TESSERA}
unset TESSERA_CPU
declare -A seen
for words in native avx2 avx512,intel avx512,amd avx512-bf16,intel avx512-bf16,amd native,intel native,amd; do
  status=0
  output=$(TESSERA_CPU=$words "$command" doctor 2>&1) || status=$?
  if ((status == 2)); then
    echo "without $words: $output" >&2
    continue
  elif ((status != 0)); then
    echo "error: 'TESSERA_CPU=$words $command doctor' ended with status $status: $output" >&2
    exit 1
  fi
  products=$(sed -n 's/^ *matrix products *//p' <<<"$output")
  if [[ -z $products ]]; then
    echo "error: '$command doctor' has no line 'matrix products'" >&2
    exit 1
  fi
  if [[ -n ${seen[$products]:-} ]]; then
    echo "without $words: the same products as ${seen[$products]}" >&2
    continue
  fi
  seen[$products]=$words
  echo "$words"
done
