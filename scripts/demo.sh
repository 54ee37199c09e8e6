#!/usr/bin/env bash
# The demonstration: builds the tessera command, trains a small GPT on real text, four ranks in one
# process, under every strategy, and shows what each costs in time and memory; then trains on until
# the loss has clearly fallen.
#
#   scripts/demo.sh [--data PATH] [OPTION...]
#
#   --data PATH   train on this file or folder of text instead of the texts of Debian's `fortunes`
#   OPTION...     handed on to both `tessera compare` and `tessera train`, for instance
#                 --hidden 256 --heads 8, or --ranks 2; see `tessera train --help`
#
# Results: build/demo/compare.json, build/demo/compare.txt, build/demo/train.jsonl
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
      data=$(realpath -- "$2")
      shift 2
      ;;
    *)
      options+=("$1")
      shift
      ;;
  esac
done

# The texts of the fortunes package, without their indexes (.dat) and links (.u8).
collect_fortunes() {
  local from=/usr/share/games/fortunes to=$out/text file
  rm -rf "$to"
  mkdir -p "$to"
  for file in "$from"/*; do
    case $file in
      *.dat | *.u8) ;;
      *) if [[ -f $file ]]; then cp -L -- "$file" "$to/"; fi ;;
    esac
  done
  data=$to
}

if [[ -z $data ]]; then
  "$root/scripts/install_deps.sh" fortunes
else
  "$root/scripts/install_deps.sh"
fi

mkdir -p "$out"
(
  cd "$root"
  cmake --preset release >"$out/configure.log" || { cat "$out/configure.log"; exit 1; }
  cmake --build --preset release --target tessera_command
)
tessera=$(find "$root/build/release" -type f -name tessera -perm -u+x | head -n 1)
if [[ -z $data ]]; then
  collect_fortunes
fi

common=(--data "$data" --ranks 4)
for option in ${options[@]+"${options[@]}"}; do
  if [[ $option == --ranks ]]; then common=(--data "$data"); fi
done

echo
echo "== the same model under every strategy, four ranks in this process"
"$tessera" compare "${common[@]}" --strategies dp,ddp,zero1,zero2,zero3 --steps 20 \
  --json "$out/compare.json" ${options[@]+"${options[@]}"} | tee "$out/compare.txt"

echo
echo "== training under zero3"
"$tessera" train "${common[@]}" --strategy zero3 --steps 400 --lr 1e-3 --warmup 20 \
  --log "$out/train.jsonl" ${options[@]+"${options[@]}"}

echo
echo "The comparison is in $out/compare.json, the log of the training in $out/train.jsonl."
