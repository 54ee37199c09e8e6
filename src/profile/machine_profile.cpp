#include "tessera/profile/machine_profile.hpp"

#include <fmt/format.h>

#include <cmath>

#include "profile/machine_profile_error.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"

namespace tessera {

void profile::refuse_profile(const std::string& what) {
  constexpr std::size_t kMostShown = 500;  // names in it come from the file
  throw ConfigError{"the machine's profile " + shown(what, kMostShown)};
}

namespace {

using profile::refuse_profile;

void positive(double value, std::string_view what) {
  if (!(value > 0) || !std::isfinite(value)) {
    refuse_profile(fmt::format("has {} as {}; it must be above 0", value, what));
  }
}

void not_negative(double value, std::string_view what) {
  if (!(value >= 0) || !std::isfinite(value)) {
    refuse_profile(fmt::format("has {} as {}; it must be 0 or more", value, what));
  }
}

void check(const LinkLevel& level, std::size_t protocols, int below) {
  positive(level.bytes_per_second, fmt::format("bytes_per_second of level {}", level.name));
  if (level.step_seconds.size() != protocols) {
    refuse_profile(
        fmt::format("has {} step_seconds in level {}, but {} protocols; give one for each protocol",
                    level.step_seconds.size(), level.name, protocols));
  }
  for (const double seconds : level.step_seconds) {
    not_negative(seconds, fmt::format("step_seconds of level {}", level.name));
  }
  const bool grows =
      below > 0 && (level.ranks == 0 || (level.ranks > below && level.ranks % below == 0));
  if (level.ranks < 0 || !grows) {
    refuse_profile(
        fmt::format("has {} ranks in a block of level {}; each level needs a multiple of the ranks "
                    "in the level before, and only the last may have 0 (any number)",
                    level.ranks, level.name));
  }
}

}  // namespace

void MachineProfile::validate() const {
  if (cores < 0) { refuse_profile(fmt::format("has {} cores; give 0 or more", cores)); }
  if (flops_per_second.empty()) {
    refuse_profile("has no flops_per_second; give at least one dtype");
  }
  for (const auto& [dtype, rate] : flops_per_second) {
    positive(rate, fmt::format("flops_per_second of {}", to_string(dtype)));
  }
  positive(bytes_per_second, "bytes_per_second");
  not_negative(host_bytes_per_second, "host_bytes_per_second");
  not_negative(kernel_seconds, "kernel_seconds");
  not_negative(enqueue_seconds, "enqueue_seconds");
  positive(speed_beside_collectives, "speed_beside_collectives");
  if (speed_beside_collectives > 1) {
    refuse_profile("has a speed_beside_collectives above 1; give a fraction");
  }
  if (way == CollectiveWay::direct) {
    positive(reduce_bytes_per_second, "reduce_bytes_per_second");
  }
  not_negative(vector_flops_per_second, "vector_flops_per_second");
  if (protocols.empty() && !levels.empty()) {
    refuse_profile("has levels but no protocols; give at least one");
  }
  if (levels.empty() && !protocols.empty()) {
    refuse_profile("has protocols but no levels; give at least one");
  }
  for (const LinkProtocol& protocol : protocols) {
    positive(protocol.bandwidth_share, "bandwidth_share of protocol " + protocol.name);
    not_negative(protocol.start_seconds, "start_seconds of protocol " + protocol.name);
  }
  int below = 1;
  for (const LinkLevel& level : levels) {
    check(level, protocols.size(), below);
    below = level.ranks;
  }
  for (const KernelSample& sample : kernels) {
    positive(sample.seconds, "seconds of kernel " + sample.work.name);
    positive(sample.work.flops + sample.work.bytes,
             "flops and bytes of kernel " + sample.work.name);
    not_negative(sample.shared_seconds, "shared_seconds of kernel " + sample.work.name);
  }
}

}  // namespace tessera
