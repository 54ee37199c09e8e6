#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/cuda/training_products.hpp"
#include "bench/support/comparison.hpp"
#include "kernels/matmul/product_choices.hpp"

namespace tessera::bench {

/// For each product, times the first eight algorithms that cuBLASLt's heuristic offers, in turn in
/// the same rounds, and keeps the fastest if it is at least 1 % faster than the first. Calls `tell`
/// for each product, with the fastest as ours and the heuristic's first as the limit.
[[nodiscard]] kernels::ProductChoices choose_products(
    const std::vector<TrainingProduct>& products, int rounds,
    const std::function<void(const std::string& name, const Comparison& result)>& tell);

}  // namespace tessera::bench
