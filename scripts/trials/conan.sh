#!/usr/bin/env bash
# Builds the Conan package from this checkout, static and shared, runs the test_package of each, and
# prints seconds and bytes. Fetches Conan 2 from Python's index, and keeps all files in build/conan.
#
#   scripts/trials/conan.sh [KIND...]    static or shared (default: both)
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
kinds=("$@")
if ((${#kinds[@]} == 0)); then kinds=(static shared); fi

home=$PWD/build/conan
export CONAN_HOME=$home/home
if [[ ! -x $home/venv/bin/conan ]]; then
  python3 -m venv "$home/venv"
  "$home/venv/bin/pip" install --quiet --disable-pip-version-check 'conan>=2.0,<3'
fi
PATH=$home/venv/bin:$PATH
conan --version
[[ -e $CONAN_HOME/profiles/default ]] || conan profile detect >/dev/null 2>&1

for kind in "${kinds[@]}"; do
  case "$kind" in
    static) shared=False ;;
    shared) shared=True ;;
    *)
      echo "error: '$kind' is neither static nor shared" >&2
      exit 2
      ;;
  esac
  began=$(date +%s)
  conan create packaging/conan -o "&:shared=$shared" -c tools.cmake.cmaketoolchain:generator=Ninja \
    -c "tools.cmake.cmake_layout:test_folder=$home/test_package" \
    >"$home/$kind.log" 2>&1 || { tail -n 40 "$home/$kind.log"; exit 1; }
  seconds=$(($(date +%s) - began))
  folder=$(sed -n "s/.*Package folder \(.*\)/\1/p" "$home/$kind.log" | head -n 1)
  grep -E '4 of 4 ranks|the same bits' "$home/$kind.log"
  echo "$kind: $seconds s, $(du -sb "$folder" | cut -f 1) bytes in $(find "$folder" -type f | wc -l) files"
done
