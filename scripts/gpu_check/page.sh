# The page of scripts/gpu_check.sh, which sources this: sections, verdicts, what is in the end
# printed and given as the status. figures.py writes the same as data, gpu.json.

# Paths as they are in any checkout.
plain() {
  local edits=(-e "s|$work|WORK|g" -e "s|$build|BUILD|g" -e "s|$PWD/||g" -e "s|$PWD|.|g")
  if [[ ${HOME:-/} == /?* ]]; then edits+=(-e "s|$HOME/|~/|g"); fi
  sed "${edits[@]}"
}

# note TEXT: a paragraph of the part's section.
note() { printf '%s\n\n' "$*" | plain | tee -a "$section"; }

# fails WHAT: counts a command or a test that failed, and says so.
failed=0
fails() {
  failed=$((failed + 1))
  note "**Failed:** $*"
}

# --- Verdicts -------------------------------------------------------------------------------------

# bar ID TEXT: what the part has to say something about, in the order of these calls.
declare -A bar_text=() bar_row=()
bar_ids=()
bar() {
  bar_ids+=("$1")
  bar_text[$1]=$2
  row bar "$1" "$2" "not measured" "the part ended before it" ""
}

# judge ID VERDICT FIGURE [COMMAND]: VERDICT is met, "NOT met", measured, "not measured" or refused.
judge() {
  local command=${4:-}
  row bar "$1" "${bar_text[$1]:?}" "$2" "$3" "$command"
  if [[ -n $command ]]; then command="\`$command\`"; fi
  bar_row[$1]="| $2 | ${bar_text[$1]:?} | ${3//|/\\|} | ${command//|/\\|} |"
  printf '%s: %s: %s\n' "$2" "${bar_text[$1]}" "$3"
}

# row FIELD...: a row for figures.py.
row() {
  printf '%s\t' "${@//[$'\t\n']/ }" >>"$rows_file"
  printf '\n' >>"$rows_file"
}

# figure NAME SHAPE VALUE UNIT [BAR]: a number that was measured, at the size SHAPE; BAR is the id of
# the bar that judges it. What is no number is left out.
figure() {
  if is_number "$3"; then row figure "$1" "$2" "$3" "$4" "${5:-}"; fi
}
is_number() { [[ $1 =~ ^[0-9]+(\.[0-9]*)?(e[+-]?[0-9]+)?$ ]]; }

# quotient A B: nothing where there is none.
quotient() {
  if is_number "$1" && is_number "$2"; then
    awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.4g", a / b }'
  fi
}

# at_least ID FIGURE LEAST TEXT [COMMAND], at_most ID FIGURE MOST TEXT [COMMAND]: judge a figure of
# speed; none is not measured.
at_least() { judge_figure "$1" "$2" "$2" "$3" "${@:4}"; }
at_most() { judge_figure "$1" "$2" "$3" "$2" "${@:4}"; }
# judge_figure ID FIGURE MORE LESS TEXT [COMMAND]: met if MORE is at least LESS.
judge_figure() {
  if ! is_number "$2"; then
    judge "$1" "not measured" "$5" "${6:-}"
  elif [[ $emulated == yes ]]; then
    judge "$1" measured "$5 (emulated: means nothing)" "${6:-}"
  elif awk -v more="$3" -v less="$4" 'BEGIN { exit !(more + 0 >= less + 0) }'; then
    judge "$1" met "$5" "${6:-}"
  else
    judge "$1" "NOT met" "$5" "${6:-}"
  fi
}

