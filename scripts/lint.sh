#!/usr/bin/env bash
# Runs the gates: clang-format over every C, C++ and CUDA file, shellcheck over every script, plain words
# over every text, tolerances over every test, clang-tidy over the sources of a change. The status is 1
# if a gate finds something, 2 if the gates cannot run.
#
#   scripts/lint.sh              clang-tidy reads what differs from the merge base with origin/main
#                                or main, uncommitted files included; on main itself, from the last
#                                commit but one
#   scripts/lint.sh --base REV   clang-tidy reads what differs from the merge base with REV
#   scripts/lint.sh --all        clang-tidy reads every source
#   scripts/lint.sh --fix        formats the files first
#
# clang-tidy reads a changed header through one source that includes it, and reads up to 16 such
# sources. This configures the folder build/lint for it, with clang and without nvcc, and builds
# nothing.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The only supported version of clang's tools: others format differently and find other things.
llvm=19

all=no fix=no base=''
while (($# > 0)); do
  case "$1" in
    --all) all=yes ;;
    --fix) fix=yes ;;
    --base)
      (($# > 1)) || { echo "error: --base needs a revision" >&2; exit 2; }
      base=$2
      shift
      ;;
    -h | --help)
      sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *)
      echo "error: '$1' is unknown; see scripts/lint.sh --help" >&2
      exit 2
      ;;
  esac
  shift
done

missing=()
for program in "clang++-$llvm=clang-$llvm" "clang-format-$llvm" "clang-tidy-$llvm" shellcheck; do
  command -v "${program%=*}" >/dev/null || missing+=("${program#*=}")
done
if ((${#missing[@]} > 0)); then
  echo "error: the gates need more packages: apt-get install ${missing[*]}" >&2
  exit 2
fi

failed=()
# gate NAME WHAT COMMAND...: runs COMMAND. If it succeeds, prints one line with WHAT, which the
# command may set, and the seconds.
gate() {
  local name=$1 what=$2 began=$SECONDS
  shift 2
  if "$@"; then
    printf '%-12s  %s, %s s\n' "$name" "$what" $((SECONDS - began))
  else
    printf '%-12s  FAILED after %s s, see above\n' "$name" $((SECONDS - began))
    failed+=("$name")
  fi
}

# files PATTERN...: prints the tracked and the untracked files that exist.
files() {
  local file
  git ls-files --cached --others --exclude-standard -- "$@" ':!third_party' | sort -u |
    while IFS= read -r file; do
      if [[ -f $file ]]; then printf '%s\n' "$file"; fi
    done
}

mapfile -t code < <(files '*.cpp' '*.hpp' '*.c' '*.cu' '*.cuh' '*.h' '*.inc')
format() { printf '%s\n' "${code[@]}" | xargs -P "$(nproc)" -n 64 "clang-format-$llvm" "$@"; }
check_format() {
  format --dry-run --Werror --ferror-limit=1 && return
  echo "scripts/lint.sh --fix formats them"
  return 1
}
if [[ $fix == yes ]]; then format -i; fi
gate clang-format "${#code[@]} files" check_format

# A script's first line names its interpreter. A file without such a line is checked together with
# the script that sources it, which defines its variables.
scripts=() pieces=()
while IFS= read -r file; do
  line=''
  IFS= read -r line <"$file" || true
  if [[ $line =~ ^'#!'.*(bash|/sh|[[:space:]]sh) ]]; then
    scripts+=("$file")
  elif [[ $file == *.sh ]]; then
    pieces+=("$file")
  fi
done < <(files '*.sh' .ci scripts bench tests)
check_scripts() {
  local piece status=0
  for piece in "${pieces[@]}"; do
    grep -qxF -- "source $piece" "${scripts[@]}" && continue
    echo "$piece: no script has the line \"source $piece\", so nothing checks it"
    status=1
  done
  shellcheck --external-sources --check-sourced "${scripts[@]}" || status=1
  return "$status"
}
gate shellcheck "$((${#scripts[@]} + ${#pieces[@]})) files" check_scripts
gate plain-words "$(git ls-files | wc -l) files" python3 scripts/plain_words.py
gate tolerances "$(files tests | wc -l) files" python3 scripts/tolerances.py

# Sets $base to the commit that the change is compared with, and $compared to its description. A
# shallow clone may not have such a commit: then only uncommitted changes count.
find_base() {
  local name head merge_base
  head=$(git rev-parse HEAD)
  for name in ${base:+"$base"} origin/main main; do
    if ! git rev-parse --quiet --verify "$name^{commit}" >/dev/null ||
      ! merge_base=$(git merge-base "$name" HEAD); then
      if [[ $name == "$base" ]]; then echo "note: $base is unknown here"; fi
      continue
    fi
    if [[ $name == "$base" || $merge_base != "$head" ]]; then
      base=$merge_base
      compared="the merge base with $name, $(git rev-parse --short "$base")"
      return
    fi
    break
  done
  if base=$(git rev-parse --quiet --verify HEAD~1); then
    compared="the last commit but one, $(git rev-parse --short "$base")"
  else
    base=HEAD
    compared="HEAD (this clone has no commit before it): what is not committed"
  fi
}

configure() {
  cmake -S . -B build/lint -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER="clang++-$llvm" \
    -DCMAKE_C_COMPILER="clang-$llvm" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
    -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DTESSERA_TOGETHER=OFF -DTESSERA_CUDA=OFF \
    -DTESSERA_BUILD_BENCH=ON \
    >build/lint.log 2>&1 && return
  cat build/lint.log
  return 1
}
# Checks that each NOLINT names its check and a reason.
check_suppressions() {
  local bare
  bare=$(printf '%s\n' "${code[@]}" | xargs grep -Hn NOLINT |
    grep -vE 'NOLINT(NEXTLINE|BEGIN|END)?\([a-z.-]+\): [^ ]' || true)
  if [[ -z $bare ]]; then return; fi
  echo "$bare"
  echo "write NOLINT(check): reason"
  return 1
}
tidy() {
  mkdir -p build
  check_suppressions || return
  configure || return
  python3 scripts/clang_tidy.py --build build/lint --compiler "clang++-$llvm" \
    --tidy "clang-tidy-$llvm" "$@" || return
  what+=$(<build/lint/tidied.txt)
}
if [[ $all == yes ]]; then
  gate clang-tidy "" tidy --all
else
  find_base
  mapfile -t changed < <({
    git diff --name-only --diff-filter=d "$base"
    git ls-files --others --exclude-standard
  } | grep -E '\.(cpp|hpp|cu|cuh|h|inc)$' | grep -v '^third_party/' | sort -u)
  echo "clang-tidy looks at what differs from $compared"
  if ((${#changed[@]} == 0)); then
    printf '%-12s  no file differs\n' clang-tidy
  else
    gate clang-tidy "${#changed[@]} changed files, " tidy -- "${changed[@]}"
  fi
fi

if ((${#failed[@]} > 0)); then
  echo "failed: ${failed[*]}; CONTRIBUTING.md says what to do"
  exit 1
fi
