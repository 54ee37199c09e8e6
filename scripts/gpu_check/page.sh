# The page of scripts/gpu_check.sh, which sources this file: sections, verdicts, the final lines and
# the status. figures.py writes the same contents as data, gpu.json.

# Replaces paths by names that are the same in any checkout.
plain() {
  local edits=(-e "s|$work|WORK|g" -e "s|$build|BUILD|g" -e "s|$PWD/||g" -e "s|$PWD|.|g")
  if [[ ${HOME:-/} == /?* ]]; then edits+=(-e "s|$HOME/|~/|g"); fi
  sed "${edits[@]}"
}

# note TEXT: adds a paragraph to the part's section.
note() { printf '%s\n\n' "$*" | plain | tee -a "$section"; }

# fails WHAT: counts and reports a command or a test that failed.
failed=0
fails() {
  failed=$((failed + 1))
  note "**Failed:** $*"
}

# --- Verdicts -------------------------------------------------------------------------------------

# bar ID TEXT: announces a bar that the part must judge; the table keeps the order of these calls.
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

# row FIELD...: adds a row for figures.py.
row() {
  printf '%s\t' "${@//[$'\t\n']/ }" >>"$rows_file"
  printf '\n' >>"$rows_file"
}

# figure NAME SHAPE VALUE UNIT [BAR]: records a measured number for the size SHAPE; BAR is the id of
# the bar that judges it. Ignores a VALUE that is not a number.
figure() {
  if is_number "$3"; then row figure "$1" "$2" "$3" "$4" "${5:-}"; fi
}
is_number() { [[ $1 =~ ^[0-9]+(\.[0-9]*)?(e[+-]?[0-9]+)?$ ]]; }

# quotient A B: prints A / B, or nothing if it is undefined.
quotient() {
  if is_number "$1" && is_number "$2"; then
    awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.4g", a / b }'
  fi
}

# is_more A B: whether A is the larger number.
is_more() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 > b + 0) }'; }

# at_least ID FIGURE LEAST TEXT [COMMAND], at_most ID FIGURE MOST TEXT [COMMAND]: judge a figure of
# speed; a missing figure is "not measured".
at_least() { judge_figure "$1" "$2" "$2" "$3" "${@:4}"; }
at_most() { judge_figure "$1" "$2" "$3" "$2" "${@:4}"; }
# best_at_least ID FIGURE LEAST TEXT [COMMAND]: judges the best figure of several commands. A miss is
# "not measured" if the part had no time for a command.
best_at_least() {
  if ((cut > 0)) && is_number "$2" && is_more "$3" "$2"; then
    judge "$1" "not measured" "not all was run: $4" "${5:-}"
  else
    at_least "$@"
  fi
}
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

# Prints the table of this part's bars for its section.
verdicts() {
  local id
  ((${#bar_ids[@]} > 0)) || return 0
  printf '| verdict | bar | figure | command |\n|---|---|---|---|\n'
  for id in "${bar_ids[@]}"; do
    echo "${bar_row[$id]:-| not measured | ${bar_text[$id]} | the part ended before it | |}"
  done | plain
  echo
}

# verdict_rows VERDICT: prints the rows with this verdict of all parts' sections.
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
    plans) echo "Planned steps" ;;
    sanitize) echo "compute-sanitizer" ;;
  esac
}

# Takes the sections of parts that this work folder lacks, and with part kernels the recorded products,
# from those beside the existing page, whichever machine wrote it.
import_page() {
  local each taken=()
  if [[ ! -f $work/parts/kernels.md && -f $out/products.json ]]; then cp "$out/products.json" "$work/"; fi
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

# Writes the page, and the recorded products beside it.
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
  if [[ -f $work/products.json && ! $work -ef $out ]]; then cp "$work/products.json" "$out/"; fi
}

# --- The same as data -----------------------------------------------------------------------------

figures_py() { "$python" -S scripts/gpu_check/figures.py "$@"; }

# write_figures DATE COMMIT RESULT: writes the figures of the current part, and gpu.json with the
# figures of all parts.
document_written=no
write_figures() {
  [[ -n $python ]] || return 0
  plain <"$rows_file" | figures_py part "$part" "$@" "$work/machine.md" "$work/parts" "$out/gpu.json" "${all_parts[@]}" ||
    return
  document_written=yes
  rm "$rows_file"
}

# Writes gpu.json if no part did.
write_document() {
  [[ -z $python || $document_written == yes ]] ||
    figures_py join "$work/parts" "$out/gpu.json" "${all_parts[@]}"
}

# Prints the section for --compare.
comparison=''
compare_figures() {
  [[ -n $compare ]] || return 0
  comparison=$("$python" -S scripts/gpu_check/compare.py --noise "$noise" "$work/compared.json" "$out/gpu.json")
  printf '\n%s\n' "$comparison"
}

# Prints the result, and exits with the status.
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
    echo "time ran out before all was done: repeat the call with --resume to continue"
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
    echo "its figures were not written as JSON: python3 was not found"
  fi
  exit "$status"
}