# Table of this part's bars, as the section has it.
verdicts() {
  local id
  ((${#bar_ids[@]} > 0)) || return 0
  printf '| verdict | bar | figure | command |\n|---|---|---|---|\n'
  for id in "${bar_ids[@]}"; do
    echo "${bar_row[$id]:-| not measured | ${bar_text[$id]} | the part ended before it | |}"
  done | plain
  echo
}

# verdict_rows VERDICT: those of all parts' sections.
verdict_rows() { grep -h "^| $1 |" "$work"/parts/*.md || true; }

# --- The page -------------------------------------------------------------------------------------

title() {
  case "$1" in
    build) echo "Build" ;;
    test) echo "Tests" ;;
    kernels) echo "Kernels" ;;
    train) echo "Training" ;;
    memory) echo "Memory" ;;
    checkpoint) echo "Checkpoints" ;;
    nccl) echo "NCCL" ;;
    multi) echo "Several GPUs" ;;
    predictions) echo "Predictions" ;;
    sanitize) echo "compute-sanitizer" ;;
  esac
}

# Sections that this folder of work does not have are those of the page, of whatever machine.
import_page() {
  local each taken=()
  [[ -f $out/gpu.md ]] || return 0
  for each in "${all_parts[@]}"; do
    [[ ! -f $work/parts/$each.md ]] || continue
    awk -v title="## $(title "$each")" '/^## / { inside = $0 == title; next } inside' \
      "$out/gpu.md" | sed '/./,$!d' >"$work/parts/$each.md"
    taken+=("$each")
    if [[ $(cat "$work/parts/$each.md") == "Not run." ]]; then rm "$work/parts/$each.md"; fi
  done
  if [[ -n $python && -f $out/gpu.json && ${#taken[@]} -gt 0 ]]; then
    figures_py take "$work/parts" "$out/gpu.json" "${taken[@]}"
  fi
}

write_page() {
  local each
  {
    printf '# A GPU, checked and measured\n\n'
    # shellcheck disable=SC2016  # backquotes of Markdown
    printf 'Written by `scripts/gpu_check.sh`; WORK is its folder. Each section is of the last run of its part.\n\n'
    cat "$work/machine.md"
    printf '\n## Verdicts\n\n'
    printf '| verdict | bar | figure | command |\n|---|---|---|---|\n'
    for each in "NOT met" refused "not measured" met measured; do verdict_rows "$each"; done
    for each in "${all_parts[@]}"; do
      printf '\n## %s\n\n' "$(title "$each")"
      if [[ -s $work/parts/$each.md ]]; then cat "$work/parts/$each.md"; else echo "Not run."; fi
    done
    if [[ -n $comparison ]]; then printf '\n%s\n' "$comparison"; fi
  } | cat -s >"$work/page.md"
  cp "$work/page.md" "$out/gpu.md"
}

# --- The same as data -----------------------------------------------------------------------------

figures_py() { "$python" -S scripts/gpu_check/figures.py "$@"; }

# write_figures DATE COMMIT RESULT: writes the figures of the current part, and gpu.json with those of
# all parts.
document_written=no
write_figures() {
  [[ -n $python ]] || return 0
  plain <"$rows_file" | figures_py part "$part" "$@" "$work/machine.md" "$work/parts" "$out/gpu.json" "${all_parts[@]}" ||
    return
  document_written=yes
  rm "$rows_file"
}

# Where no part was run.
write_document() {
  [[ -z $python || $document_written == yes ]] ||
    figures_py join "$work/parts" "$out/gpu.json" "${all_parts[@]}"
}

# The section that --compare asks for.
comparison=''
compare_figures() {
  [[ -n $compare ]] || return 0
  comparison=$("$python" -S scripts/gpu_check/compare.py --noise "$noise" "$work/compared.json" "$out/gpu.json")
  printf '\n%s\n' "$comparison"
}

# Says what has come of it, and exits with the status.
finish() {
  local verdict status=0
  write_document
  compare_figures
  write_page
  printf '\n'
  for verdict in "NOT met" refused "not measured" met measured; do
    printf '%3s %s\n' "$(verdict_rows "$verdict" | wc -l)" "$verdict"
  done
  verdict_rows "NOT met"
  if ((unfinished > 0)); then
    echo "there was no time for all: the same call with --resume goes on"
    status=4
  fi
  if ((missed > 0)); then status=3; fi
  if ((all_failed > 0)); then
    echo "$all_failed commands or tests failed"
    status=1
  fi
  echo "the page: $out/gpu.md"
  if [[ -n $python ]]; then
    echo "its figures: $out/gpu.json"
  else
    echo "its figures were not written as JSON: there is no python3"
  fi
  exit "$status"
}
