#include <fmt/format.h>

#include "bench/cuda/cases.hpp"
#include "bench/cuda/product_case.hpp"

namespace tessera::bench {
namespace {

nn::GPTConfig model_of(const CudaSizes& sizes) {
  return {.layers = 1,
          .hidden = sizes.hidden(),
          .heads = sizes.heads,
          .vocab = sizes.vocab,
          .seq = sizes.seq};
}

/// "c_proj forward with residual, 65536 x 768 x 768".
std::string with(const TrainingProduct& product, const char* what) {
  std::string name = product.name;
  return name.insert(name.find(','), fmt::format(" with {}", what));
}

}  // namespace

std::vector<CudaContest> product_contests(const CudaSizes& sizes) {
  std::vector<CudaContest> all;
  const std::vector<TrainingProduct> products = training_products(model_of(sizes), sizes.batch);
  for (const TrainingProduct& product : products) {
    all.push_back(
        {"products", product.name, [=](Rig& rig) { return plain_product_contest(rig, product); }});
  }
  for (TrainingProduct product : products) {
    const bool sums = product.result == DType::fp32 && !product.name.starts_with("wte");
    if (!product.residual && !sums) { continue; }
    product.bias_gradient = sums;
    all.push_back({"products", with(product, sums ? "bias gradient" : "residual"),
                   [=](Rig& rig) { return epilogue_contest(rig, product); }});
  }
  return all;
}

}  // namespace tessera::bench
