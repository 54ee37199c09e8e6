# Parts and their commands. scripts/gpu_check.sh sources this file.

# The state of the current part; $cut counts its commands that time ran out for. Over all parts,
# $all_failed counts failed commands and tests, $missed counts bars that were not met, and $unfinished
# counts commands that time ran out for.
part='' section='' rows_file='' commands=0 deadline=0 cut=0 all_failed=0 missed=0 unfinished=0

# estimate PART: prints the seconds that the help lists for it.
estimate() { sed -n "s/^#   $1 *\\([0-9][0-9]*\\)   .*/\\1/p" scripts/gpu_check.sh; }

# estimates PART...: prints the estimate of each part, and their sum.
estimates() {
  local each sum=0
  for each in "$@"; do
    printf '%s %s, ' "$each" "$(estimate "$each")"
    sum=$((sum + $(estimate "$each")))
  done
  echo "all of them $sum"
}

# not_built WHAT: says how to build it. Part build compiles nothing if a build was given.
not_built() {
  if [[ -n $given_build ]]; then
    echo "$1 is not in the build that --build names: build it there, or leave --build out"
  else
    echo "$1 is not in the build: run part build first"
  fi
}

seconds_left() { echo $((deadline - SECONDS)); }

# Prints a checksum of what a part's results depend on: the programs, for part train the recorded
# products, and for part plans the figures of other parts.
fingerprint() {
  local files=("$build/tools/tessera" "$TESSERA_CUDA_MODULE")
  if [[ $part == train ]]; then files+=("$work/products.json"); fi
  if [[ $part == plans ]]; then files+=("$work"/parts/{kernels,train,predictions}.json); fi
  { cksum "${files[@]}" 2>/dev/null || true; } | cksum
}

# is_done COMMAND...: whether an earlier call ran it to an acceptable status, and the files that it
# $makes still exist. Sets $done_before to the file with its status; its log is beside that file.
done_before=''
is_done() {
  local file
  done_before=$(printf '%q ' "$@" | cksum)
  done_before=$work/done/$part/${done_before/ /-}
  [[ -f $done_before.log ]] || return 1
  [[ $(cat "$done_before") == 0 ]] || return 0
  for file in "${makes[@]}"; do [[ -f $file ]] || return 1; done
}

# no_time WHAT: counts a command that the deadline stopped or kept from running.
no_time() {
  cut=$((cut + 1))
  note "No time was left for this, or for the end of it: \`$1\`"
}

# keep LINES COMMAND...: runs COMMAND, shows its output, and adds the last LINES of it to the page, as
# Markdown if LINES is "table". Returns its status, which counts as a failure if it is neither 0 nor
# in $allowed (statuses, or "any"). Sets $log to the file with its output, empty if there was no time
# to run it, and $shown to the command as the page shows it. $makes lists the files that only this
# command writes. $cap, if set, limits its seconds. The status is 124 if it exceeded its limit, or if
# there was no time to run it. With $timed=yes, reads the card's clocks before and after it.
allowed='' cap='' timed=no log='' shown='' makes=()
may_end_with() { (($1 == 0)) || [[ $allowed == any || " $allowed " == *" $1 "* ]]; }

# ran_out STATUS SECONDS LIMIT: whether `timeout` ended the command. Status 137 before LIMIT is the
# kernel's kill for lack of memory.
ran_out() { (($1 == 124 || ($1 == 137 && $2 >= $3))); }

keep() {
  local lines=$1 status=0 left began=$SECONDS
  shift
  commands=$((commands + 1))
  log=$work/logs/$part-$commands.log
  shown=$(printf '%q ' "$@" | plain)
  shown=${shown% }
  left=$((deadline - SECONDS))
  if is_done "$@"; then
    read -r status <"$done_before"
    log=$done_before.log
    printf '(done before) $ %s\n' "$shown"
  else
    # Output of an earlier call must not count as a figure of this one.
    rm -f "$log.clocks" "$done_before" "$done_before".* "${makes[@]}"
    : >"$log"
    if ((left < 5)); then
      no_time "$shown"
      return 124
    fi
    local limit=$left clocks_before=
    if [[ -n $cap ]] && ((cap < left)); then limit=$cap; fi
    if [[ $timed == yes ]]; then clocks_before=$(clocks); fi
    printf '$ %s\n' "$shown"
    timeout --kill-after=10 "$limit" "$@" 2>&1 </dev/null | tee "$log" || status=${PIPESTATUS[0]}
    if [[ -n $clocks_before ]]; then
      printf 'clocks before: %s; after: %s\n' "$clocks_before" "$(clocks)" >"$log.clocks"
    fi
    if ran_out "$status" $((SECONDS - began)) "$limit"; then
      page_of "$lines" "$status" >>"$section"
      no_time "$shown"
      return 124
    fi
    if [[ " 0 $allowed " == *" $status "* ]]; then done_with "$status" "$done_before"; fi
  fi
  page_of "$lines" "$status" >>"$section"
  may_end_with "$status" || fails "status $status of \`$shown\`"
  return "$status"
}

