#include "world/host_cores.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>

#include "base/machine.hpp"
#include "comm/control/tcp/frame.hpp"
#include "tessera/base/error.hpp"
#include "tessera/device/device.hpp"

namespace tessera::world {
namespace {

// The most cores of a machine that are considered.
constexpr int kMostCores = 1 << 16;

struct FreeSet {
  void operator()(cpu_set_t* set) const noexcept { CPU_FREE(set); }
};

std::vector<int> cores_of_thread() {
  const std::unique_ptr<cpu_set_t, FreeSet> set{CPU_ALLOC(kMostCores)};
  const std::size_t bytes = CPU_ALLOC_SIZE(kMostCores);
  std::vector<int> cores;
  if (set && ::sched_getaffinity(0, bytes, set.get()) == 0) {
    for (int core = 0; core < kMostCores; ++core) {
      if (CPU_ISSET_S(core, bytes, set.get())) { cores.push_back(core); }
    }
  }
  if (!cores.empty()) { return cores; }
  cores.resize(static_cast<std::size_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))));
  std::iota(cores.begin(), cores.end(), 0);
  return cores;
}

/// A run of consecutive cores.
struct Run {
  int first;
  int count;
};

std::vector<Run> runs_of(const std::vector<int>& cores) {
  std::vector<Run> runs;
  for (const int core : cores) {
    if (runs.empty() || runs.back().first + runs.back().count != core) {
      runs.push_back({core, 1});
    } else {
      ++runs.back().count;
    }
  }
  return runs;
}

}  // namespace

HostCores own_cores() {
  return {machine_id(), cores_of_thread()};
}

std::string encode(const HostCores& own) {
  comm::PayloadWriter text;
  text.text(own.machine);
  for (const Run& run : runs_of(own.cores)) { text.number(run.first).number(run.count); }
  return text.take();
}

HostCores decode_cores(std::string_view text) {
  comm::PayloadReader reader{text};
  HostCores all{reader.text(), {}};
  while (!reader.empty()) {
    const std::int64_t first = reader.number();
    const std::int64_t count = reader.number();
    // Cores must ascend, so a rank cannot name more of them than a machine has.
    const std::int64_t least = all.cores.empty() ? 0 : all.cores.back() + 1;
    if (first < least || first >= kMostCores || count < 1 || count > kMostCores - first) {
      throw CommError{"a rank sent no list of its cores; start the same program on all ranks"};
    }
    for (std::int64_t i = 0; i < count; ++i) { all.cores.push_back(static_cast<int>(first + i)); }
  }
  return all;
}

int host_threads(int asked, std::span<const HostCores> ranks, int rank) {
  if (asked > 0) { return asked; }
  const HostCores& own = ranks[static_cast<std::size_t>(rank)];
  std::vector<int> users(own.cores.size(), 0);  // by core
  for (const HostCores& other : ranks) {
    if (other.machine != own.machine) { continue; }
    for (std::size_t i = 0; i < own.cores.size(); ++i) {
      users[i] += std::ranges::binary_search(other.cores, own.cores[i]) ? 1 : 0;
    }
  }
  // Sums of unit fractions are slightly off: 3 thirds must give 1.
  constexpr double kRoundingOff = 1e-6;
  double part = kRoundingOff;
  for (const int count : users) { part += 1.0 / count; }
  return static_cast<int>(
      std::clamp(part, 1.0, static_cast<double>(CpuDeviceOptions::kMostThreads)));
}

}  // namespace tessera::world
