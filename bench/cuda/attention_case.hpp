#pragma once

#include <cstdint>

#include "bench/cuda/rig.hpp"

namespace tessera::bench {

/// A requested attention in bf16, in one direction.
struct AskedAttention {
  kernels::AttentionShape shape;
  bool backward = false;
  float dropout = 0.0F;
  device::SumOrder order = device::SumOrder::fixed;
  bool lent = false;  ///< backward gets as much workspace as it can use, as nn::Decoder lends it
  std::int64_t document = 0;  ///< tokens of a document on average; 0: each sample is one
};

/// Attention and its work. The case counts the FLOPs of the scores that are needed; the work counts
/// those of one document a sample, as planning does.
struct AttentionCase {
  Case run;
  trace::KernelWork work;
};
[[nodiscard]] AttentionCase attention_case(Rig& rig, const AskedAttention& asked);

/// What the device's matrix units achieve: a product of two square matrices.
[[nodiscard]] Case square_product(Rig& rig, std::int64_t size);

}  // namespace tessera::bench