# done_with STATUS MARK: records the command as done, so that a resuming call skips it. Writes the log
# last.
done_with() {
  echo "$1" >"$2"
  if [[ -f $log.clocks ]]; then cp "$log.clocks" "$2.log.clocks"; fi
  cp "$log" "$2.log"
}

# page_of LINES STATUS: prints the command and its output for the page.
page_of() {
  local lines=$1 status=$2
  printf '```\n$ %s\n' "$shown"
  if [[ $lines == table && $status == 0 ]]; then
    printf '```\n\n'
    plain <"$log"
    printf '\n'
  else
    if [[ $lines == table ]]; then lines=20; fi
    if (($(wc -l <"$log") > lines)); then echo "..."; fi
    tail -n "$lines" "$log" | plain
    if ((status != 0)); then echo "(status $status)"; fi
    printf '```\n'
  fi
  if [[ -s $log.clocks ]]; then printf '\n%s\n' "$(cat "$log.clocks")"; fi
  printf '\n'
}

# reason_of STATUS: why a command with this status gave no figure.
reason_of() {
  case "$1" in
    0) echo "it printed none" ;;
    3) echo "it does not fit the card's memory" ;;
    124) echo "there was no time for it" ;;
    *) echo "it failed, status $1" ;;
  esac
}

median() { sort -g | awk '{ v[NR] = $1 } END { if (NR) print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

torch_device=cuda
if [[ $emulated == yes ]]; then torch_device=cpu; fi

# Whether Python has a PyTorch with the attention to compare with. $no_torch says why not.
no_torch="no python3 with PyTorch 2"
has_torch() {
  [[ -n $python ]] && "$python" -c 'from torch.nn.functional import scaled_dot_product_attention' 2>/dev/null
}

run_part() {
  part=$1
  local began=$SECONDS
  printf '\n== %s (about %s s)\n' "$part" "$(estimate "$part")"
  mkdir -p "$work/done/$part"
  if [[ $resume == no || $(cat "$work/done/$part/of" 2>/dev/null) != "$(fingerprint)" ]]; then
    rm -rf "$work/done/$part"
    mkdir "$work/done/$part"
    fingerprint >"$work/done/$part/of"
  elif [[ -f $work/done/$part/all && -s $work/parts/$part.md ]]; then
    echo "done before"
    count_again
    return
  fi
  section=$work/parts/$part.unfinished rows_file=$work/parts/$part.rows
  failed=0 commands=0 cut=0 bar_ids=() bar_text=() bar_row=()
  deadline=$((SECONDS + ${PART_SECONDS:-580}))
  if ((deadline > call_ends)); then deadline=$call_ends; fi
  : >"$section"
  : >"$rows_file"
  timed=no
  "part_$part"
  finish_part $((SECONDS - began))
}

finish_part() {
  local body=$section result="Done" date name
  section=$work/parts/$part.whole
  if ((failed > 0)); then result="**$failed failed**"; fi
  if ((cut > 0)); then result+=", $cut without time"; fi
  date=$(date -u +'%Y-%m-%d %H:%M UTC') name=$(commit_name)
  {
    # shellcheck disable=SC2016  # backquotes of Markdown
    printf '`scripts/gpu_check.sh %s`, %s, commit %s. %s, %s s (about %s were estimated).\n\n' "$part" \
      "$date" "$name" "$result" "$1" "$(estimate "$part")"
    verdicts
    cat "$body"
  } >"$section"
  rm "$body"
  mv "$section" "$work/parts/$part.md"
  printf '%s: %s, %s s\n' "$part" "$result" "$1"
  if ! write_figures "$date" "$name" "${result//\*/}, $1 s"; then
    echo "error: the figures of $part were not written as JSON"
    all_failed=$((all_failed + 1))
  fi
  # The fingerprint includes a build that this part has just made. Unfinished commands run again.
  fingerprint >"$work/done/$part/of"
  if ((failed + cut == 0)); then : >"$work/done/$part/all"; fi
  all_failed=$((all_failed + failed)) unfinished=$((unfinished + cut))
  count_again
  write_page
}

# Adds the bars that this part's section reports as not met to $missed.
count_again() {
  missed=$((missed + $(grep -c '^| NOT met |' "$work/parts/$part.md" || true)))
}
