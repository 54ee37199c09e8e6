#!/usr/bin/env bash
# Installs what Tessera is built and tested with, and what is named as arguments besides, from the
# packages of Debian or Ubuntu. Does nothing, and needs no rights, if all is there.
#
#   scripts/install_deps.sh [--browser] [PACKAGE...]
#
#   --browser   Chromium too, in which the reports' pages are tested, if the distribution has it as a
#               package. A snap, as on Ubuntu, cannot read the tests' files: they are skipped there.
set -euo pipefail

browser=no
if [[ "${1:-}" == --browser ]]; then
  browser=yes
  shift
fi

packages=(
  g++ cmake ninja-build
  libeigen3-dev libfmt-dev nlohmann-json3-dev libcli11-dev libxxhash-dev libdnnl-dev
  libopenmpi-dev openmpi-bin
  libgtest-dev libgmock-dev libbenchmark-dev
  "$@"
)

installed() {
  [[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "error: this is not a Debian or Ubuntu system (no apt-get);" >&2
  echo "install by hand what corresponds to: ${packages[*]}" >&2
  exit 1
fi

# Whether apt, with the lists that it has, would install Chromium itself.
has_chromium() {
  local candidate
  candidate=$(apt-cache policy chromium 2>/dev/null | sed -n 's/^ *Candidate: //p')
  [[ -n $candidate && $candidate != "(none)" && $candidate != *snap* ]]
}
if [[ $browser == yes ]] && ! installed chromium; then
  if has_chromium || ! compgen -G '/var/lib/apt/lists/*Packages*' >/dev/null; then
    packages+=(chromium)
  else
    echo "no package of Chromium here: the tests of the reports' pages will be skipped"
  fi
fi

missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "error: packages are missing, and installing them needs root or sudo; as root, run" >&2
    echo "apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "installing: ${missing[*]}"
# Another apt may be at work, as on a machine that has just started.
apt_options=(-qq -o DPkg::Lock::Timeout=300)
"${as_root[@]}" apt-get "${apt_options[@]}" update
if [[ " ${missing[*]} " == *" chromium "* ]] && ! has_chromium; then
  echo "no package of Chromium here: the tests of the reports' pages will be skipped"
  kept=()
  for package in "${missing[@]}"; do
    if [[ $package != chromium ]]; then kept+=("$package"); fi
  done
  missing=("${kept[@]}")
fi
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get "${apt_options[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null
