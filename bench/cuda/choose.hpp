#pragma once

#include <functional>
#include <vector>

#include "bench/cuda/training_products.hpp"
#include "kernels/matmul/product_choices.hpp"
#include "tools/measure/comparison.hpp"

namespace tessera::bench {

/// For each product, times the first eight algorithms that cuBLASLt's heuristic offers, in turn in
/// the same rounds, and keeps the fastest if it is at least 1 % faster than what a run does
/// without: the heuristic's first, or for a product that sums columns the product and a kernel.
/// Products leave `spared_multiprocessors` free. Calls `tell` for each product, with the fastest as
/// ours and what a run does without as the limit.
[[nodiscard]] kernels::ProductChoices choose_products(
    const std::vector<TrainingProduct>& products, int rounds, int spared_multiprocessors,
    const std::function<void(const TrainingProduct& product, const Comparison& result)>& tell);

}  // namespace tessera::bench
