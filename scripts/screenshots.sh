#!/usr/bin/env bash
# Makes the pictures of docs/images: runs a comparison and a pipeline, and captures their reports in
# a headless Chromium.
#
#   scripts/screenshots.sh [COMMAND]
#
# COMMAND is the built tessera (default: build/release/tools/tessera).
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  exit 0
fi
command=${1:-build/release/tools/tessera}
reason=$(python3 scripts/chromium.py --missing)
if [[ -n $reason ]]; then
  echo "error: $reason" >&2
  exit 2
fi
if [[ ! -x $command ]]; then
  echo "error: '$command' is not a program; build it, or name another COMMAND" >&2
  exit 2
fi
exec python3 -B scripts/screenshots.py "$command" build/screenshots docs/images
