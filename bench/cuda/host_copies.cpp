#include "bench/cuda/host_copies.hpp"

#include <array>
#include <functional>
#include <memory>

#include "tools/measure/timing.hpp"

namespace tessera::bench {
namespace {

constexpr int kCopies = 8;  // one after the other on each stream, in every round

std::shared_ptr<void> pinned_bytes(Device& device, std::size_t bytes) {
  return {device.allocate_host(bytes),
          [&device, bytes](void* data) { device.free_host(data, bytes); }};
}

}  // namespace

HostCopyRates measure_host_copies(Rig& rig, int rounds, std::size_t bytes) {
  Device& device = rig.device();
  const std::array on_device{device_bytes(rig, bytes), device_bytes(rig, bytes)};
  const std::array on_host{pinned_bytes(device, bytes), pinned_bytes(device, bytes)};
  const OwnedStream in = device.make_side_stream("copies in");
  const OwnedStream out = device.make_side_stream("copies out");
  const auto copies = [&](bool to_device, bool to_host) {
    return [&, to_device, to_host] {
      for (int i = 0; i < kCopies; ++i) {
        if (to_device) { device.copy_in(on_device[0].get(), on_host[0].get(), bytes, in.get()); }
        if (to_host) { device.copy_out(on_host[1].get(), on_device[1].get(), bytes, out.get()); }
      }
      in.get().wait();
      out.get().wait();
    };
  };
  const std::array<std::function<void()>, 3> cases{copies(true, false), copies(false, true),
                                                   copies(true, true)};
  const std::vector<Series> times = in_turn(rounds, cases);
  const auto rate = [&](const Series& series) {
    return static_cast<double>(bytes) * kCopies / series.median();
  };
  return {rate(times[0]), rate(times[1]), rate(times[2])};
}

}  // namespace tessera::bench
