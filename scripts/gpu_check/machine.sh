# The description of the machine and its card. scripts/gpu_check.sh sources this file.

has_card() { [[ $emulated == no ]] && command -v nvidia-smi >/dev/null; }

# card FIELD...: prints fields of the first card from nvidia-smi; "unknown" if it does not know one.
card() { nvidia-smi --query-gpu="$1" --format=csv,noheader -i 0 2>/dev/null | head -n 1 || echo "unknown"; }

# throttle_reasons MASK: prints the reasons for reduced clocks of nvidia-smi's mask, in words.
throttle_reasons() {
  local mask=$1 words=() i
  local names=("idle" "application clocks" "software power cap" "hardware slowdown" "sync boost"
    "software thermal slowdown" "hardware thermal slowdown" "hardware power brake" "display clock")
  [[ $mask =~ ^0x[0-9a-fA-F]+$ ]] || { echo "not told"; return; }
  for i in "${!names[@]}"; do
    if ((mask >> i & 1)); then words+=("${names[i]}"); fi
  done
  if ((${#words[@]} == 0)); then echo "nothing"; else (IFS=+; echo "${words[*]}"); fi
}

# Prints the card's current state on one line; nothing if it cannot be read.
clocks() {
  local fields=clocks.sm,clocks.mem,power.draw,temperature.gpu values sm memory power heat mask
  has_card || return 0
  values=$(card "$fields,clocks_event_reasons.active")
  if [[ $values != *0x* ]]; then values=$(card "$fields,clocks_throttle_reasons.active"); fi  # older drivers
  IFS=, read -r sm memory power heat mask <<<"${values//, /,}"
  echo "SM $sm, memory $memory, $power, $heat C, held by $(throttle_reasons "$mask")"
}

# Prints the compute capability as nvcc expects it: 90.
architecture() {
  local capability=
  if has_card; then capability=$(card compute_cap); fi
  if [[ ! $capability =~ ^[0-9]+\.[0-9]+$ ]]; then
    cat >"$work/probe.cu" <<'END'
#include <cstdio>
int main() {
  int major = 0, minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) != cudaSuccess) {
    return 1;
  }
  std::printf("%d.%d\n", major, minor);
}
END
    nvcc -o "$work/probe" "$work/probe.cu" && capability=$("$work/probe")
  fi
  [[ $capability =~ ^[0-9]+\.[0-9]+$ ]] || return 1
  echo "${capability/./}"
}

# Prints the name of the commit: the given one, or git's.
commit_name() {
  local name=
  if [[ -n $commit ]]; then
    name=$commit
  elif command -v git >/dev/null; then
    name=$(git describe --always --dirty --exclude '*' 2>/dev/null || true)
  fi
  echo "${name:-not known}"
}

version_of() { { "$@" 2>/dev/null || echo "not found"; } | tail -n 1; }

machine() {
  printf '| | |\n|---|---|\n'
  if [[ $emulated == yes ]]; then
    echo "| device | **emulated on the processor: the numbers below mean nothing** |"
  elif has_card; then
    echo "| device | $(card name), $(card memory.total), compute capability $(card compute_cap) |"
    echo "| driver | $(card driver_version) |"
    echo "| clocks at the start | $(clocks) |"
    echo "| clocks at most | SM $(card clocks.max.sm), memory $(card clocks.max.mem) |"
  else
    echo "| device | no nvidia-smi |"
  fi
  echo "| processor | $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores |"
  echo "| system | $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release 2>/dev/null), kernel $(uname -r) |"
  echo "| nvcc | $(version_of nvcc --version) |"
  echo "| compiler, CMake | $(version_of c++ -dumpfullversion -dumpversion), $(cmake --version | head -n 1) |"
  echo "| PyTorch | $(version_of "${python:-false}" -c 'import torch
print(torch.__version__, "with CUDA", torch.version.cuda, "and cuDNN", torch.backends.cudnn.version())') |"
  echo "| commit | $(commit_name) |"
}
