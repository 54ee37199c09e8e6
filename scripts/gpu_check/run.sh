# Parts and the commands in them, for scripts/gpu_check.sh, which sources this.

# Of the part at work: its name, its section, the number of its commands, and when it must end. Of
# all: commands and tests that failed, bars that were not met, commands that there was no time for.
part='' section='' commands=0 deadline=0 cut=0 all_failed=0 missed=0 unfinished=0

# Seconds that the help gives for a part.
estimate() { sed -n "s/^#   $1 *\\([0-9][0-9]*\\)   .*/\\1/p" scripts/gpu_check.sh; }

seconds_left() { echo $((deadline - SECONDS)); }

# What the results of a part hold for.
fingerprint() { { cksum "$build/tools/tessera" "$TESSERA_CUDA_MODULE" 2>/dev/null || true; } | cksum; }

# mark COMMAND...: the file that says with which status and log a command has ended.
mark() { echo "$work/done/$part/$(printf '%q ' "$@" | cksum | tr ' ' -)"; }

# no_time WHAT: counts what the deadline kept from running, to its end or at all.
no_time() {
  cut=$((cut + 1))
  note "No time was left for this, or for the end of it: \`$1\`"
}

# keep LINES COMMAND...: runs it, shows what it prints, and keeps the last LINES of that in the page;
# as Markdown where LINES is "table". Gives its status, which counts as a failure if it is not 0 and
# $allowed (statuses, or "any") has it not. $log is then what it printed and $shown the command as the page has it; $cap,
# if set, is how many seconds it may take, and 124 its status if it took more. With $timed=yes what
# the card's clocks do is read before and after it.
allowed='' cap='' timed=no log='' shown=''
may_end_with() { (($1 == 0)) || [[ $allowed == any || " $allowed " == *" $1 "* ]]; }

keep() {
  local lines=$1 status=0 left done_before
  shift
  commands=$((commands + 1))
  log=$work/logs/$part-$commands.log
  shown=$(printf '%q ' "$@" | plain)
  shown=${shown% }
  done_before=$(mark "$@")
  left=$(seconds_left)
  if [[ -f $done_before ]]; then
    read -r status log <"$done_before"
    printf '(done before) $ %s\n' "$shown"
  elif ((left < 5)); then
    no_time "$shown"
    return 124
  else
    local limit=$left clocks_before=
    if [[ -n $cap ]] && ((cap < left)); then limit=$cap; fi
    if [[ $timed == yes ]]; then clocks_before=$(clocks); fi
    printf '$ %s\n' "$shown"
    timeout --kill-after=10 "$limit" "$@" 2>&1 </dev/null | tee "$log" || status=${PIPESTATUS[0]}
    rm -f "$log.clocks"
    if [[ -n $clocks_before ]]; then
      printf 'clocks before: %s; after: %s\n' "$clocks_before" "$(clocks)" >"$log.clocks"
    fi
    if ((status == 124 || status == 137)) && ((limit == left)); then
      page_of "$lines" "$status" >>"$section"
      no_time "$shown"
      return 124
    fi
    if [[ " 0 $allowed " == *" $status "* ]]; then echo "$status $log" >"$done_before"; fi
  fi
  page_of "$lines" "$status" >>"$section"
  may_end_with "$status" || fails "status $status of \`$shown\`"
  return "$status"
}

# A command and what it printed, as the page has it.
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

# Why there is no figure of a command that ended with `status`.
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

# Whether Python has a PyTorch with the attention that is compared. $no_torch says why not.
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
  section=$work/parts/$part.unfinished failed=0 commands=0 cut=0 bar_ids=() bar_text=() bar_row=()
  deadline=$((SECONDS + ${PART_SECONDS:-580}))
  if ((deadline > call_ends)); then deadline=$call_ends; fi
  : >"$section"
  timed=no
  "part_$part"
  finish_part $((SECONDS - began))
}

finish_part() {
  local body=$section result="Done"
  section=$work/parts/$part.whole
  if ((failed > 0)); then result="**$failed failed**"; fi
  if ((cut > 0)); then result+=", $cut without time"; fi
  {
    printf '`scripts/gpu_check.sh %s`, %s, commit %s. %s, %s s (about %s were estimated).\n\n' "$part" \
      "$(date -u +'%Y-%m-%d %H:%M UTC')" "$(commit_name)" "$result" "$1" "$(estimate "$part")"
    verdicts
    cat "$body"
  } >"$section"
  rm "$body"
  mv "$section" "$work/parts/$part.md"
  printf '%s: %s, %s s\n' "$part" "$result" "$1"
  # Of a build that has just been made; what is not done will be run again.
  fingerprint >"$work/done/$part/of"
  if ((failed + cut == 0)); then : >"$work/done/$part/all"; fi
  all_failed=$((all_failed + failed)) unfinished=$((unfinished + cut))
  count_again
  write_page
}

# Bars that this part's section says were not met.
count_again() {
  missed=$((missed + $(grep -c '^| NOT met |' "$work/parts/$part.md" || true)))
}
