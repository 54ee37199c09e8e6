#!/usr/bin/env bash
# The demonstration: builds the tessera command, trains a small GPT on real text under every strategy,
# with four ranks in one process, and shows the time and memory of each; then trains one longer run,
# until its loss has clearly fallen.
#
#   scripts/demo.sh [--data PATH] [OPTION...]
#
#   --data PATH   train on this file or folder of text instead of the texts of Debian's `fortunes`
#   OPTION...     passed to both `tessera compare` and `tessera train`, replacing the
#                 demonstration's own values, for instance --hidden 256 --heads 8, --ranks 2 or
#                 --batch 8; see `tessera train --help`
#
# Results: build/demo/report.html (open it in a browser), build/demo/compare.json,
# build/demo/compare.txt, build/demo/train.jsonl
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=$root/build/demo
data=
options=()

while (($# > 0)); do
  case $1 in
    -h | --help)
      sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    --data)
      (($# >= 2)) || { echo "error: --data needs a path" >&2; exit 2; }
      [[ -e $2 ]] || { echo "error: --data: '$2' does not exist" >&2; exit 2; }
      data=$(realpath -- "$2")
      shift 2
      ;;
    *)
      options+=("$1")
      shift
      ;;
  esac
done

# Whether the user gave option $1.
given() {
  local option
  for option in "${options[@]}"; do
    if [[ $option == "$1" ]]; then return 0; fi
  done
  return 1
}

# Sets $chosen to those of the options NAME VALUE ... that the user did not give.
defaults() {
  chosen=()
  while (($# > 0)); do
    given "$1" || chosen+=("$1" "$2")
    shift 2
  done
}

# Copies the texts of the fortunes package, without their indexes (.dat) and links (.u8).
collect_fortunes() {
  local file
  rm -rf "$out/text"
  mkdir -p "$out/text"
  for file in /usr/share/games/fortunes/*; do
    case $file in
      *.dat | *.u8) ;;
      *) if [[ -f $file ]]; then cp -L -- "$file" "$out/text/"; fi ;;
    esac
  done
}

if [[ -z $data ]]; then
  "$root/scripts/install_deps.sh" fortunes
else
  "$root/scripts/install_deps.sh"
fi

mkdir -p "$out"
cd "$root"
cmake --preset release >"$out/configure.log" || { cat "$out/configure.log"; exit 1; }
cmake --build --preset release --target tessera_command
tessera=$root/build/release/tools/tessera
if [[ -z $data ]]; then
  collect_fortunes
  data=$out/text
fi

model=(--layers 6 --hidden 256 --heads 8)
if given --model; then model=(); fi

printf '\n== the same model under every strategy\n'
defaults --ranks 4 --batch 2 --steps 20 "${model[@]}"
"$tessera" compare --data "$data" --strategies dp,ddp,zero1,zero2,zero3 \
  --json "$out/compare.json" --report "$out/report.html" "${chosen[@]}" "${options[@]}" | tee "$out/compare.txt"

printf '\n== a longer training run, sharded\n'
defaults --ranks 4 --batch 2 --steps 600 --strategy zero3 --lr 1e-3 --warmup 20 "${model[@]}"
"$tessera" train --data "$data" --log "$out/train.jsonl" "${chosen[@]}" "${options[@]}"

printf '\nThe comparison is in %s,\nthe log of the training in %s.\n' \
  "$out/compare.json" "$out/train.jsonl"
printf 'Open the report in a browser: %s\n' "$out/report.html"
