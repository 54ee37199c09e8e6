#!/usr/bin/env bash
# Runs a command as if the packages that scripts/bundle_deps.sh copies were not installed: in a new
# mount namespace, in which their headers, sources, libraries and CMake files are empty.
#
#   scripts/without_packages.sh COMMAND...
#
# The status is the command's; 125 if unshare (of util-linux) cannot create such a namespace.
set -euo pipefail

if [[ ${TESSERA_PACKAGES_HIDDEN-} != yes ]]; then
  if ! unshare --map-root-user --mount true 2>/dev/null; then
    echo "error: packages cannot be hidden: unshare cannot create a mount namespace on this machine" >&2
    exit 125
  fi
  TESSERA_PACKAGES_HIDDEN=yes exec unshare --map-root-user --mount "${BASH_SOURCE[0]}" "$@"
fi

empty=$(mktemp -d)
libraries=/usr/lib/$(uname -m)-linux-gnu
for path in /usr/include/{eigen3,fmt,nlohmann,CLI,benchmark,gtest,gmock} /usr/include/{xxhash,xxh3}.h \
  /usr/src/{googletest,gtest,gmock} /usr/share/eigen3 /usr/share/cmake/{nlohmann_json,CLI11} \
  "$libraries"/cmake/{fmt,GTest,benchmark} "$libraries"/lib{fmt,xxhash,gtest,gtest_main,gmock,gmock_main,benchmark,benchmark_main}.{a,so}; do
  if [[ -d $path ]]; then
    mount --bind "$empty" "$path"
  elif [[ -e $path ]]; then
    mount --bind /dev/null "$path"
  fi
done
unset TESSERA_PACKAGES_HIDDEN
status=0
"$@" || status=$?
rmdir "$empty"
exit "$status"
