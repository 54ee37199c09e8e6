#pragma once

#include "tessera/profile/machine_profile.hpp"

namespace tessera::test {

/// Devices of 1 FLOP/s and 1 byte/s, and links of 1 byte/s without latency: work takes as many
/// seconds as it states.
inline MachineProfile plain_machine() {
  MachineProfile machine;
  machine.name = "plain";
  machine.flops_per_second = {{DType::fp32, 1.0}, {DType::bf16, 2.0}};
  machine.bytes_per_second = 1.0;
  machine.protocols = {{"plain", 1.0, 0.0}};
  machine.levels = {{"node", 4, 1.0, {0.0}}, {"cluster", 0, 1.0, {0.0}}};
  return machine;
}

/// A kernel that takes `seconds` on the plain machine.
inline trace::KernelWork kernel_of(double seconds) {
  return {.name = "kernel", .flops = seconds, .sizes = {1, 1, 1}};
}

/// An all-gather among two ranks that takes `seconds` on the plain machine.
inline trace::BatchWork gather_of(double seconds, std::size_t group = 0) {
  return {.label = "gather", .group = group, .entries = {{"all_gather", 2 * seconds}}};
}

}  // namespace tessera::test
