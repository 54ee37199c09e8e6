#pragma once

#include <string>
#include <vector>

#include "tessera/nn/decoder_config.hpp"
#include "tools/measure/comparison.hpp"

namespace tessera::bench {

/// A matrix product of a GPT's step, computed by every algorithm that this build has on this
/// processor: ours is matmul's choice, the limits are the others.
struct ProductTimes {
  std::string part;    ///< "c_fc forward"
  std::string dtypes;  ///< of A, B and C: "bf16 bf16 fp32"
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  Comparison ways;
};

/// Times the products of `rows` tokens with each weight on one thread: y = x W, dx = dy W^T, and dW
/// += x^T dy in fp32; in fp32, bf16 and fp16.
[[nodiscard]] std::vector<ProductTimes> measure_products(const nn::DecoderConfig& model,
                                                         std::int64_t rows, int rounds);

}  // namespace tessera::bench
