#!/usr/bin/env bash
# Usage: scripts/kernel_facts.sh [--kernels PATTERN] FILE...
#
# Reads facts about CUDA kernels from their machine code, without running them: a row for each kernel of
# the given objects or modules and for each GPU that it was compiled for. PATTERN is an extended regular
# expression that selects kernels by name. "Spilled" counts instructions that access local memory;
# loads and stores of global memory are counted by their width in bytes: "16 x 6, 2 x 3".
#
# Needs cuobjdump and nvdisasm of the CUDA toolkit.
set -euo pipefail

pattern=.
if [[ ${1-} == --kernels ]]; then
  pattern=${2:?"--kernels takes a regular expression"}
  shift 2
fi
if (($# == 0)); then
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
  exit 2
fi
for tool in cuobjdump nvdisasm; do
  if ! command -v "$tool" >/dev/null; then
    echo "kernel_facts: $tool is not in PATH; it is part of the CUDA toolkit" >&2
    exit 2
  fi
done

# Prints lines "arch|mangled name|registers|shared bytes|spilled|loads|stores".
facts() {
  { cuobjdump --dump-resource-usage "$1" && cuobjdump --dump-sass "$1"; } | awk '
    function widths(kind, key,   text, w) {
      text = ""
      for (w = 16; w >= 1; w /= 2) {
        if (count[key, kind, w]) { text = text (text == "" ? "" : ", ") w " x " count[key, kind, w] }
      }
      return text == "" ? "none" : text
    }
    function number(name) { return match($0, name ":[0-9]+") ? substr($0, RSTART + length(name) + 1, RLENGTH - length(name) - 1) : 0 }
    /^arch = / { arch = $3 }
    /^ *Function [^ ]+:$/ { name = $2; sub(/:$/, "", name) }
    / REG:[0-9]+ / {
      key = arch "|" name
      if (!(key in registers)) { order[++kernels] = key }
      registers[key] = number("REG")
      shared[key] = number("SHARED")
    }
    /^[\t ]*Function : / { name = $3; key = arch "|" name }
    /code for sm_/ { arch = $3 }
    match($0, /(LDL|STL|LDG|STG)\.?[A-Z0-9.]*/) {
      split(substr($0, RSTART, RLENGTH), part, ".")
      if (part[1] == "LDL" || part[1] == "STL") { ++local[key]; next }
      width = 4
      for (i = 2; i in part; ++i) {
        if (part[i] ~ /^(32|64|128)$/) { width = part[i] / 8 }
        if (part[i] ~ /^[US]8$/) { width = 1 }
        if (part[i] ~ /^[US]16$/) { width = 2 }
      }
      delete part
      ++count[key, substr($0, RSTART, 3), width]
    }
    END {
      for (i = 1; i <= kernels; ++i) {
        key = order[i]
        print key "|" registers[key] "|" shared[key] "|" local[key] + 0 "|" widths("LDG", key) "|" widths("STG", key)
      }
    }'
}

echo "| kernel | GPU | registers | spilled | static shared bytes | loads | stores |"
echo "|---|---|---:|---:|---:|---|---|"
for file in "$@"; do facts "$file"; done | while IFS='|' read -r arch name registers shared spilled loads stores; do
  name=$(c++filt -p "$name" | sed -E 's/\(anonymous namespace\)::|tessera::kernels::cuda::|tessera:://g; s/^void //')
  if [[ ! $name =~ $pattern ]]; then continue; fi
  echo "| \`$name\` | $arch | $registers | $spilled | $shared | $loads | $stores |"
done
