#!/usr/bin/env bash
# Installs the packages of Debian or Ubuntu that Tessera is built and tested with, and those named as
# arguments. Does nothing, and needs no rights, if all are installed.
#
#   scripts/install_deps.sh [--tests | --all-tests | --site] [PACKAGE...]
#
#   --site       installs only the tools of scripts/site.sh: Doxygen, Sphinx, MyST, furo
#   --tests      also installs what scripts/test.sh uses. From the distribution, as far as it has them:
#                ccache, the linker mold, pkg-config, Python with NumPy, which reads DLPack views,
#                libtorch 1.13 or later with OpenBLAS for the adapter of its modules (component torch),
#                which is not built without them. From Python's index, by pip, into
#                third_party/python: safetensors, which reads and writes the same files as Tessera.
#                Without it, its test is skipped.
#   --all-tests  also installs what scripts/test.sh --all uses: clang 19 with its tools, shellcheck, the
#                tools that build Debian packages, Chromium for the tests of the reports' pages (a snap
#                of Chromium, as on Ubuntu, cannot read the tests' files, so these tests are skipped),
#                and the tools of --site.
set -euo pipefail

# If CUDA's compiler is installed, this also fetches cuDNN's frontend, a header-only library that no
# distribution packages: from Python's index, by pip, into third_party/cudnn-frontend. Without it
# attention uses Tessera's own kernels, so a failed download is no error.
tests=no all_tests=no site=no
case "${1:-}" in
  --tests) tests=yes ;;
  --all-tests) tests=yes all_tests=yes ;;
  --site) site=yes ;;
esac
if [[ $tests == yes || $site == yes ]]; then shift; fi

site_packages=(doxygen python3 python3-sphinx python3-myst-parser furo)
packages=(
  g++ cmake ninja-build
  libeigen3-dev libfmt-dev nlohmann-json3-dev libcli11-dev libxxhash-dev libdnnl-dev
  libopenmpi-dev openmpi-bin
  libgtest-dev libgmock-dev libbenchmark-dev
  "$@"
)
if [[ $site == yes ]]; then packages=("${site_packages[@]}" "$@"); fi

installed() {
  [[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "error: this is not a Debian or Ubuntu system (no apt-get);" >&2
  echo "install by hand what corresponds to: ${packages[*]}" >&2
  exit 1
fi

# Packages to install if the distribution has them.
optional=()
if [[ $tests == yes ]]; then
  optional=(ccache mold pkg-config python3 python3-numpy libtorch-dev libopenblas-dev)
fi
if [[ $all_tests == yes ]]; then
  optional+=(clang-19 clang-tidy-19 clang-format-19 libclang-rt-19-dev shellcheck dpkg-dev file chromium
    "${site_packages[@]}")
fi

# Whether apt, with its current lists, would install $1 itself (Ubuntu's Chromium is a snap).
is_package() {
  local candidate
  candidate=$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p')
  [[ -n $candidate && $candidate != "(none)" && $candidate != *snap* ]]
}

# The version that the tests have run with.
frontend_version=1.32.0
fetch_frontend() {
  local folder scratch
  folder=$(dirname "${BASH_SOURCE[0]}")/../third_party/cudnn-frontend
  if [[ -e $folder/include/cudnn_frontend.h ]]; then return; fi
  command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]] || return 0
  scratch=$(mktemp -d)
  # Any Python will do: only the wheel's headers are used.
  if timeout 120 python3 -m pip download --quiet --disable-pip-version-check --no-deps \
      --only-binary :all: --platform manylinux_2_28_x86_64 --implementation cp \
      --python-version 3.11 --dest "$scratch" "nvidia-cudnn-frontend==$frontend_version" \
      2>"$scratch/log" && python3 -m zipfile -e "$scratch"/*.whl "$scratch/wheel" 2>"$scratch/log"; then
    rm -rf "$folder"
    mkdir -p "$folder"
    mv "$scratch/wheel/include" "$folder/"  # they include each other as ../include
    echo "fetched cuDNN's frontend $frontend_version"
  else
    echo "without cuDNN's frontend, pip cannot fetch it: $(tail -n 1 "$scratch/log")"
  fi
  rm -rf "$scratch"
}
if [[ $site == no ]]; then
  fetch_frontend
fi

# The version that the tests have run with.
safetensors_version=0.8.0
fetch_safetensors() {
  local folder log
  folder=$(dirname "${BASH_SOURCE[0]}")/../third_party/python
  if [[ -e $folder/safetensors/__init__.py ]]; then return; fi
  log=$(mktemp)
  if timeout 120 python3 -m pip install --quiet --disable-pip-version-check --no-deps \
      --root-user-action ignore --only-binary :all: --target "$folder.new" \
      "safetensors==$safetensors_version" 2>"$log"; then
    rm -rf "$folder"
    mv "$folder.new" "$folder"
    echo "fetched Python's safetensors $safetensors_version"
  else
    rm -rf "$folder.new"
    echo "without Python's safetensors, pip cannot fetch it: $(tail -n 1 "$log")"
  fi
  rm -f "$log"
}
if [[ $tests == yes ]]; then
  fetch_safetensors
fi

missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done
wanted=()
for package in "${optional[@]}"; do
  if installed "$package"; then continue; fi
  if is_package "$package" || ! compgen -G '/var/lib/apt/lists/*Packages*' >/dev/null; then
    wanted+=("$package")
  else
    echo "no package $package here: what needs it is skipped"
  fi
done
if ((${#missing[@]} + ${#wanted[@]} == 0)); then
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    if ((${#missing[@]} == 0)); then
      echo "without root or sudo these are not installed, what needs them is skipped: ${wanted[*]}"
      exit 0
    fi
    echo "error: packages are missing, and installing them needs root or sudo; as root, run" >&2
    echo "apt-get install ${missing[*]} ${wanted[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "installing: ${missing[*]} ${wanted[*]}"
# Another apt may be running, for instance on a machine that has just started.
apt_options=(-qq -o DPkg::Lock::Timeout=300)
"${as_root[@]}" apt-get "${apt_options[@]}" update
for package in "${wanted[@]}"; do
  if is_package "$package"; then
    missing+=("$package")
  else
    echo "no package $package here: what needs it is skipped"
  fi
done
if ((${#missing[@]} > 0)); then
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get "${apt_options[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null
fi
