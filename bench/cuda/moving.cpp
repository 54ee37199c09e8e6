#include "bench/cuda/moving.hpp"

#include <algorithm>
#include <utility>

namespace tessera::bench {
namespace {

/// A copy that reads half of `bytes` and writes the other half.
Case copy_case(Rig& rig, double bytes) {
  const auto half = std::max<std::size_t>(static_cast<std::size_t>(bytes / 2), 1);
  const auto from = device_bytes(rig, half);
  const auto to = device_bytes(rig, half);
  rig.device().fill(from.get(), 0x5A, half, rig.stream());
  return rig.repeated("device copy", 2 * static_cast<double>(half), 0,
                      [=, &rig] { rig.device().copy(to.get(), from.get(), half, rig.stream()); });
}

}  // namespace

KernelContest moving(Rig& rig, const std::function<void()>& enqueue) {
  trace::KernelWork work = rig.work_of(enqueue);
  const double bytes = work.bytes;
  return {{Work::bytes, rig.repeated("tessera", bytes, 0, enqueue), {copy_case(rig, bytes)}},
          std::move(work)};
}

}  // namespace tessera::bench
