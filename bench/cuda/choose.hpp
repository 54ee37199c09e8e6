#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/cuda/training_products.hpp"
#include "bench/support/comparison.hpp"
#include "kernels/matmul/product_choices.hpp"

namespace tessera::bench {

/// Times the first eight algorithms that cuBLASLt's heuristic offers for each product, in turn in
/// the same rounds, and keeps the fastest where it is at least 1 % faster than the first. Tells
/// `tell` of each product, with the fastest as ours and the heuristic's first as the limit.
[[nodiscard]] kernels::ProductChoices choose_products(
    const std::vector<TrainingProduct>& products, int rounds,
    const std::function<void(const std::string& name, const Comparison& result)>& tell);

}  // namespace tessera::bench
