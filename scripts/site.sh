#!/usr/bin/env bash
# Builds the documentation as a site, build/site/html/index.html, from the pages of docs/ and the public
# headers. Installs what is missing from the packages of Debian or Ubuntu.
#
#   scripts/site.sh              builds it
#   scripts/site.sh --check      also fails on what docs/site/build.py finds: a public symbol without a
#                                comment, a page that no list of docs/index.md leads to, a dead link, a
#                                page or line that is too long, a phrase of scripts/plain_words.py
#   scripts/site.sh --external   as --check, and fetches the links to other sites
#   scripts/site.sh --test       as --check, but installs nothing: the status is 77 if tools are missing
#
# TESSERA_SITE overrides the output folder, build/site: it must be new, empty, or from an earlier build.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

options=() install=yes
case "${1:-}" in
  "") ;;
  --check) options=(--check) ;;
  --test)
    options=(--check)
    install=no
    ;;
  --external) options=(--check --external) ;;
  -h | --help)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  *)
    echo "error: '$1' is unknown; see scripts/site.sh --help" >&2
    exit 2
    ;;
esac

# Debian's packages belong to Debian's Python; another Python first in PATH may lack them.
python=python3
if [[ -x /usr/bin/python3 ]]; then python=/usr/bin/python3; fi

complete() {
  command -v doxygen >/dev/null && "$python" -c 'import sphinx, myst_parser, furo' 2>/dev/null
}
if ! complete && [[ $install == no ]]; then
  echo "skipped: the site needs doxygen, Sphinx, MyST and furo; scripts/install_deps.sh --site installs them"
  exit 77
fi
if ! complete && { ! scripts/install_deps.sh --site || ! complete; }; then
  echo "error: the site needs doxygen, Sphinx, MyST and furo" >&2
  exit 2
fi

exec "$python" -B docs/site/build.py "${TESSERA_SITE:-build/site}" "${options[@]}"
