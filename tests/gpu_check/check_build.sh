#!/usr/bin/env bash
# Tests that part build of scripts/gpu_check.sh compiles every file that it then installs. Configures
# as the part does, but with Ninja, which lists the commands of the part's targets; compiles nothing.
#
#   check_build.sh SCRATCH
set -euo pipefail
rm -rf "$1"
mkdir -p "$1"
build=$(realpath "$1")/build
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# shellcheck source=/dev/null  # the script that it is a part of assigns its variables
source scripts/gpu_check/build.sh

# The names of other files that build.sh uses.
# shellcheck disable=SC2034
bundle='' python=$(command -v python3 || true)
architecture() { echo 80; }
fails() { echo "failed: $*"; }
# keep LINES COMMAND...: configures, and lists the commands of the build instead of running them.
keep() {
  shift
  if [[ $1 == cmake && $2 == -S ]]; then
    "$@" -G Ninja >"$build.log" || { cat "$build.log"; return 1; }
  elif [[ $* == "cmake --build $build "*" --target "* ]]; then
    while [[ $1 != --target ]]; do shift; done
    ninja -C "$build" -t commands "${@:2}" >"$build.commands"
  fi
}
compile_trainer() { :; }

compile || { echo "part build does not compile"; exit 1; }
files=0 missing=()
while read -r file; do
  files=$((files + 1))
  if [[ ! -e $file ]] && ! grep -qF -- "${file#"$build"/}" "$build.commands"; then missing+=("$file"); fi
done < <(find "$build" -name cmake_install.cmake -exec grep -oh "\"$build/[^\"\$]*\"" {} + | tr -d '"' | sort -u)
if ((${#missing[@]} > 0)); then
  echo "installed, but made by no target that part build names:"
  printf '  %s\n' "${missing[@]}"
  exit 1
fi
grep -q 'libtessera_cuda\.so' "$build.commands" || { echo "the module is not made"; exit 1; }
echo "$files files"
